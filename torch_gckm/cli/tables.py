"""Tables that users keep their graphs in: features, edges and classes of named nodes."""

from __future__ import annotations

import csv
import math
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.utils import coalesce, to_undirected

from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.layouts import from_scipy
from torch_gckm.panels import check_finite

Row = tuple[int, list[str]]  # The number of a line, and its cells.


def read_features(path: Path) -> tuple[list[str], Tensor]:
    """The names of nodes and their features, from CSV (node, numbers), NPY or NPZ."""
    if path.suffix in (".npy", ".npz"):
        x = _from_numpy(path)
        return [str(node) for node in range(x.size(0))], x
    rows = list(_rows(path))
    if rows and (not any(map(_is_number, rows[0][1][1:])) or not rows[0][1][0]):
        rows = rows[1:]  # A heading; tables with an index have one that begins with an empty cell.
    if not rows or len(rows[0][1]) < 2:
        hint = "; separate cells by commas" if rows and ";" in rows[0][1][0] else ""
        raise InvalidInputError(f"{path} needs lines of a node and numbers{hint}")
    width = len(rows[0][1])
    for number, cells in rows:
        wrong = next((cell for cell in cells[1:] if cell and not _is_number(cell)), None)
        if len(cells) != width or wrong is not None:
            what = f"'{wrong}' is not a number" if wrong is not None else f"{len(cells)} cells instead of {width}"
            raise InvalidInputError(f"{path}, line {number}: {what}")
        if not cells[0]:
            raise InvalidInputError(f"{path}, line {number}: a node has no name")
        if not all(cell and math.isfinite(float(cell)) for cell in cells[1:]):
            raise InvalidInputError(f"{path}, line {number}: a value is missing or infinite; fill it, or drop the node")
    names = [cells[0] for _, cells in rows]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"{path} names a node twice")
    values = np.array([[float(cell) for cell in cells[1:]] for _, cells in rows], dtype=np.float32)
    return names, torch.from_numpy(values)


def read_edges(path: Path, places: dict[str, int], directed: bool = False) -> tuple[Tensor, Tensor | None]:
    """Edges and their weights, from CSV (node, node, perhaps a weight).

    Args:
        path: The file.
        places: The number of every node.
        directed: Whether edges go from the first node to the second only.
    """
    ends, weights = [], []
    for number, cells in _rows(path):
        if number == 1 and not any(cell in places for cell in cells[:2]):
            continue  # A heading.
        known = len(cells) in (2, 3) and cells[0] in places and cells[1] in places
        if not known or (len(cells) == 3 and not _is_number(cells[2])):
            shown = ", ".join(cells)
            raise InvalidInputError(f"{path}, line {number}: not two known nodes and perhaps a weight: {shown}")
        ends.append((places[cells[0]], places[cells[1]]))
        weights.append(float(cells[2]) if len(cells) == 3 else 1.0)
    if not ends:
        warnings.warn(f"{path} has no edges: nodes will be told apart by their features alone", GCKMWarning, 2)
    edges = torch.tensor(ends, dtype=torch.long).view(-1, 2).t()
    # A pair that occurs twice counts once, with the mean of its weights.
    join = coalesce if directed else to_undirected
    edges, weight = join(edges, torch.tensor(weights), len(places), reduce="mean")
    return edges, None if bool((weight == 1).all()) else weight


def read_labels(path: Path, places: dict[str, int]) -> dict[int, str]:
    """The classes of nodes, from CSV (node, class); nodes without a class, or with -1, are left out.

    Args:
        path: The file.
        places: The number of every node.
    """
    rows = list(_rows(path))
    if rows and rows[0][1][0] not in places and rows[0][1][1:] not in [cells[1:] for _, cells in rows[1:]]:
        rows = rows[1:]  # A heading: no node, and a class that occurs nowhere else.
    found: dict[int, str] = {}
    for number, cells in rows:
        if len(cells) != 2 or cells[0] not in places:
            raise InvalidInputError(f"{path}, line {number}: not a known node and its class: {', '.join(cells)}")
        name, place = "" if cells[1] == "-1" else cells[1], places[cells[0]]
        if name and found.get(place, name) != name:
            raise InvalidInputError(f"{path}, line {number}: '{cells[0]}' has two classes, {found[place]} and {name}")
        if name:
            found[place] = name
    return found


def _rows(path: Path) -> Iterator[Row]:
    """The lines of a table that are not empty."""
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            delimiter = "\t" if path.suffix == ".tsv" else ","
            for number, cells in enumerate(csv.reader(file, delimiter=delimiter), start=1):
                if any(cell.strip() for cell in cells):
                    yield number, [cell.strip() for cell in cells]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(f"{path} is not a text file in UTF-8") from error


def _from_numpy(path: Path) -> Tensor:
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}")
    try:
        content = np.load(path, allow_pickle=False)
        if path.suffix == ".npz" and "format" in content:
            return from_scipy(scipy.sparse.load_npz(path).astype(np.float32))
        array = content if path.suffix == ".npy" else content["x" if "x" in content else content.files[0]]
        x = torch.from_numpy(np.asarray(array, dtype=np.float32))
    except (ValueError, EOFError, IndexError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"{path} holds no matrix of numbers: {error}") from error
    if x.dim() != 2:
        raise InvalidInputError(f"{path} holds an array of shape {tuple(x.shape)}; a row for every node is needed")
    check_finite(x, str(path))
    return x


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
