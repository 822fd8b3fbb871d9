"""Markdown tables and pictures from the results of ``run.py``, next to the paper's numbers.

    python benchmarks/make_tables.py --results out --pictures out
    python benchmarks/make_tables.py --results benchmarks/results --pictures docs/images --page docs/results.md

A cell is a mean over seeds, folds or splits, with the half width of its 95 % interval where there are several, and
in brackets what the paper has. Experiments that were not run are left out; what ``--quick`` cut short comes last.
In a page, the lines between ``<!-- NAME -->`` and ``<!-- end -->`` are replaced by the table of that name.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import paper_numbers as paper
from scipy import stats
from store import Row, file_of, read

Rows = list[Row]
TITLES = {"citeseer": "CiteSeer", "pubmed": "PubMed"}
ORDER = ("cora", "citeseer", "pubmed", "chameleon", "squirrel", "physics")
Part = tuple[str, str]  # A method, and which of its numbers.


def interval(values: Sequence[float]) -> str:
    """The mean and half the width of its 95 % interval."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.1f}"
    width = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.1f} ± {width:.1f}"


def printed(cell: paper.Cell | None) -> str:
    """A number of the paper in brackets."""
    if cell is None:
        return ""
    return f" ({cell[0]:.1f} ± {cell[1]:.1f})" if isinstance(cell, tuple) else f" ({cell:.1f})"


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *lines)) + "\n"


def title(name: str) -> str:
    """How a graph is called in print."""
    return TITLES.get(name, name.capitalize())


def unique(values: Sequence[Any]) -> list[Any]:
    """Each value once, in the order of their first occurrence."""
    return list(dict.fromkeys(values))


def datasets_of(rows: Rows) -> list[str]:
    """The graphs that occur, in their usual order."""
    found = unique([row["dataset"] for row in rows])
    return sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


def by_dataset(rows: Rows, numbers: dict[str, paper.Column]) -> str:
    """Methods down, graphs across; the paper's number stands beside the first of a method's numbers."""
    names = datasets_of(rows)
    parts: list[Part] = unique([(row["method"], kind) for row in rows for kind in row["accuracy"]])
    several = {method for method, _ in parts if sum(part[0] == method for part in parts) > 1}
    lines = []
    for method, kind in parts:
        first = next(part for part in parts if part[0] == method) == (method, kind)
        line = [f"{method}, {kind}" if method in several else method]
        for name in names:
            found = [row for row in rows if row["dataset"] == name and row["method"] == method]
            values = [value for row in found for value in row["accuracy"].get(kind, [])]
            known = numbers.get(name, {}).get(method.removesuffix(" authors")) if first else None
            line.append((interval(values) if values else "-") + printed(known))
        lines.append(line)
    return table(["", *map(title, names)], lines)


def by_dataset_with_times(rows: Rows, numbers: dict[str, paper.Column]) -> str:
    """Accuracies, then the seconds that choosing and training took, and how many settings a search tried."""
    names = datasets_of(rows)
    lines = []
    for method in unique([row["method"] for row in rows]):
        line = [method]
        for name in names:
            found = [row for row in rows if row["dataset"] == name and row["method"] == method]
            tried = [row["settings"] for row in found if "settings" in row]
            counts = f", {min(tried)} to {max(tried)} settings" if len(set(tried)) > 1 else ""
            counts = f", {tried[0]} settings" if len(set(tried)) == 1 else counts
            line.append(f"{statistics.fmean(row['seconds'] for row in found):.0f} s{counts}" if found else "-")
        lines.append(line)
    note = "Seconds of one such choice, training included, and what a search tried in them:"
    return f"{by_dataset(rows, numbers)}\n{note}\n\n{table(['', *map(title, names)], lines)}"


def table2(rows: Rows, pictures: Path) -> str:
    return by_dataset_with_times(rows, paper.TABLE2)


def standard(rows: Rows, pictures: Path) -> str:
    return by_dataset_with_times(rows, paper.STANDARD)


def clustering(rows: Rows, pictures: Path) -> str:
    return by_dataset(rows, paper.CLUSTERING)


def ablation(rows: Rows, pictures: Path) -> str:
    return by_dataset(rows, paper.ABLATION)


def plain(rows: Rows, pictures: Path) -> str:
    return by_dataset(rows, {})


def table3(rows: Rows, pictures: Path) -> str:
    sizes = sorted({row["val_labels"] for row in rows})
    lines = []
    for name in datasets_of(rows):
        for method in unique([row["method"] for row in rows if row["dataset"] == name]):
            line = [title(name), method]
            for size in sizes:
                chosen = [r for r in rows if (r["dataset"], r["method"], r["val_labels"]) == (name, method, size)]
                values = [value for row in chosen for value in list(row["accuracy"].values())[-1]]
                known = paper.TABLE3.get(name, {}).get(method.removesuffix(" authors"), {}).get(size)
                line.append((interval(values) if values else "-") + printed(known))
            lines.append(line)
    return table(["", "", *(f"{size} validation label{'s' * (size != 1)} per class" for size in sizes)], lines)


def depth(rows: Rows, pictures: Path) -> str:
    depths = sorted({row["depth"] for row in rows})
    lines = []
    for name in unique([row["dataset"] for row in rows]):
        for method in unique([row["method"] for row in rows]):
            own = [row for row in rows if (row["dataset"], row["method"]) == (name, method)]
            chosen = {d: [row for row in own if row["depth"] == d] for d in depths}
            known = paper.DEPTH.get(method, {}) if name == "cora" else {}
            cells = []
            for d, part in chosen.items():
                values = [value for row in part for found in row["accuracy"].values() for value in found]
                cells.append(interval(values) + printed(known.get(d)))
            lines.append([f"{title(name)}, {method}", *cells])
            seconds = [statistics.fmean(row["seconds"] for row in part) for part in chosen.values()]
            lines.append([f"{title(name)}, {method}, seconds", *(f"{value:.1f}" for value in seconds)])
    return table(["layers", *map(str, depths)], lines)


def sparsity(rows: Rows, pictures: Path) -> str:
    shares = list(rows[0]["small"])
    lines = [[title(row["dataset"]), *(f"{100 * row['small'][share]:.1f} %" for share in shares)] for row in rows]
    return table(["entries below, relative to the largest", *shares], lines)


def statistics_table(rows: Rows, pictures: Path) -> str:
    lines = []
    for row in rows:
        numbers = [row[key] for key in ("nodes", "edges", "features", "classes", "homophily")]
        known = paper.STATISTICS.get(row["dataset"])
        note = f" ({known[4]:.3f})" if known else ""
        lines.append([title(row["dataset"]), *(f"{number:,}" for number in numbers[:4]), f"{numbers[4]:.3f}{note}"])
    return table(["", "nodes", "edges", "features", "classes", "homophily"], lines)


def progress(rows: Rows, pictures: Path) -> str:
    """Pictures: accuracies and scores, the objective and the orthogonality error of every step."""
    figure, panels = plt.subplots(3, len(rows), figsize=(4.2 * len(rows), 8), squeeze=False, layout="constrained")
    curves = {"train_acc": "training", "val_acc": "validation", "test_acc": "test", "cosine": "cosine score"}
    for column, row in enumerate(rows):
        history = row["history"]
        top, middle, bottom = panels[:, column]
        for key, label in curves.items():
            top.plot(history["step"], [100 * value for value in history[key]], label=label)
        top.plot(0, 100 * history["leave_one_out"][0], "kx", label="leave-one-out, step 0")
        top.axvline(row["best_step"], color="grey", lw=0.8, ls=":")
        start = "kernel PCA" if row["start"] == "kernel_pca" else "random start"
        top.set(title=f"{title(row['dataset'])}, {start}", ylim=(0, 103))
        middle.plot(history["step"], history["loss"])
        bottom.semilogy(history["step"], history["orthogonality"])
        bottom.set_xlabel("step")
        for panel in (top, middle, bottom):
            panel.grid(alpha=0.3)
    for panel, label in zip(panels[:, 0], ("%", "objective", "orthogonality error"), strict=True):
        panel.set_ylabel(label)
    panels[0][0].legend(fontsize=8)
    pictures.mkdir(parents=True, exist_ok=True)
    figure.savefig(pictures / "training_progress.png", dpi=120)
    return "![Training progress](PICTURES/training_progress.png)\n"


def qualitative(rows: Rows, pictures: Path) -> str:
    keys = ("attributes", "structure", "directed", "weighted")
    return table(["reacts to", *keys], [[row["method"], *("yes" if row[k] else "no" for k in keys)] for row in rows])


TABLES: dict[str, Callable[[Rows, Path], str]] = {
    "table2": table2,
    "table3": table3,
    "standard": standard,
    "depth": depth,
    "clustering": clustering,
    "ablation": ablation,
    "sparsity": sparsity,
    "statistics": statistics_table,
    "progress": progress,
    "qualitative": qualitative,
    "inductive": plain,
    "subset": plain,
    "directed": plain,
    "attention": plain,
}


def main(arguments: list[str] | None = None) -> str:
    """Print all tables; returns them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("out"), help="folder of the results")
    parser.add_argument("--pictures", type=Path, default=Path("out"), help="folder of the pictures")
    parser.add_argument("--page", type=Path, help="a page to write the tables into")
    args = parser.parse_args(arguments)
    folder = args.pictures if args.page is None else os.path.relpath(args.pictures, args.page.parent)
    texts = {}
    for quick in (False, True):
        for name in TABLES:
            rows = read(file_of(args.results, name, quick))
            if rows:
                text = printed_table(name, rows, args.pictures, str(folder))
                texts[f"{name}, cut short" if quick else name] = text
    if not texts:
        raise SystemExit(
            f"no results in {args.results}: run benchmarks/run.py first, or name their folder by --results"
        )
    if args.page is not None:
        args.page.write_text(filled(args.page.read_text(), texts))
    text = "\n".join(f"## {name}\n\n{part}" for name, part in texts.items())
    print(text)
    return text


def printed_table(name: str, rows: Rows, pictures: Path, link: str | None = None) -> str:
    """The table of an experiment in Markdown, and the machine that it ran on.

    Args:
        name: The experiment.
        rows: Its results.
        pictures: The folder that pictures are written to.
        link: How the text names that folder, if not by its path.
    """
    made = TABLES[name](rows, pictures).replace("PICTURES", str(pictures) if link is None else link)
    machines = unique([row["machine"].replace(" 1 threads", " 1 thread") for row in rows])
    return f"{made}\nOn {'; '.join(machines)}.\n"


def filled(page: str, texts: dict[str, str]) -> str:
    """A page with the tables that it has places for."""
    for name, text in texts.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", flags=re.DOTALL)
        page = place.sub(lambda found, text=text: f"{found[1]}\n{text}\n{found[2]}", page)
    return page


if __name__ == "__main__":
    main()
