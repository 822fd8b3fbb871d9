"""Graphs through PyG's own dataset classes, splits, and folders of arrays that many processes read."""

from torch_gckm.datasets.load import DATASETS, load
from torch_gckm.datasets.paper import data_root, paper_splits
from torch_gckm.datasets.shard_data import write_shards
from torch_gckm.datasets.shard_writer import ShardWriter
from torch_gckm.datasets.shards import ShardFolder, read_shard
from torch_gckm.datasets.splits import FewLabelSplit, FixedSplit, PercentageSplit, PerClassSplit

__all__ = [
    "DATASETS", "FewLabelSplit", "FixedSplit", "PerClassSplit", "PercentageSplit", "ShardFolder", "ShardWriter",
    "data_root", "load", "paper_splits", "read_shard", "write_shards"
]  # fmt: skip
