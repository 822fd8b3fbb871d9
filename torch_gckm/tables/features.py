"""Features of named nodes from files: tables with named columns, which are encoded, and plain matrices.

A file whose first line is no heading holds numbers, which are taken as they are, as those of NPY and NPZ files: without
names, columns have no units that could be told.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.layouts import warn_of_lost_digits
from torch_gckm.tables.cells import as_numbers, is_number
from torch_gckm.tables.columns import Column, MatrixTable, Place, Table, TextTable
from torch_gckm.tables.encoding import TableEncoding
from torch_gckm.tables.frames import FrameTable, read_parquet, texts_of
from torch_gckm.tables.headings import heading_of_features, shown
from torch_gckm.tables.lines import MATRICES, PARQUET, Lines, read_lines
from torch_gckm.tables.matrices import read_matrix
from torch_gckm.tables.scaling import units_differ


@dataclass
class FeatureTable:
    """Nodes by their names, and their features."""

    nodes: list[str]
    x: Tensor | None  # None: nodes without features.
    encoding: TableEncoding | None = None  # How x was made of columns that have names, here or in a model's table.
    has_names: bool = False  # Whether the file names its columns.
    corner: str | None = None  # What the heading calls the nodes.
    headings: list[str] = field(default_factory=list)  # What was taken for one, also in other files about these nodes.
    places: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {name: place for place, name in enumerate(self.nodes)}
        if len(self.places) < len(self.nodes):
            twice = next(name for place, name in enumerate(self.nodes) if self.places[name] != place)
            raise InvalidInputError(f"the table of features names a node twice: '{twice}'")


def read_features(path: Path, others: Sequence[Path] = (), known: TableEncoding | None = None) -> FeatureTable:
    """From CSV, TSV or Parquet (node, then a column for each feature), NPY or NPZ.

    ``others`` are files in whose first two columns nodes may occur; ``known`` is the encoding of a model.
    """
    if path.suffix in MATRICES:
        x = read_matrix(path)
        return FeatureTable([str(node) for node in range(x.size(0))], _by_position(x, path, known), known)
    if path.suffix in PARQUET:
        frame = read_parquet(path)
        if frame.shape[1] < 2 or not len(frame):
            raise InvalidInputError(f"{path} needs a column that names the nodes, then columns of features")
        nodes, names = texts_of(frame.iloc[:, 0]), [str(name) for name in frame.columns]
        if "" in nodes:
            raise InvalidInputError(f"{path}, row {nodes.index('')}: a node has no name")
        _check_names(nodes, lambda row: f"{path}, row {row}")
        table: Table = FrameTable(frame.iloc[:, 1:], f"{path}, row {{}}")
        return _encoded(path, nodes, names, table, known)
    lines = read_lines(path)
    heading = heading_of_features(lines, others, None if known is None else known.columns) if lines.rows else None
    if heading is not None:
        lines = lines.rest()
    _check_shape(lines, heading)
    nodes, *cells = (list(column) for column in zip(*lines.rows, strict=True))
    _check_names(nodes, lines.where)
    if heading is not None and len(set(heading[1:])) == len(heading) - 1:
        return _encoded(path, nodes, heading, TextTable(heading[1:], cells, lines.where), known)
    if heading is not None and known is not None:
        raise InvalidInputError(f"{path} names a column twice, so the model's columns are not clear")
    numbers = _numbers(lines, cells, heading)
    x = torch.from_numpy(numbers.astype(np.float32))
    warn_of_lost_digits(torch.from_numpy(numbers), torch.float32, None if heading is None else heading[1:])
    found = FeatureTable(nodes, _by_position(x, path, known), known)
    if heading is not None:
        found.corner, found.headings = heading[0], [shown(path, heading)]
    elif known is None and units_differ([Column("number", column) for column in numbers.T]):
        text = f"the columns of {path} seem to have different units; with a heading that names them, they are scaled"
        warnings.warn(text, GCKMWarning, stacklevel=2)
    return found


def _check_names(nodes: Sequence[str], where: Place) -> None:
    """Raise if two nodes have one name, or if names are fractions: there may be no column of names."""
    seen: set[str] = set()
    for row, name in enumerate(nodes):
        if name in seen:
            raise InvalidInputError(f"{where(row)}: there is another node called '{name}'")
        seen.add(name)
        if "." in name and is_number(name) and not float(name).is_integer():
            raise InvalidInputError(
                f"{where(row)}: '{name}' is no name of a node, which the first column has; put a column of names first"
            )


def _encoded(
    path: Path, nodes: list[str], heading: Sequence[str], table: Table, known: TableEncoding | None
) -> FeatureTable:
    try:
        encoding, x = TableEncoding.learn(table) if known is None else (known, known.apply(table))
    except InvalidInputError as error:
        text = str(error)
        raise InvalidInputError(
            text.replace("the table", str(path), 1) if text.startswith("the table") else text
        ) from None
    found = FeatureTable(nodes, torch.from_numpy(x), encoding, True, heading[0])
    found.headings.append(shown(path, heading))
    return found


def _by_position(x: Tensor, path: Path, known: TableEncoding | None) -> Tensor:
    """A matrix without names of columns, in the encoding of a model whose columns are in the same order."""
    if known is None or known.is_plain:
        return x
    if x.size(1) != len(known.columns):
        raise InvalidInputError(
            f"{path} has {x.size(1)} columns without names, but the model was fitted to {len(known.columns)}: "
            f"{', '.join(known.columns[:5])}"
        )
    dense = x if x.layout == torch.strided else x.to_dense()
    try:
        return torch.from_numpy(known.apply(MatrixTable(known.columns, dense.numpy())))
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} has no heading: {error}") from None


def _check_shape(lines: Lines, heading: Sequence[str] | None) -> None:
    """Raise if lines have different lengths, or no cells beside names."""
    if not lines.rows or len(lines.rows[0]) < 2:
        raise InvalidInputError(f"{lines.path} needs lines of a node and its features, separated by commas")
    width = len(lines.rows[0])
    if heading is not None and len(heading) != width:
        where = f"in line {lines.numbers[0]}"
        raise InvalidInputError(f"{lines.path} has {len(heading)} cells in its heading, but {width} {where}")
    for row, cells in enumerate(lines.rows):
        if len(cells) != width:
            raise InvalidInputError(f"{lines.where(row)}: {len(cells)} cells instead of {width}")
        if not cells[0]:
            raise InvalidInputError(f"{lines.where(row)}: a node has no name")


def _numbers(lines: Lines, cells: Sequence[Sequence[str]], heading: Sequence[str] | None) -> NDArray[np.float64]:
    """The matrix of a file that does not name its columns; every cell must be a number."""
    columns: list[Any] = [as_numbers(column) for column in cells]
    if any(column is None or not np.isfinite(column).all() for column in columns):
        need = "a first line with a name for every column" if heading is None else "different names for all columns"
        for row, line in enumerate(lines.rows):
            wrong = next((cell for cell in line[1:] if cell and not is_number(cell)), None)
            if wrong is not None:
                raise InvalidInputError(f"{lines.where(row)}: '{wrong}' is not a number; words and dates need {need}")
            if not all(cell and math.isfinite(float(cell)) for cell in line[1:]):
                raise InvalidInputError(
                    f"{lines.where(row)}: a value is missing or infinite; fill it, or drop the node; blanks are filled "
                    f"in files with {need}"
                )
    matrix = np.stack(columns, axis=1)
    too_large = np.abs(matrix) > float(np.finfo(np.float32).max)
    if too_large.any():
        row = int(too_large.any(axis=1).argmax())
        raise InvalidInputError(f"{lines.where(row)}: a value is too large for single precision; rescale it")
    return matrix
