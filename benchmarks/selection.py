"""Choosing settings without validation labels: criteria and the ensemble, next to GCN and APPNP.

    python benchmarks/selection.py --root DATA                  # everything; interrupt and repeat at will
    python benchmarks/selection.py --parts paper --datasets cora
    python benchmarks/selection_report.py                       # tables and pictures from the results

Three parts. ``paper``: the paper's few-label masks, three searches each. ``fresh``: random splits
with as many labels of every class as the paper's, one search each. ``curve``: so many labels a
class at random. Every search serves all of GCKM's rows: its settings ranked by the cosine score, by
leave-one-out, by the default criterion, and the ensemble of the default's best. The networks see the
same labels. Test labels are compared with predictions when all is done, and never before.

Each finished task is a line of the results file; tasks that are there already are skipped.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from baselines.gnn import MODELS, RECIPES, train_gnn
from experiments.common import seen_by
from scipy.stats import spearmanr
from store import run_tasks
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.select import SearchResult, search
from torch_gckm.select.criteria import Ranking

DATASETS = ("cora", "citeseer", "pubmed", "chameleon", "squirrel")
CURVE_DATASETS = ("cora", "citeseer", "pubmed")
LABELS_A_CLASS = (1, 2, 4, 10, 20)
TOP_ONE = ("cosine", "leave_one_out", "auto")
CORRELATED = 60  # So many settings are fitted again to compare criteria with test accuracies.


def tasks(args: argparse.Namespace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in args.datasets:
        found += [{"part": "paper", "dataset": name, "split": None, "seed": s, "budget": args.budget} for s in range(3)]
        found += [
            {"part": "fresh", "dataset": name, "split": s, "seed": 0, "budget": args.fresh_budget}
            for s in range(args.splits)
        ]
        found += [
            {"part": "curve", "dataset": name, "split": s, "seed": 0, "budget": args.curve_budget, "labels": labels}
            for labels in LABELS_A_CLASS
            for s in range(args.curve_splits)
            if name in CURVE_DATASETS
        ]
    return [task for task in found if task["part"] in args.parts]


def data_of(task: dict[str, Any], root: str | None) -> Data:
    data = load(task["dataset"], root, split="few_labels")
    counts = torch.bincount(data.y[data.train_mask], minlength=int(data.y.max()) + 1)
    if task["part"] == "paper":
        return data
    if task["part"] == "curve":
        counts = torch.full_like(counts, task["labels"])
    return PerClassSplit(counts.tolist(), seed=task["split"])(data)


def run(task: dict[str, Any], root: str | None) -> dict[str, Any]:
    data = data_of(task, root)
    seen, classes = seen_by(data, data.train_mask), int(data.y.max()) + 1
    accuracy, seconds = {}, {}

    def test_accuracy(predicted: Tensor) -> float:
        return 100 * float((predicted == data.y)[data.test_mask].double().mean())

    start = time.perf_counter()
    result = search(seen, budget=task["budget"], seed=task["seed"], num_classes=classes, progress=False)
    seconds["search"] = time.perf_counter() - start
    for criterion in TOP_ONE:
        best = Ranking.of(criterion, result.evaluator).order(result.trials)[0]
        accuracy[criterion] = test_accuracy(result.model(best).predict())
    start = time.perf_counter()
    accuracy["ensemble"] = test_accuracy(result.ensemble().predict())
    seconds["ensemble"] = time.perf_counter() - start
    for name in MODELS:
        for recipe in ("tutorial",) if task["part"] == "curve" else RECIPES:
            start, key = time.perf_counter(), f"{name}_{recipe}"
            accuracy[key] = test_accuracy(train_gnn(name, data, task["split"] or task["seed"], recipe))
            seconds[key] = time.perf_counter() - start
    row = {
        **task,
        "train_labels": int(data.train_mask.sum()),
        "settings": len(result),
        "failed": sum(not trial.is_valid for trial in result.trials),
        "accuracy": accuracy,
        "seconds": seconds,
    }
    if task["part"] == "paper" and task["seed"] == 0:
        row["correlation"] = correlations(result, test_accuracy)
    return row


def correlations(result: SearchResult, test_accuracy: Any) -> dict[str, float]:
    """Spearman's rank correlation of every criterion with the test accuracy over settings."""
    trials = [trial for trial in result.trials if trial.is_valid][:CORRELATED]
    accuracies = [test_accuracy(result.model(trial).predict()) for trial in trials]
    found = {}
    for criterion in ("cosine", "leave_one_out", "per_class_out", "auto"):
        scores = Ranking.of(criterion, result.evaluator).scores(trials)
        found[criterion] = float(spearmanr(scores, accuracies).statistic)
    return found


def describe(row: dict[str, Any]) -> str:
    shown = "  ".join(f"{name} {value:.1f}" for name, value in row["accuracy"].items())
    return f"{row['settings']} settings  {shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--parts", nargs="*", default=["paper", "fresh", "curve"], choices=["paper", "fresh", "curve"])
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a search on the paper's split")
    parser.add_argument("--fresh-budget", type=float, default=20.0, help="seconds of a search on fresh splits")
    parser.add_argument("--curve-budget", type=float, default=8.0, help="seconds of a search of a curve")
    parser.add_argument("--splits", type=int, default=10, help="fresh splits")
    parser.add_argument("--curve-splits", type=int, default=3, help="splits for each number of labels a class")
    parser.add_argument("--out", type=Path, default=Path("out/selection.jsonl"))
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*Sparse CSR.*|.*sparse.*")
    run_tasks(tasks(args), lambda task: run(task, args.root), args.out, describe)


if __name__ == "__main__":
    main()
