"""Tables with named columns, of files and of pandas, as matrices of numbers."""

from torch_gckm.tables.columns import Table
from torch_gckm.tables.edges import read_edges, read_labels, read_nodes
from torch_gckm.tables.encoding import TableEncoding
from torch_gckm.tables.features import FeatureTable, read_features
from torch_gckm.tables.frames import table_of

__all__ = [
    "FeatureTable",
    "Table",
    "TableEncoding",
    "read_edges",
    "read_features",
    "read_labels",
    "read_nodes",
    "table_of",
]
