"""Tables (Markdown) and a picture from the results of ``selection.py``, next to the paper's numbers.

    python benchmarks/selection_report.py --results out/selection.jsonl --picture out/label_curves.png

Parts that were not run are left out.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from make_tables import table

Rows = list[dict[str, Any]]
METHODS = {
    "cosine": "cosine, best one",
    "leave_one_out": "leave-one-out, best one",
    "auto": "default, best one",
    "plain": "ensemble without self-training",
    "ensemble": "**ensemble**",
    "gcn_tutorial": "GCN, tutorial",
    "gcn_example": "GCN, example",
    "appnp_tutorial": "APPNP, tutorial",
    "appnp_example": "APPNP, example",
}
# The paper's few-label table: GCKM, GCKM-MV, and the best baseline.
PAPER = {
    "cora": (80.74, 81.05, 80.68),
    "citeseer": (67.53, 68.44, 67.26),
    "pubmed": (75.99, 75.32, 77.51),
    "chameleon": (30.17, 38.15, 30.07),
    "squirrel": (25.38, 29.11, 29.09),
}


def merged(rows: Rows) -> Rows:
    """One row for what was done with the same labels and seed: a search, and the networks."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        key = json.dumps([row.get(name) for name in ("part", "dataset", "split", "seed", "labels")])
        both = found.setdefault(key, {"accuracy": {}, "seconds": {}})
        for name, value in row.items():
            both[name] = {**both[name], **value} if name in ("accuracy", "seconds") else value
    return list(found.values())


def values(rows: Rows, method: str) -> list[float]:
    return [row["accuracy"][method] for row in rows if method in row["accuracy"]]


def spread(numbers: Sequence[float]) -> str:
    mean = f"{statistics.mean(numbers):.1f}"
    return f"{mean} ± {statistics.stdev(numbers):.1f}" if len(numbers) > 1 else mean


def of_part(rows: Rows, part: str) -> dict[str, Rows]:
    chosen = [row for row in rows if row["part"] == part]
    return {name: [row for row in chosen if row["dataset"] == name] for name in PAPER}


def accuracy_table(parts: dict[str, Rows], with_paper: bool) -> str:
    paper = ["paper: GCKM", "GCKM-MV", "best baseline"] if with_paper else []
    lines = []
    for name, rows in parts.items():
        if rows:
            cells = [spread(values(rows, method)) for method in METHODS]
            known = [f"{number:.2f}" for number in PAPER[name]] if with_paper else []
            lines.append([f"{name} ({rows[0]['train_labels']} labels)", *cells, *known])
    return table(["", *METHODS.values(), *paper], lines)


def paired_table(parts: dict[str, Rows]) -> str:
    """How far the ensemble is ahead of every other method on the same split: mean, and its standard error."""
    others = [method for method in METHODS if method != "ensemble"]
    lines = []
    for name, rows in parts.items():
        if len(rows) > 1:
            gaps = [[row["accuracy"]["ensemble"] - row["accuracy"][m] for row in rows] for m in others]
            cells = [f"{statistics.mean(g):+.1f} ± {statistics.stdev(g) / len(g) ** 0.5:.1f}" for g in gaps]
            lines.append([name, *cells])
    return table(["ensemble against", *(METHODS[m] for m in others)], lines)


def time_table(parts: dict[str, Rows]) -> str:
    lines = []
    for name, found in parts.items():
        rows = [row for row in found if "settings" in row]
        if rows:
            counts = statistics.mean(row["settings"] for row in rows)
            rate = statistics.mean(row["settings"] / row["seconds"]["search"] for row in rows)
            seconds = {key: statistics.mean(r["seconds"][key] for r in rows if key in r["seconds"])
                       for key in ("search", "ensemble", "gcn_tutorial", "appnp_tutorial")}  # fmt: skip
            lines.append([name, f"{counts:.0f}", f"{rate:.1f}", *(f"{value:.1f}" for value in seconds.values())])
    head = ["", "settings", "settings per second", "search, s", "fitting the ensemble, s", "GCN, s", "APPNP, s"]
    return table(head, lines)


def correlation_table(parts: dict[str, Rows]) -> str:
    lines = []
    for name, rows in parts.items():
        found = [row["correlation"].values() for row in rows if "correlation" in row]
        lines += [[name, *(f"{value:.2f}" for value in part)] for part in found]
    return table(["", "cosine", "leave-one-out", "one of each class out", "default"], lines)


def curves(rows: Rows, picture: Path) -> str:
    """A table, and a picture with one panel per dataset."""
    parts = {name: part for name, part in of_part(rows, "curve").items() if part}
    lines = []
    shown = [method for method in METHODS if not method.endswith("_example")]
    styles = {"ensemble": "-", "gcn_tutorial": "--", "appnp_tutorial": "--", "auto": ":", "cosine": ":"}
    figure, panels = plt.subplots(1, len(parts), figsize=(4.2 * len(parts), 3.4), squeeze=False, layout="constrained")
    for panel, (name, part) in zip(panels[0], parts.items(), strict=True):
        counts = sorted({row["labels"] for row in part})
        for count in counts:
            same = [row for row in part if row["labels"] == count]
            lines.append([name, str(count), *(spread(values(same, method)) for method in shown)])
        for method, style in styles.items():
            means = [statistics.mean(values([r for r in part if r["labels"] == c], method)) for c in counts]
            label = METHODS[method].replace("*", "")
            panel.plot(counts, means, style, marker="o", markersize=3, label=label, lw=2.2 if style == "-" else 1.4)
        panel.set(title=name, xlabel="labels per class", xscale="log", xticks=counts)
        panel.set_xticks(counts, [str(count) for count in counts])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("test accuracy, %")
    panels[0][0].legend(fontsize=8)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=130)
    return table(["", "labels per class", *(METHODS[method] for method in shown)], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("out/selection.jsonl"))
    parser.add_argument("--picture", type=Path, default=Path("out/label_curves.png"))
    args = parser.parse_args()
    rows = merged([json.loads(line) for line in args.results.read_text().splitlines()])
    paper, fresh = of_part(rows, "paper"), of_part(rows, "fresh")
    print("The paper's few-label splits, mean and spread over three searches, and three runs of the networks:\n")
    print(accuracy_table(paper, with_paper=True))
    print("Rank correlation of criteria with test accuracy over settings, the paper's splits:\n")
    print(correlation_table(paper))
    print("Time, the paper's splits:\n")
    print(time_table(paper))
    if any(row["part"] == "fresh" for row in rows):
        print("Random splits with as many labels, mean and spread:\n")
        print(accuracy_table(fresh, with_paper=False))
        print("The same splits, paired, mean difference and its standard error:\n")
        print(paired_table(fresh))
    if any(row["part"] == "curve" for row in rows):
        print("So many labels per class, mean and spread over random splits:\n")
        print(curves(rows, args.picture))


if __name__ == "__main__":
    main()
