"""Choosing settings without validation labels: criteria and the ensemble, next to GCN and APPNP.

    python benchmarks/selection.py --root DATA                  # everything; interrupt and repeat at will
    python benchmarks/selection.py --parts paper --datasets cora
    python benchmarks/selection_report.py                       # tables and pictures from the results

Three parts. ``paper``: the paper's few-label masks, three searches each. ``fresh``: random splits
with as many labels of every class as the paper's, one search each. ``curve``: so many labels
per class at random. Every search serves all of GCKM's rows: its settings ranked by the cosine score, by
leave-one-out, by the default criterion, and the ensemble of the default's best, before and after self-training.
The networks see the same labels. Test labels are compared with predictions when all is done, and never before.

Each finished task, a search or the networks of a split, is a line of the results file; tasks that are there
already are skipped.
"""

import argparse
import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from baselines.gnn import MODELS, RECIPES, train_gnn
from experiments.common import seen_by, timed
from scipy.stats import spearmanr
from store import run_tasks
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.select import SearchResult, search
from torch_gckm.select.criteria import Criterion, Ranking

DATASETS = ("cora", "citeseer", "pubmed", "chameleon", "squirrel")
CURVE_DATASETS = ("cora", "citeseer", "pubmed")
LABELS_PER_CLASS = (1, 2, 4, 10, 20)
TOP_ONE: tuple[Criterion, ...] = ("cosine", "leave_one_out", "auto")
SLOWER = {"pubmed": 3.0}  # Budgets of curves are longer there: a setting takes more time.
CORRELATED = 60  # So many settings are fitted again to compare criteria with test accuracies.


def tasks(args: argparse.Namespace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in args.datasets:
        runs = [{"part": "paper", "dataset": name, "split": None, "seed": seed} for seed in range(3)]
        runs += [{"part": "fresh", "dataset": name, "split": split, "seed": 0} for split in range(args.splits)]
        if name in CURVE_DATASETS:
            places = itertools.product(LABELS_PER_CLASS, range(args.curve_splits))
            runs += [{"part": "curve", "dataset": name, "split": s, "seed": 0, "labels": k} for k, s in places]
        curve = args.curve_budget * SLOWER.get(name, 1.0)
        budgets = {"paper": args.budget, "fresh": args.fresh_budget, "curve": curve}
        found += [{**run, "method": "gckm", "budget": budgets[run["part"]]} for run in runs]
        found += [{**run, "method": "networks"} for run in runs]
    return [task for task in found if task["part"] in args.parts and task["method"] in args.methods]


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

    def test_accuracy(predicted: Tensor) -> float:
        return 100 * float((predicted == data.y)[data.test_mask].double().mean())

    row = run_search(task, data, test_accuracy) if task["method"] == "gckm" else run_networks(task, data, test_accuracy)
    return {"train_labels": int(data.train_mask.sum()), **row}


def run_search(task: dict[str, Any], data: Data, test_accuracy: Callable[[Tensor], float]) -> dict[str, Any]:
    seen, classes, seconds = seen_by(data, data.train_mask), int(data.y.max()) + 1, {}
    accuracy: dict[str, float] = {}
    result, seconds["search"] = timed(
        lambda: search(seen, budget=task["budget"], seed=task["seed"], num_classes=classes, progress=False)
    )
    for criterion in TOP_ONE:
        best = Ranking.of(criterion, result.evaluator.labels).order(result.trials)[0]
        accuracy[criterion] = test_accuracy(result.model(best).predict())
    ensemble, plain = timed(lambda: result.ensemble(self_training=False))
    accuracy["plain"] = test_accuracy(ensemble.predict())
    ensemble, more = timed(lambda: ensemble.self_train(seen))
    accuracy["ensemble"], seconds["ensemble"] = test_accuracy(ensemble.predict()), plain + more
    failed = sum(not trial.is_valid for trial in result.trials)
    row = {"settings": len(result), "failed": failed, "accuracy": accuracy, "seconds": seconds}
    if task["part"] == "paper" and task["seed"] == 0:
        row["correlation"] = correlations(result, test_accuracy)
    return row


def run_networks(task: dict[str, Any], data: Data, test_accuracy: Callable[[Tensor], float]) -> dict[str, Any]:
    accuracy, seconds = {}, {}
    for name, recipe in itertools.product(MODELS, ("tutorial",) if task["part"] == "curve" else RECIPES):
        key, seed = f"{name}_{recipe}", task["split"] or task["seed"]
        predicted, seconds[key] = timed(lambda name=name, recipe=recipe, seed=seed: train_gnn(name, data, seed, recipe))
        accuracy[key] = test_accuracy(predicted)
    return {"accuracy": accuracy, "seconds": seconds}


def correlations(result: SearchResult, test_accuracy: Callable[[Tensor], float]) -> dict[str, float]:
    """Spearman's rank correlation of every criterion with the test accuracy over settings."""
    trials = [trial for trial in result.trials if trial.is_valid][:CORRELATED]
    accuracies = [test_accuracy(result.model(trial).predict()) for trial in trials]
    found = {}
    for criterion in ("cosine", "leave_one_out", "per_class_out", "auto"):
        scores = Ranking.of(criterion, result.evaluator.labels).scores(trials)
        found[criterion] = float(spearmanr(scores, accuracies).statistic)
    return found


def describe(row: dict[str, Any]) -> str:
    shown = "  ".join(f"{name} {value:.1f}" for name, value in row["accuracy"].items())
    return f"{row.get('settings', 'no')} settings  {shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--parts", nargs="*", default=["paper", "fresh", "curve"], choices=["paper", "fresh", "curve"])
    parser.add_argument("--methods", nargs="*", default=["gckm", "networks"], choices=["gckm", "networks"])
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a search on the paper's split")
    parser.add_argument("--fresh-budget", type=float, default=20.0, help="seconds of a search on fresh splits")
    parser.add_argument("--curve-budget", type=float, default=8.0, help="seconds of a curve's search; thrice on PubMed")
    parser.add_argument("--splits", type=int, default=10, help="fresh splits")
    parser.add_argument("--curve-splits", type=int, default=3, help="splits for each number of labels per class")
    parser.add_argument("--out", type=Path, default=Path("out/selection.jsonl"))
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*Sparse CSR.*|.*sparse.*")
    run_tasks(tasks(args), lambda task: run(task, args.root), args.out, describe)


if __name__ == "__main__":
    main()
