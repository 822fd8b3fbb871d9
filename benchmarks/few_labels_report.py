"""Tables (Markdown) from the results of ``few_labels.py``.

    python benchmarks/few_labels_report.py --results out/few_labels.jsonl out/peers.jsonl --method gckm

A cell is a dataset with so many labels per class. Methods are compared on the splits that they share. In a cell the
method is best, or even with the best peer if the mean of paired differences is no worse than minus its standard
error, or behind.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from make_tables import table
from store import read

Rows = list[dict[str, Any]]
Cell = tuple[str, int]
Values = dict[str, dict[int, float]]  # Of a method, of a split.
MEASURES = ("accuracy", "balanced_accuracy", "seconds")


@dataclass(frozen=True)
class Comparison:
    """The method against the best peer of a cell.

    Attributes:
        cell: The dataset and labels per class.
        peer: The peer with the highest mean.
        gap: The mean of the differences on splits that both have.
        error: Its standard error; zero for a single split.
    """

    cell: Cell
    peer: str
    gap: float
    error: float

    @property
    def verdict(self) -> str:
        """``"best"``, ``"even"`` or ``"behind"``."""
        return "best" if self.gap >= 0 else "even" if self.gap >= -self.error else "behind"


def cells(rows: Rows, measure: str) -> dict[Cell, Values]:
    found: dict[Cell, Values] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[row["dataset"], row["labels"]][row["method"]][row["split"]] = row[measure]
    return dict(found)


def error(numbers: list[float]) -> float:
    """The standard error of a mean."""
    return statistics.stdev(numbers) / len(numbers) ** 0.5 if len(numbers) > 1 else 0.0


def compare(cell: Cell, values: Values, method: str) -> Comparison | None:
    """Against the best of other methods but variants of the same (``gckm``, ``gckm_2s``); ``None`` without any.

    Methods may have fewer splits than others: which peer is best is judged by differences on shared splits, too.
    """
    own = values.get(method, {})
    gaps = {
        name: [own[split] - part[split] for split in sorted(own.keys() & part.keys())]
        for name, part in values.items()
        if name.split("_")[0] != method.split("_")[0]
    }
    gaps = {name: part for name, part in gaps.items() if part}
    if not gaps:
        return None
    peer = min(gaps, key=lambda name: statistics.fmean(gaps[name]))
    return Comparison(cell, peer, statistics.fmean(gaps[peer]), error(gaps[peer]))


def measure_table(found: dict[Cell, Values], digits: int = 1, bold: bool = True) -> str:
    """Means and standard errors; a mean over fewer splits than the most of its cell says over how many."""
    methods = list(dict.fromkeys(method for values in found.values() for method in values))
    lines = []
    for (name, labels), values in found.items():
        means = {method: statistics.fmean(part.values()) for method, part in values.items()}
        best, most = max(means.values()), max(len(part) for part in values.values())
        line = [name, str(labels)]
        for method in methods:
            if method not in values:
                line.append("")
                continue
            part = list(values[method].values())
            text = f"{means[method]:.{digits}f} ± {error(part):.{digits}f}"
            text = f"**{text}**" if bold and means[method] == best else text
            line.append(text if len(part) == most else f"{text} ({len(part)})")
        lines.append(line)
    return table(["", "labels per class", *methods], lines)


def verdict_table(comparisons: list[Comparison]) -> str:
    lines = [
        [c.cell[0], str(c.cell[1]), c.peer, f"{c.gap:+.1f} ± {c.error:.1f}", c.verdict]
        for c in sorted(comparisons, key=lambda c: c.gap)
    ]
    return table(["", "labels per class", "best peer", "difference", "verdict"], lines)


def render(rows: Rows, method: str = "gckm", worst: int = 10) -> str:
    """The report.

    Args:
        rows: The results.
        method: The method to compare with the others.
        worst: How many of the worst shortfalls to list.
    """
    rows = sorted(rows, key=lambda row: row["labels"])
    order = list(dict.fromkeys(row["dataset"] for row in rows))
    rows.sort(key=lambda row: order.index(row["dataset"]))
    accuracies = {measure: cells(rows, measure) for measure in MEASURES}
    parts = ["Test accuracy, mean and standard error over splits (in brackets: over how many, if fewer):\n"]
    parts.append(measure_table(accuracies["accuracy"]))
    for measure in MEASURES[:2]:
        compared = [compare(cell, values, method) for cell, values in accuracies[measure].items()]
        known = [c for c in compared if c is not None]
        if not known:
            continue
        count = {word: sum(c.verdict == word for c in known) for word in ("best", "even", "behind")}
        good = count["best"] + count["even"]
        parts.append(
            f"By {measure.replace('_', ' ')}, {method} is best in {count['best']} of {len(known)} cells, best or "
            f"within one standard error of the best peer in {good}, and behind in {count['behind']}.\n"
        )
        if measure == "accuracy":
            parts += ["Against the best peer of every cell, on shared splits, worst first:\n", verdict_table(known)]
            short = sorted((c for c in known if c.verdict == "behind"), key=lambda c: c.gap)[:worst]
            told = ", ".join(f"{c.cell[0]} with {c.cell[1]} ({c.gap:+.1f}, {c.peer})" for c in short)
            parts.append(f"Worst shortfalls: {told or 'none'}.\n")
    parts += ["Balanced accuracy:\n", measure_table(accuracies["balanced_accuracy"])]
    parts += ["Seconds:\n", measure_table(accuracies["seconds"], bold=False)]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", nargs="*", type=Path, default=[Path("out/few_labels.jsonl")])
    parser.add_argument("--method", default="gckm", help="the method to compare with its peers")
    parser.add_argument("--worst", type=int, default=10, help="how many shortfalls to list")
    args = parser.parse_args()
    print(render([row for path in args.results for row in read(path)], args.method, args.worst))


if __name__ == "__main__":
    main()
