"""Tables of named nodes in files: features, edges and labels.

A first line is a heading if it cannot be anything else, and what was taken for one is said. A name that occurs in
several files, a name that looks like those of nodes, or columns numbered as pandas does it decide what is unclear.
"""

import csv
import math
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.utils import coalesce, to_undirected

from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.layouts import from_scipy, warn_of_lost_digits
from torch_gckm.memory import require_memory
from torch_gckm.panels import check_finite

_USUAL = {"", "node", "nodes", "id", "name", "index", "key", "source", "target", "src", "dst", "from", "to"}
_SOURCES, _TARGETS = {"source", "src", "from"}, {"target", "dst", "to"}
_CLASSES = {"class", "label", "weight"}
_UNREADABLE = (ValueError, EOFError, KeyError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error)
Lines = list[tuple[int, list[str]]]  # Numbers of lines and their cells.
Edges = tuple[Tensor, Tensor | None]


@dataclass
class FeatureTable:
    """Nodes by their names, and their features."""

    nodes: list[str]
    x: Tensor
    columns: list[str] | None = None  # The names of the columns, if there is a heading.
    corner: str | None = None  # What the heading calls the nodes.
    headings: list[str] = field(default_factory=list)  # What was taken for one, also in other files about these nodes.
    places: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {name: place for place, name in enumerate(self.nodes)}
        if len(self.places) < len(self.nodes):
            twice = next(name for place, name in enumerate(self.nodes) if self.places[name] != place)
            raise InvalidInputError(f"the table of features names a node twice: '{twice}'")


def read_features(path: Path, others: Sequence[Path] = (), known: Sequence[str] | None = None) -> FeatureTable:
    """From CSV (node, numbers), NPY or NPZ.

    ``others`` are files in whose first two columns nodes may occur, ``known`` are names that columns probably have.
    """
    if path.suffix in (".npy", ".npz"):
        x = _from_numpy(path)
        return FeatureTable([str(node) for node in range(x.size(0))], x)
    lines = list(_lines(path))
    heading = _heading_of_features(path, lines, others, known) if lines else None
    if heading is not None:
        lines = lines[1:]
    if not lines or len(lines[0][1]) < 2:
        hint = "; separate cells by commas" if lines and ";" in lines[0][1][0] else ""
        raise InvalidInputError(f"{path} needs lines of a node and numbers{hint}")
    width = len(lines[0][1])
    if heading is not None and len(heading) != width:
        raise InvalidInputError(f"{path} has {len(heading)} cells in its heading, but {width} in line {lines[0][0]}")
    for number, cells in lines:
        wrong = next((cell for cell in cells[1:] if cell and not is_number(cell)), None)
        if len(cells) != width or wrong is not None:
            what = f"'{wrong}' is not a number" if wrong is not None else f"{len(cells)} cells instead of {width}"
            raise InvalidInputError(f"{path}, line {number}: {what}")
        if not cells[0]:
            raise InvalidInputError(f"{path}, line {number}: a node has no name")
        if not all(cell and math.isfinite(float(cell)) for cell in cells[1:]):
            raise InvalidInputError(f"{path}, line {number}: a value is missing or infinite; fill it, or drop the node")
    with np.errstate(over="ignore"):  # Looked for below.
        wide = np.array([[float(cell) for cell in cells[1:]] for _, cells in lines])
        values = wide.astype(np.float32)
    if not np.isfinite(values).all():
        place = int((~np.isfinite(values)).any(axis=1).argmax())
        raise InvalidInputError(
            f"{path}, line {lines[place][0]}: a value is too large for single precision; rescale it"
        )
    warn_of_lost_digits(torch.from_numpy(wide), torch.float32, None if heading is None else heading[1:])
    table = FeatureTable([cells[0] for _, cells in lines], torch.from_numpy(values))
    if heading is not None:
        twice = len(set(heading[1:])) < width - 1
        if twice and known is not None:
            raise InvalidInputError(f"{path} names a column twice, so the model's columns are not clear")
        table.corner, table.headings = heading[0], [_shown(path, heading)]
        table.columns = None if twice else heading[1:]  # Else they tell nothing apart.
    return table


def _heading_of_features(
    path: Path, lines: Lines, others: Sequence[Path], known: Sequence[str] | None
) -> list[str] | None:
    first = lines[0][1]
    names, is_usual = first[1:], first[0].lower() in _USUAL
    if first[0] == "":
        if any(name.lower() in _USUAL for name in names):
            raise InvalidInputError(f"{path}: which column names the nodes? Write the table without its index")
        return first
    if known is not None and set(names) == set(known):
        return first
    if not any(map(is_number, names)):
        return first if any(letter.isalnum() for name in names for letter in name) else None
    shapes = {_shape(cells[0]) for _, cells in lines[1:]}
    elsewhere = [list(_lines(other)) for other in others]
    is_node = first[0] in {cell for rows in elsewhere for _, cells in rows[1:] for cell in cells[:2]}
    is_first = first[0] in {cell for rows in elsewhere for _, cells in rows[:1] for cell in cells[:2]}
    if is_node or (is_first and not is_usual and _shape(first[0]) in shapes):
        return None
    # Columns numbered from 0 or 1, as pandas writes them, or a node with such features.
    numbered = [str(column) for column in range(len(first))]
    if names in (numbered[:-1], numbered[1:]):
        if len(first) > 3 or is_usual:
            return first
    elif is_usual and all(name.isdecimal() for name in names) and len(set(names)) == len(names):
        return first
    elif is_usual or _shape(first[0]) in shapes or not all(map(is_number, names)):
        return None
    hint = "call the first cell 'node' if it is a heading, or name the node in the edges or labels"
    raise InvalidInputError(f"{path}: is the first line, {', '.join(first)}, a heading or a node? {hint}")


def read_edges(path: Path, features: FeatureTable, directed: bool = False, hint: str = "") -> Edges:
    """Edges ``[2, E]`` and weights ``[E]``, from CSV (node, node, perhaps a weight); a hint if a node is not known."""
    ends, weights, places = [], [], features.places
    for number, cells in _without_heading(path, features, 2):
        known = len(cells) in (2, 3) and cells[0] in places and cells[1] in places
        if not known or (len(cells) == 3 and not is_number(cells[2])):
            shown = ", ".join(cells)
            raise InvalidInputError(f"{path}, line {number}: not two known nodes and perhaps a weight: {shown}{hint}")
        ends.append((places[cells[0]], places[cells[1]]))
        weights.append(float(cells[2]) if len(cells) == 3 else 1.0)
    if not ends:
        warnings.warn(f"{path} has no edges: nodes will be told apart by their features alone", GCKMWarning, 2)
    edges = torch.tensor(ends, dtype=torch.long).view(-1, 2).t()
    # A pair that occurs twice counts once, with the mean of its weights.
    join = coalesce if directed else to_undirected
    edges, weight = join(edges, torch.tensor(weights), len(places), reduce="mean")
    return edges, None if bool((weight == 1).all()) else weight


def read_labels(path: Path, features: FeatureTable, *, numeric: bool = False) -> dict[int, str]:
    """The classes of nodes, from CSV (node, class); nodes without a class, with -1 or NaN are left out.

    Of ``numeric`` targets, -1 is a number.
    """
    found: dict[int, str] = {}
    for number, cells in _without_heading(path, features, 1):
        if len(cells) != 2 or cells[0] not in features.places:
            raise InvalidInputError(f"{path}, line {number}: not a known node and its class: {', '.join(cells)}")
        name, place = cells[1], features.places[cells[0]]
        if _is_blank(name) and not (numeric and is_number(name) and float(name) == -1):
            continue
        if found.setdefault(place, name) != name:
            raise InvalidInputError(f"{path}, line {number}: '{cells[0]}' has two classes, {found[place]} and {name}")
    return found


def _without_heading(path: Path, features: FeatureTable, named: int) -> Lines:
    """The lines of a file whose first cells name nodes, without its heading."""
    if path.suffix in (".npy", ".npz"):
        raise InvalidInputError(f"{path}: edges and labels are tables of names, CSV or TSV")
    lines = list(_lines(path))
    if not lines:
        return lines
    first, rest = lines[0][1], [cells[named:] for _, cells in lines[1:]]
    usual = {*_USUAL, (features.corner or "").lower()}
    are_usual = all(cell.lower() in usual for cell in first[:named])
    if any(cell in features.places for cell in first[:named]):
        if are_usual and first[named:] and first[named:] not in rest and not is_number(first[-1]):
            raise InvalidInputError(f"{path}: is the first line, {', '.join(first)}, a heading or a node's?")
        return lines
    if are_usual:
        return _in_usual_order(path, lines, features)
    if any(cell.lower() not in usual and _is_like_a_node(cell, features) for cell in first[:named]):
        hint = "if it is a heading, call the nodes 'node'"
        raise InvalidInputError(f"{path}, line {lines[0][0]}: no node is called {first[0]!r}; {hint}")
    if first[named:] and first[named:] in rest:
        raise InvalidInputError(f"{path}, line {lines[0][0]}: no node is called {first[0]!r}")
    return _in_usual_order(path, lines, features)


def _in_usual_order(path: Path, lines: Lines, features: FeatureTable) -> Lines:
    """The lines below a heading, if its names do not say that columns are in another order than they are read in."""
    names = [name.lower() for name in lines[0][1]]
    roles = [0 if name in _SOURCES else 1 if name in _TARGETS else 2 if name in _CLASSES else None for name in names]
    known = [role for role in roles if role is not None]
    if known != sorted(known) or (names[0] == "" and len(names) > 2) or (known and roles[0] is None and len(names) > 2):
        shown = ", ".join(lines[0][1])
        raise InvalidInputError(f"{path} has the columns {shown}; the nodes must come first, sources before targets")
    if roles[0] == 2 and len(names) == 2 and names[1] in _USUAL:
        raise InvalidInputError(f"{path} has the columns {', '.join(lines[0][1])}; the node must come first")
    features.headings.append(_shown(path, lines[0][1]))
    return lines[1:]


def _is_like_a_node(cell: str, features: FeatureTable) -> bool:
    """Whether a cell is made of letters and numbers as the name of a node is."""
    return _shape(cell) in {_shape(name) for name in features.nodes}


def _shape(name: str) -> str:
    return re.sub(r"[^\W\d]+", "a", re.sub(r"\d+", "0", name))


def _shown(path: Path, heading: Sequence[str]) -> str:
    return f"{path.name} ({', '.join(heading[:3])}{', ...' if len(heading) > 3 else ''})"


def _is_blank(label: str) -> bool:
    """Whether a label says that there is none."""
    return not label or label.lower() == "nan" or (is_number(label) and float(label) == -1)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The lines of a table that are not empty: their numbers and cells."""
    if path.suffix in (".npy", ".npz"):
        return
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            delimiter = "\t" if path.suffix == ".tsv" else ","
            for number, cells in enumerate(csv.reader(file, delimiter=delimiter), start=1):
                if any(cell.strip() for cell in cells):
                    yield number, [cell.strip() for cell in cells]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(f"{path} is not a table in a text file in UTF-8: {error}") from error


def _from_numpy(path: Path) -> Tensor:
    """The matrix of a file, ``[n, d]``."""
    try:
        if path.suffix == ".npy":
            array: Any = np.load(path, mmap_mode="r", allow_pickle=False)  # Fails if the file is too short for it.
        else:
            _check_size(path)
            with np.load(path, allow_pickle=False) as content:
                if "format" in content.files:
                    matrix = scipy.sparse.csr_matrix(_real(scipy.sparse.load_npz(path), path).astype(np.float32))
                    matrix.check_format(full_check=True)
                    return from_scipy(matrix)
                array = content[_only_one(content.files, path)]
        with np.errstate(over="ignore"):  # Looked for below.
            x = torch.from_numpy(np.array(_real(array, path), dtype=np.float32))
    except _UNREADABLE as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{path} holds no matrix of numbers: {error}") from error
    if x.dim() != 2:
        raise InvalidInputError(f"{path} holds an array of shape {tuple(x.shape)}; a row for every node is needed")
    check_finite(x, str(path))
    if array.dtype != np.float32:
        warn_of_lost_digits(torch.from_numpy(np.array(array, dtype=np.float64)), torch.float32)
    return x


def _only_one(names: Sequence[str], path: Path) -> str:
    """The array of the features: the one called x, or the only one."""
    if "x" in names or len(names) == 1:
        return "x" if "x" in names else names[0]
    raise InvalidInputError(f"{path} holds {len(names)} arrays ({', '.join(names)}); call the features 'x'")


def _check_size(path: Path) -> None:
    """Raise if the arrays of an archive do not fit into memory, or claim to be larger than they are."""
    with zipfile.ZipFile(path) as archive:
        records = archive.infolist()
        hint = "it may not be what it seems"
        require_memory(sum(record.file_size for record in records), str(path), torch.device("cpu"), hint)
        for record in records:
            with archive.open(record) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
            if math.prod(shape) * dtype.itemsize > record.file_size:
                raise InvalidInputError(f"{path} is damaged: '{record.filename}' claims to have the shape {shape}")


def _real(array: Any, path: Path) -> Any:
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"{path} holds {array.dtype}; real numbers are needed")
    return array


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell
