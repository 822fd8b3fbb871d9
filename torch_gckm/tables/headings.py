"""Whether the first line of a file is a heading.

It is one if it cannot be anything else, and what was taken for one is said. A name that occurs in several files, a name
that looks like those of nodes, or columns numbered as pandas does it decide what is unclear.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from torch_gckm.errors import InvalidInputError
from torch_gckm.tables.cells import is_blank, is_number
from torch_gckm.tables.lines import Lines, read_lines

USUAL = {"", "node", "nodes", "id", "name", "index", "key", "source", "target", "src", "dst", "from", "to"}
_SOURCES, _TARGETS = {"source", "src", "from"}, {"target", "dst", "to"}
_CLASSES = {"class", "label", "weight"}
_OR = "if it is a heading, call the nodes 'node'"


def heading_of_features(lines: Lines, others: Sequence[Path], known: Sequence[str] | None) -> list[str] | None:
    """The heading of a table of features, or ``None``; ``others`` may name nodes, ``known`` are probable columns."""
    path, first = lines.path, lines.rows[0]
    names, is_usual = first[1:], first[0].lower() in USUAL
    if first[0] == "":
        if any(name.lower() in USUAL for name in names):
            raise InvalidInputError(f"{path}: which column names the nodes? Write the table without its index")
        return first
    if known is not None and set(names) == set(known):
        return first
    repeats = _occur_below(lines)
    if not any(map(is_number, names)):
        is_wordy = any(not (is_number(cell) or is_blank(cell)) for row in lines.rows[1:2] for cell in row[1:])
        if is_wordy and not is_usual and (repeats or first[0] in _nodes_in(others, below=True)):
            return None
        return first if any(letter.isalnum() for name in names for letter in name) else None
    shapes = {_shape(row[0]) for row in lines.rows[1:]}
    is_node, is_first = (first[0] in _nodes_in(others, below=below) for below in (True, False))
    if is_node or (is_first and not is_usual and _shape(first[0]) in shapes):
        return None
    # Columns numbered from 0 or 1, as pandas writes them, or a node with such features.
    numbered = [str(column) for column in range(len(first))]
    if names in (numbered[:-1], numbered[1:]):
        if len(first) > 3 or is_usual:
            return first
    elif is_usual and len(set(names)) == len(names) and all(name.isdecimal() or _is_name(name) for name in names):
        if all(map(str.isdecimal, names)) or not repeats:
            return first
        return None
    elif is_usual or _shape(first[0]) in shapes or not all(map(is_number, names)):
        return None
    hint = "call the first cell 'node' if it is a heading, or name the node in the edges or labels"
    raise InvalidInputError(f"{path}: is the first line, {', '.join(first)}, a heading or a node? {hint}")


def without_heading(
    lines: Lines, nodes: Collection[str], corner: str | None, named: int, headings: list[str], hint: str = ""
) -> Lines:
    """The lines of a file whose ``named`` first cells are ``nodes``, without its heading, which is added to headings.

    The table of features may call the nodes by a name of its own, its ``corner``. A ``hint`` is for nodes that are only
    known from other lines.
    """
    path = lines.path
    if not lines.rows:
        return lines
    if lines.has_heading:
        return _in_usual_order(lines, headings)
    first, rest = lines.rows[0], [row[named:] for row in lines.rows[1:]]
    usual = {*USUAL, (corner or "").lower()}
    are_usual = all(cell.lower() in usual for cell in first[:named])
    if any(cell in nodes for cell in first[:named]):
        if are_usual and first[named:] and first[named:] not in rest and not is_number(first[-1]):
            raise InvalidInputError(f"{path}: is the first line, {', '.join(first)}, a heading or a node's?")
        return lines
    if are_usual:
        return _in_usual_order(lines, headings)
    shapes = {_shape(name) for name in nodes}
    if any(cell.lower() not in usual and _shape(cell) in shapes for cell in first[:named]):
        told = f"is {', '.join(first[:named])} a node? {hint}" if hint else f"no node is called {first[0]!r}; {_OR}"
        raise InvalidInputError(f"{lines.where(0)}: {told}")
    if first[named:] and first[named:] in rest and not hint:
        raise InvalidInputError(f"{lines.where(0)}: no node is called {first[0]!r}")
    return _in_usual_order(lines, headings)


def _in_usual_order(lines: Lines, headings: list[str]) -> Lines:
    """The lines below a heading, if its names do not say that columns are in another order than they are read in."""
    first = lines.rows[0]
    names = [name.lower() for name in first]
    roles = [0 if name in _SOURCES else 1 if name in _TARGETS else 2 if name in _CLASSES else None for name in names]
    known = [role for role in roles if role is not None]
    if (
        known != sorted(known)
        or (names[0] == "" and len(names) > 2)
        or (set(known) & {0, 1} and roles[0] is None and len(names) > 2)
    ):
        raise InvalidInputError(
            f"{lines.path} has the columns {', '.join(first)}; the nodes must come first, sources before targets"
        )
    if roles[0] == 2 and len(names) == 2 and names[1] in USUAL:
        raise InvalidInputError(f"{lines.path} has the columns {', '.join(first)}; the node must come first")
    headings.append(shown(lines.path, first))
    return lines.rest()


def shown(path: Path, heading: Sequence[str]) -> str:
    """A heading in a few words."""
    return f"{path.name} ({', '.join(heading[:3])}{', ...' if len(heading) > 3 else ''})"


def _nodes_in(others: Sequence[Path], *, below: bool) -> set[str]:
    """The first two cells of the first lines of files, or of all lines below."""
    rows = [read_lines(other).rows for other in others]
    return {cell for lines in rows for row in (lines[1:] if below else lines[:1]) for cell in row[:2]}


def _occur_below(lines: Lines) -> bool:
    """Whether a cell of the first line occurs in its column again, as words do and names of columns do not."""
    first = lines.rows[0]
    return any(cell == name for row in lines.rows[1:] for cell, name in zip(row[1:], first[1:], strict=False) if name)


def _is_name(name: str) -> bool:
    return bool(name) and not is_number(name)


def _shape(name: str) -> str:
    """How a name is made of letters and numbers."""
    return re.sub(r"[^\W\d]+", "a", re.sub(r"\d+", "0", name))
