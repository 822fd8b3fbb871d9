"""Edges and labels of named nodes from files, and nodes that only these name."""

import warnings
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, to_undirected

from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.tables.cells import is_number
from torch_gckm.tables.features import FeatureTable
from torch_gckm.tables.headings import USUAL, without_heading
from torch_gckm.tables.lines import MATRICES, Lines, read_lines

Edges = tuple[Tensor, Tensor | None]


def read_edges(path: Path, features: FeatureTable, directed: bool = False, hint: str = "") -> Edges:
    """Edges ``[2, E]`` and weights ``[E]``, from a table (node, node, perhaps a weight).

    A hint is given if a node is not known.
    """
    ends, weights, places = [], [], features.places
    lines = _about(path, features, 2)
    for row, cells in enumerate(lines.rows):
        known = len(cells) in (2, 3) and cells[0] in places and cells[1] in places
        if not known or (len(cells) == 3 and not is_number(cells[2])):
            shown = f"{', '.join(cells)}{hint or _names_of(features)}"
            raise InvalidInputError(f"{lines.where(row)}: not two known nodes and perhaps a weight: {shown}")
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
    """The classes of nodes, from a table (node, class); nodes without a class, with -1 or NaN are left out.

    Of ``numeric`` targets, -1 is a number.
    """
    found: dict[int, str] = {}
    lines = _about(path, features, 1)
    for row, cells in enumerate(lines.rows):
        if len(cells) != 2 or cells[0] not in features.places:
            shown = f"{', '.join(cells)}{_names_of(features)}"
            raise InvalidInputError(f"{lines.where(row)}: not a known node and its class: {shown}")
        name, place = cells[1], features.places[cells[0]]
        if _is_unknown(name) and not (numeric and is_number(name) and float(name) == -1):
            continue
        if found.setdefault(place, name) != name:
            raise InvalidInputError(f"{lines.where(row)}: '{cells[0]}' has two classes, {found[place]} and {name}")
    if lines.numbers[:1] == [1] and len(lines.rows) > 2 and not numeric:
        _check_first_label(lines)
    return found


def _check_first_label(lines: Lines) -> None:
    """Raise, or warn, if the first line may be a heading: no other node has its class."""
    first = lines.rows[0]
    if len(first) != 2 or _is_unknown(first[1]) or any(row[1:] == first[1:] for row in lines.rows[1:]):
        return
    if first == ["0", "1"]:  # As pandas numbers columns.
        raise InvalidInputError(
            f"{lines.where(0)}: are 0 and 1 numbers of columns, or a node and a class that no other node has? Write a "
            "first line 'node,class' in place of it, or above it"
        )
    text = f"{lines.where(0)}: no other node has the class '{first[1]}'; if the line is a heading, begin it with 'node'"
    warnings.warn(text, GCKMWarning, stacklevel=3)


def _names_of(features: FeatureTable) -> str:
    """What the nodes are called, for messages."""
    return f"; nodes are called {', '.join(features.nodes[:3])}{', ...' if len(features.nodes) > 3 else ''}"


def read_nodes(edges: Path, labels: Path | None) -> FeatureTable:
    """The nodes that edges and labels name, in the order in which they do; they have no features."""
    below: dict[str, None] = {}
    given = [(_lines(path), named) for path, named in ((edges, 2), (labels, 1)) if path is not None]
    for lines, named in given:
        below |= dict.fromkeys(cell for row in lines.rows[1:] for cell in row[:named])
    names: dict[str, None] = {}
    for lines, named in given:
        hint = "if it is, write a first line 'from,to' or 'node,class' above it; else call the nodes 'node' there"
        first = lines.rows[0][:named] if lines.rows else []
        are_usual = all(cell.lower() in USUAL for cell in first)
        rest = without_heading(lines, below or ({} if are_usual else first), None, named, [], hint)
        if named == 2 and not rest.rows:
            raise InvalidInputError(f"{edges} has no edges, and nodes have no features: there is nothing to learn from")
        names |= dict.fromkeys(cell for row in rest.rows for cell in row[:named])
        blank = next((place for place, row in enumerate(rest.rows) if "" in row[:named]), None)
        if blank is not None:
            raise InvalidInputError(f"{rest.where(blank)}: a node has no name")
    return FeatureTable(list(names), None)


def _about(path: Path, features: FeatureTable, named: int) -> Lines:
    """The lines of a file about nodes that are known, without its heading."""
    return without_heading(_lines(path), features.places, features.corner, named, features.headings)


def _lines(path: Path) -> Lines:
    if path.suffix in MATRICES:
        raise InvalidInputError(f"{path}: edges and labels are tables of names, CSV or TSV")
    return read_lines(path)


def _is_unknown(label: str) -> bool:
    """Whether a label says that there is none."""
    return not label or label.lower() == "nan" or (is_number(label) and float(label) == -1)
