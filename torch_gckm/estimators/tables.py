"""Tables with named columns as X of an estimator, and labels that are blank.

A DataFrame is encoded when it is fitted (:class:`~torch_gckm.tables.TableEncoding`), and so is every later one: columns
are known by their names. Arrays, tensors and ``Data`` objects are taken as they are. A ``Data`` object whose features
are those of a table says so by an attribute ``encoding``.
"""

from typing import Any

import numpy as np
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.estimators.inputs import to_matrix
from torch_gckm.tables import FeatureTable, TableEncoding, table_of
from torch_gckm.tables.columns import MatrixTable


def encoding_of(estimator: Any) -> TableEncoding | None:
    """How an estimator encodes tables; ``None`` if it was fitted to columns without names."""
    encoding: TableEncoding | None = getattr(estimator, "encoding_", None)
    names = getattr(estimator, "feature_names_in_", None)
    return TableEncoding.of_names(names.tolist()) if encoding is None and names is not None else encoding


def learned(X: Any) -> tuple[TableEncoding | None, Any]:
    """The encoding of a table to fit, and its matrix; arrays have none."""
    table = table_of(X)
    return (None, X) if table is None else TableEncoding.learn(table)


def encoded(estimator: Any, X: Any) -> Any:
    """A table, or rows in the order of the fitted table's columns, as the estimator was fitted to; else X itself."""
    encoding, table = encoding_of(estimator), table_of(X)
    if isinstance(X, FeatureTable):  # Encoded when it was read.
        return to_matrix(X.x)
    if table is not None:
        if encoding is None:
            encoding = TableEncoding.of_names(table.names)
        return encoding.apply(table)
    if encoding is None or encoding.is_plain:
        return X
    matrix = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    width = len(encoding.columns)
    if matrix.ndim != 2 or matrix.shape[1] != width:
        raise InvalidInputError(
            f"the estimator was fitted to a table of {width} columns ({', '.join(encoding.columns[:5])}"
            f"{', ...' if width > 5 else ''}); pass a DataFrame with these, got an array of shape {matrix.shape}"
        )
    return encoding.apply(MatrixTable(encoding.columns, matrix))


def check_encoding(estimator: Any, graph: Data) -> None:
    """Raise unless the features of a graph are those that the estimator's encoding makes."""
    encoding, given = getattr(estimator, "encoding_", None), graph.get("encoding")
    if encoding != given and not all(each is None or each.is_plain for each in (encoding, given)):
        raise InvalidInputError(
            "the estimator was fitted to a table, whose columns it encodes, and 'x' of the Data object is not known to "
            "be encoded so; pass the DataFrame as X with edge_index="
            if encoding is not None
            else "the features of this graph were encoded, but the estimator was not fitted to a table"
        )


def check_index(X: Any, y: Any) -> None:
    """Raise if the labels of a table have its index in another order: rows are taken by position."""
    rows: Any = getattr(X, "index", None)
    labels: Any = getattr(y, "index", None)
    if not (hasattr(rows, "equals") and hasattr(labels, "equals")) or rows.equals(labels):
        return
    if len(rows) == len(labels) and set(rows) == set(labels):
        raise InvalidInputError("y has the index of X in another order; pass y.loc[X.index], or both without an index")


def without_blanks(y: Any) -> Any:
    """Labels with -1 where there is none: NaN, ``None``, pandas' NA and empty text say so as well."""
    if hasattr(y, "iloc") and np.ndim(y) == 2 and y.shape[1] == 1:
        y = y.iloc[:, 0]
    if not (isinstance(y, list) or hasattr(y, "tolist")) or np.ndim(y) != 1:
        return y
    labels = y if isinstance(y, list) else y.tolist()
    blank = [_is_blank(label) for label in labels]
    if not any(blank):
        return y
    known = [label for label, is_missing in zip(labels, blank, strict=True) if not is_missing]
    # A column of whole numbers with blanks is one of fractions to pandas.
    are_whole = all(isinstance(label, float) and label.is_integer() for label in known)
    filled = np.empty(len(labels), dtype=object)
    filled[:] = -1
    filled[~np.array(blank)] = [int(label) for label in known] if are_whole else known
    return filled


def _is_blank(label: Any) -> bool:
    try:
        return label is None or bool(label == "" or label != label)
    except TypeError:  # pandas' NA is neither equal nor unequal to anything.
        return True
