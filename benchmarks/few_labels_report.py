"""Tables (Markdown) from the results of ``few_labels.py``.

    python benchmarks/few_labels_report.py --results out/few_labels.jsonl out/peers.jsonl --method gckm
    python benchmarks/few_labels_report.py --picture out/label_curves.png

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

import matplotlib.pyplot as plt
from make_tables import table
from store import read

Rows = list[dict[str, Any]]
Cell = tuple[str, int]
Values = dict[str, dict[int, float]]  # Of a method, of a split.
CURVES = {
    "GCKMClassifier": ("gckm",),
    "SSGC + logistic regression": ("ssgc",),
    "SGC + logistic regression": ("sgc",),
    "APPNP": ("appnp_example", "appnp_tutorial"),
    "GCN": ("gcn_example", "gcn_tutorial"),
    "GRAND": ("grand", "grand_few"),
    "Poisson learning": ("poisson", "poisson_knn"),
    "label propagation": ("label_propagation",),
}
MEASURES = ("accuracy", "balanced_accuracy", "seconds")


@dataclass(frozen=True)
class Comparison:
    """The method against the best peer of a cell.

    Attributes:
        cell: The dataset and labels per class.
        peer: The peer with the highest mean.
        own: The mean of the method on splits that both have.
        gap: The mean of the differences on these splits.
        error: Its standard error; zero for a single split.
    """

    cell: Cell
    peer: str
    own: float
    gap: float
    error: float

    @property
    def verdict(self) -> str:
        """``"best"``, ``"even"`` or ``"behind"``."""
        return "best" if self.gap >= 0 else "even" if self.gap >= -self.error else "behind"

    @property
    def is_far_behind(self) -> bool:
        """By more than two points and two standard errors."""
        return self.gap < -max(2.0, 2.0 * self.error)


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
    mean = statistics.fmean(own[split] for split in own.keys() & values[peer].keys())
    return Comparison(cell, peer, mean, statistics.fmean(gaps[peer]), error(gaps[peer]))


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


def summary_table(comparisons: list[Comparison]) -> str:
    """The method and the best peer of every cell, a line per dataset; the better one is bold."""
    found = {c.cell: c for c in comparisons}
    numbers = sorted({labels for _, labels in found})
    lines = []
    for name in dict.fromkeys(dataset for dataset, _ in found):
        line = [name]
        for labels in numbers:
            c = found.get((name, labels))
            own, peer = (f"{c.own:.1f}", f"{c.own - c.gap:.1f}") if c else ("", "")
            line.append("" if c is None else f"**{own}** / {peer}" if c.gap >= 0 else f"{own} / **{peer}**")
        lines.append(line)
    return table(["labels per class", *map(str, numbers)], lines)


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
            parts += [f"{method} / the best peer of every cell:\n", summary_table(known)]
            parts += ["Against the best peer of every cell, on shared splits, worst first:\n", verdict_table(known)]
            far = sum(c.is_far_behind for c in known)
            parts.append(f"Behind by more than two points and two standard errors: {far} cells.\n")
            short = sorted((c for c in known if c.verdict == "behind"), key=lambda c: c.gap)[:worst]
            told = ", ".join(f"{c.cell[0]} with {c.cell[1]} ({c.gap:+.1f}, {c.peer})" for c in short)
            parts.append(f"Worst shortfalls: {told or 'none'}.\n")
    parts += ["Balanced accuracy:\n", measure_table(accuracies["balanced_accuracy"])]
    parts += ["Seconds:\n", measure_table(accuracies["seconds"], bold=False)]
    return "\n".join(parts)


def draw(rows: Rows, path: Path) -> None:
    """Accuracy over labels per class, a panel per dataset, on splits that all methods of a cell have.

    Of recipes of one network, the better one in every cell.
    """
    found = cells([row for row in rows if any(row["method"] in methods for methods in CURVES.values())], "accuracy")
    shared = {cell: set.intersection(*(set(part) for part in values.values())) for cell, values in found.items()}
    datasets = list(dict.fromkeys(name for name, _ in found))
    columns = min(3, len(datasets))
    lines = -(-len(datasets) // columns)
    figure, panels = plt.subplots(
        lines, columns, figsize=(3.4 * columns, 2.7 * lines), squeeze=False, layout="constrained"
    )
    for axes in panels.flat[len(datasets) :]:
        axes.set_visible(False)
    for name, axes in zip(datasets, panels.flat, strict=False):
        for number, (label, methods) in enumerate(CURVES.items()):
            points = [
                (
                    cell[1],
                    max(statistics.fmean(values[m][split] for split in shared[cell]) for m in methods if m in values),
                )
                for cell, values in sorted(found.items())
                if cell[0] == name and shared[cell] and any(method in values for method in methods)
            ]
            own = methods == ("gckm",)
            style = {"color": "black", "lw": 2.4, "zorder": 3} if own else {"color": f"C{number}", "lw": 1.2}
            axes.plot(*zip(*points, strict=True), "o-", ms=4 if own else 3, label=label, **style) if points else None
        axes.set(title=name, xscale="log", xticks=sorted({labels for dataset, labels in found if dataset == name}))
        axes.get_xaxis().set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    for axes in panels[-1]:
        axes.set_xlabel("labels per class")
    figure.supylabel("test accuracy, %")
    known = [axes.get_legend_handles_labels() for axes in panels.flat]
    legend = {label: handle for handles, labels in known for handle, label in zip(handles, labels, strict=True)}
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", nargs="*", type=Path, default=[Path("out/few_labels.jsonl")])
    parser.add_argument("--method", default="gckm", help="the method to compare with its peers")
    parser.add_argument("--splits", type=int, help="use the first so many splits of every cell only")
    parser.add_argument("--worst", type=int, default=10, help="how many shortfalls to list")
    parser.add_argument("--picture", type=Path, help="also draw accuracies over labels per class")
    args = parser.parse_args()
    rows = [row for path in args.results for row in read(path) if args.splits is None or row["split"] < args.splits]
    print(render(rows, args.method, args.worst))
    if args.picture is not None:
        draw(rows, args.picture)


if __name__ == "__main__":
    main()
