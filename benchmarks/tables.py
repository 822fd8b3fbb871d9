"""Markdown tables of results, next to the paper's numbers."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import paper_numbers as paper
from scipy import stats
from store import Row, is_current

Rows = list[Row]
TITLES = {"citeseer": "CiteSeer", "pubmed": "PubMed", "cora_ml": "Cora_ML", "reed98": "reed98"}
ORDER = ("cora", "citeseer", "pubmed", "photo", "cora_ml", "chameleon", "squirrel", "actor", "wisconsin", "physics")
MINUS = "\N{MINUS SIGN}"
Part = tuple[str, str]  # A method, and which of its numbers.


def interval(values: Sequence[float]) -> str:
    """The mean and half the width of its 95 % interval, by Student's distribution."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.1f}"
    width = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.1f}±{width:.1f}"


def spread(values: Sequence[float], digits: int = 1) -> str:
    """The mean and its standard error."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean}±{statistics.stdev(values) / len(values) ** 0.5:.{digits}f}" if len(values) > 1 else mean


def printed(cell: paper.Cell | None) -> str:
    """A number of the paper in brackets."""
    if cell is None:
        return ""
    return f" ({cell[0]:.1f})" if isinstance(cell, tuple) else f" ({cell:.1f})"


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    head, *body = ["| " + " | ".join(cells) + " |" for cells in (header, *lines)]
    return "\n".join([head, "|" + "---|" * len(header), *body]) + "\n"


def title(name: str) -> str:
    """How a graph is called in print."""
    return TITLES.get(name, name.capitalize())


def unique(values: Iterable[Any]) -> list[Any]:
    """Each value once, in the order of their first occurrence."""
    return list(dict.fromkeys(values))


def in_order(names: Iterable[str]) -> list[str]:
    """Graphs, each once, in their usual order."""
    return sorted(unique(names), key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


def datasets_of(rows: Rows) -> list[str]:
    """The graphs that occur, in their usual order."""
    return in_order(row["dataset"] for row in rows)


def by_dataset(rows: Rows, numbers: dict[str, paper.Column]) -> str:
    """Methods down, graphs across; the paper's number stands beside the first of a method's numbers."""
    names = datasets_of(rows)
    parts: list[Part] = unique((row["method"], kind) for row in rows for kind in row["accuracy"])
    several = {method for method, _ in parts if sum(part[0] == method for part in parts) > 1}
    lines = []
    for method, kind in parts:
        first = next(part for part in parts if part[0] == method) == (method, kind)
        line = [f"{method}, {kind}" if method in several else method]
        for name in names:
            values = values_of(rows, kind, dataset=name, method=method)
            known = numbers.get(name, {}).get(method.removesuffix(" authors")) if first else None
            line.append((interval(values) if values else "-") + printed(known))
        lines.append(line)
    return table(["", *map(title, names)], lines)


def values_of(rows: Rows, kind: str, **wanted: Any) -> list[float]:
    """Accuracies of a kind, of the rows with these entries."""
    found = [row for row in rows if wanted.items() <= _plain(row).items()]
    return [value for row in found for value in row["accuracy"].get(kind, [])]


def seconds_by_dataset(rows: Rows) -> str:
    """The seconds of a choice of settings, training included, and how many settings a search tried."""
    names = datasets_of(rows)
    lines = []
    for method in unique(row["method"] for row in rows):
        line = [method]
        for name in names:
            found = [row for row in rows if row["dataset"] == name and row["method"] == method]
            tried = [row["settings"] for row in found if "settings" in row]
            counts = f", {min(tried)}-{max(tried)} settings" if tried else ""
            line.append(f"{statistics.fmean(row['seconds'] for row in found):.0f} s{counts}" if found else "-")
        lines.append(line)
    return table(["seconds", *map(title, names)], lines)


def newest(rows: Rows, keys: Sequence[str] = ("dataset", "method")) -> Rows:
    """The rows of this version, and those of other ones for what this version has none of.

    Args:
        rows: The rows of an experiment.
        keys: The entries that say what was measured; of one cell of a table, all rows are of one version.
    """
    current = {tuple(row.get(key) for key in keys) for row in rows if is_current(row)}
    return [row for row in rows if is_current(row) or tuple(row.get(key) for key in keys) not in current]


def measured_with(rows: Rows) -> str:
    """A sentence about rows that another version measured; nothing if there are none."""
    old = [row for row in rows if not is_current(row)]
    if not old:
        return ""
    versions = unique(".".join(row["version"].split(".")[:2]) for row in old)
    exceptions = in_current_only(rows)
    but = f", but for {', '.join(exceptions)}" if exceptions else ""
    return f"Measured with version {' and '.join(versions)}{but}."


def in_current_only(rows: Rows) -> list[str]:
    """The methods that have rows of this version only."""
    old = {row.get("method") for row in rows if not is_current(row)}
    return unique(str(row["method"]) for row in rows if is_current(row) and row.get("method") not in old)


def machines_of(rows: Rows) -> str:
    """The machines of rows, in words."""
    found = [f"{row['cpu']}, {row['threads']} threads" if "cpu" in row else row["machine"] for row in rows if
             {"cpu", "machine"} & row.keys()]  # fmt: skip
    return "; ".join(re.sub(r"\b1 threads", "1 thread", name) for name in unique(found)) or "unknown"


def _plain(row: Row) -> Row:
    return {key: value for key, value in row.items() if not isinstance(value, dict | list)}
