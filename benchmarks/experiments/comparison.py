"""A method with few labels against its peers.

A cell is a dataset with so many labels per class. Methods are compared on the splits that they share. In a cell the
method is best, or even with the best peer if the mean of paired differences is no worse than minus its standard
error, or behind.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from tables import Rows, in_order, table, title

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
BEST_PEERS = tuple(name for label, names in CURVES.items() if label != "GCKMClassifier" for name in names)


@dataclass(frozen=True)
class Comparison:
    """The method against the best peer of a cell.

    Attributes:
        cell: The dataset and labels per class.
        peer: The peer with the highest mean.
        own: The mean of the method on splits that both have.
        gap: The mean of the differences on these splits.
        error: Its standard error; zero for a single split.
        splits: These splits.
    """

    cell: Cell
    peer: str
    own: float
    gap: float
    error: float
    splits: tuple[int, ...] = ()

    @property
    def verdict(self) -> str:
        """``"best"``, ``"even"`` or ``"behind"``."""
        return "best" if self.gap >= 0 else "even" if self.gap >= -self.error else "behind"

    @property
    def is_far_behind(self) -> bool:
        """By more than two points and two standard errors."""
        return self.gap < -max(2.0, 2.0 * self.error)


def cells(rows: Rows, measure: str = "accuracy") -> dict[Cell, Values]:
    found: dict[Cell, Values] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[row["dataset"], row["labels"]][row["method"]][row["split"]] = row[measure]
    return dict(found)


def error(numbers: list[float]) -> float:
    """The standard error of a mean."""
    return statistics.stdev(numbers) / len(numbers) ** 0.5 if len(numbers) > 1 else 0.0


def compare(cell: Cell, values: Values, method: str, peers: tuple[str, ...] = ()) -> Comparison | None:
    """Against the best of some peers, by default all but variants of the same (``gckm``, ``gckm_2s``).

    Methods may have fewer splits than others: which peer is best is judged by differences on shared splits, too.
    ``None`` without any.
    """
    own = values.get(method, {})
    gaps = {
        name: [own[split] - part[split] for split in sorted(own.keys() & part.keys())]
        for name, part in values.items()
        if (name in peers if peers else name.split("_")[0] != method.split("_")[0])
    }
    gaps = {name: part for name, part in gaps.items() if part}
    if not gaps:
        return None
    peer = min(gaps, key=lambda name: statistics.fmean(gaps[name]))
    shared = tuple(sorted(own.keys() & values[peer].keys()))
    mean = statistics.fmean(own[split] for split in shared)
    return Comparison(cell, peer, mean, statistics.fmean(gaps[peer]), error(gaps[peer]), shared)


def compared(rows: Rows, method: str, peers: tuple[str, ...] = ()) -> list[Comparison]:
    """The method in all cells that it shares with a peer."""
    found = [compare(cell, values, method, peers) for cell, values in cells(rows).items()]
    return [comparison for comparison in found if comparison is not None]


def least_lead(rows: Rows, method: str, labels: int) -> float:
    """How far the method is ahead of the best single peer, in the mean over graphs, on shared splits."""
    of_labels = {cell: values for cell, values in cells(rows).items() if cell[1] == labels and method in values}
    leads = []
    for peer in BEST_PEERS:
        found = [compare(cell, values, method, (peer,)) for cell, values in of_labels.items()]
        known = [comparison.gap for comparison in found if comparison is not None]
        leads += [statistics.fmean(known)] if len(known) == len(of_labels) else []
    return min(leads, default=float("nan"))


def summary_table(rows: Rows, method: str, peers: tuple[str, ...] = ()) -> str:
    """The method and the best peer of every cell, a line per dataset; the better one is bold."""
    found = {c.cell: c for c in compared(rows, method, peers)}
    numbers = sorted({labels for _, labels in found})
    lines = []
    for name in in_order(dataset for dataset, _ in found):
        line = [title(name)]
        for labels in numbers:
            c = found.get((name, labels))
            own, peer = (f"{c.own:.1f}", f"{c.own - c.gap:.1f}") if c else ("", "")
            line.append("" if c is None else f"**{own}** / {peer}" if c.gap >= 0 else f"{own} / **{peer}**")
        lines.append(line)
    return table([f"{method} / best peer, labels per class", *map(str, numbers)], lines)


def draw(rows: Rows, path: Path) -> None:
    """Accuracy over labels per class, a panel per dataset, on splits that all methods of a cell have.

    Of recipes of one network, the better one in every cell.
    """
    found = cells([row for row in rows if any(row["method"] in methods for methods in CURVES.values())])
    shared = {cell: set.intersection(*(set(part) for part in values.values())) for cell, values in found.items()}
    datasets = in_order(name for name, _ in found)
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
        axes.set(
            title=title(name), xscale="log", xticks=sorted({labels for dataset, labels in found if dataset == name})
        )
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
    plt.close(figure)
