"""The experiment behind self-training: how sure, how strong, how often.

    python benchmarks/self_training.py --root DATA      # a table, and lines of JSON in out/

Searches see random labels, as many of every class as the paper's or so many per class. Their ensembles then learn
from nodes that they are sure of, with several choices of confidence, strength and rounds. Splits have seeds from
1000: their training labels are not those of another benchmark, though the graphs are the same.
"""

import argparse
import itertools
import statistics
import warnings
from pathlib import Path
from typing import Any

import torch
from experiments.common import percent, seen_by
from make_tables import table
from store import run_tasks

from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.select import search

LABELS = {
    "cora": (0, 1, 2, 4, 20),
    "citeseer": (0, 1, 2, 4, 20),
    "pubmed": (0, 4),
    "chameleon": (0, 1, 4, 20),
    "squirrel": (0,),
}
"""Labels per class; 0 for the paper's numbers."""
CHOICES = [(0.7, 10.0, 2), (0.8, 10.0, 1), (0.8, 10.0, 2), (0.8, 2.0, 2), (0.8, 100.0, 2), (0.9, 10.0, 2)]
FIRST_SPLIT = 1000


def run(task: dict[str, Any], root: str | None) -> dict[str, Any]:
    data = load(task["dataset"], root, split="few_labels")
    counts = torch.bincount(data.y[data.train_mask], minlength=int(data.y.max()) + 1)
    counts = counts if task["labels"] == 0 else torch.full_like(counts, task["labels"])
    data = PerClassSplit(counts.tolist(), seed=task["split"])(data)
    seen = seen_by(data, data.train_mask)
    result = search(seen, budget=None, max_settings=task["settings"], num_classes=int(data.y.max()) + 1, progress=False)
    accuracy = {"none": percent(result.ensemble(self_training=False).predict(), data)}
    for confidence, strength, rounds in CHOICES:
        ensemble = result.ensemble(self_training=False)
        ensemble.self_train(seen, confidence=confidence, strength=strength, rounds=rounds)
        accuracy[f"{confidence:g}, {strength:g}, {rounds}"] = percent(ensemble.predict(), data)
    return {"accuracy": accuracy}


def describe(row: dict[str, Any]) -> str:
    return "  ".join(f"[{name}] {value:.1f}" for name, value in row["accuracy"].items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--datasets", nargs="*", default=list(LABELS), choices=LABELS)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--settings", type=int, default=96, help="settings of a search")
    parser.add_argument("--out", type=Path, default=Path("out/self_training.jsonl"))
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*Sparse CSR.*")
    places = [(name, labels) for name in args.datasets for labels in LABELS[name]]
    tasks = [
        {"dataset": name, "labels": labels, "split": FIRST_SPLIT + split, "settings": args.settings}
        for split, (name, labels) in itertools.product(range(args.splits), places)
    ]
    rows = run_tasks(tasks, lambda task: run(task, args.root), args.out, describe)
    lines = []
    for name, labels in places:
        found = [row["accuracy"] for row in rows if (row["dataset"], row["labels"]) == (name, labels)]
        means = [f"{statistics.fmean(part[key] for part in found):.1f}" for key in found[0]]
        lines.append([name, str(labels or "as the paper"), *means])
    print(table(["", "labels per class", *rows[0]["accuracy"]], lines))


if __name__ == "__main__":
    main()
