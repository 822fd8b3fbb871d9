"""Choosing settings without validation labels: one search, its settings by several criteria, and its ensemble.

    python benchmarks/run.py selection --datasets cora --methods gckm

Two parts. ``paper``: the paper's few-label masks, three searches each. ``fresh``: random splits with as many labels of
every class as the paper's, one search each. Every search serves all of GCKM's rows: its settings ranked by the cosine
score, by leave-one-out, by the default criterion, and the ensemble of the default's best, before and after
self-training. GCN and APPNP see the same labels. Test labels are compared with predictions when all is done, and never
before. Accuracies over labels per class are those of ``few_labels``.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable

import torch
from baselines.gnn import MODELS, RECIPES, train_gnn
from scipy.stats import spearmanr
from tables import Rows, datasets_of, spread, table, title, unique
from torch import Tensor
from torch_geometric.data import Data

from experiments.common import Experiment, Row, Task, seen_by, timed
from torch_gckm.datasets import PerClassSplit
from torch_gckm.select import SearchResult, search
from torch_gckm.select.criteria import Criterion, Ranking

TOP_ONE: tuple[Criterion, ...] = ("cosine", "leave_one_out", "auto")
CORRELATED = 60  # So many settings are fitted again to compare criteria with test accuracies.
FRESH_BUDGET = 20.0
PAPER_SEEDS = 3


class Selection(Experiment):
    """What does the choice among the settings of one search give, by each criterion and as an ensemble?"""

    name = "selection"
    takes = "1 h"
    default_seeds = 10
    keys = ("part", "dataset", "method")

    def tasks(self) -> list[Task]:
        tasks: list[Task] = []
        methods = self.options.chosen(("gckm", "networks"))
        for name in self.options.datasets:
            seeds = range(1 if self.options.quick else PAPER_SEEDS)
            runs = [{"part": "paper", "dataset": name, "split": None, "seed": seed} for seed in seeds]
            if not self.options.quick:
                runs += [{"part": "fresh", "dataset": name, "split": split, "seed": 0} for split in self.seeds]
            budget = self.options.budget
            for method in methods:
                for run in runs:
                    own = min(budget, FRESH_BUDGET) if run["part"] == "fresh" else budget
                    tasks.append({**run, "method": method} | ({"budget": own} if method == "gckm" else {}))
        return tasks

    def run(self, task: Task) -> Row:
        data = self.load(task["dataset"], "few_labels")
        if task["part"] == "fresh":
            counts = torch.bincount(data.y[data.train_mask], minlength=int(data.y.max()) + 1)
            data = PerClassSplit(counts.tolist(), seed=task["split"])(data)

        def test_accuracy(predicted: Tensor) -> float:
            return 100 * float((predicted == data.y)[data.test_mask].double().mean())

        work = run_search if task["method"] == "gckm" else run_networks
        return {"train_labels": int(data.train_mask.sum()), **work(task, data, test_accuracy)}

    @staticmethod
    def describe(row: Row) -> str:
        shown = "  ".join(f"{name} {value:.1f}" for name, value in row["accuracy"].items())
        return f"{row.get('settings', 'no')} settings  {shown}"

    @classmethod
    def table(cls, rows: Rows) -> str:
        parts = []
        for part in unique(row["part"] for row in rows):
            own = [row for row in rows if row["part"] == part]
            kinds = unique(kind for row in own for kind in row["accuracy"])
            lines = []
            for name in datasets_of(own):
                found = [row["accuracy"] for row in own if row["dataset"] == name]
                values = [[accuracy[kind] for accuracy in found if kind in accuracy] for kind in kinds]
                lines.append([title(name), *(spread(part) if part else "" for part in values)])
            parts.append(table([f"{part} splits", *kinds], lines))
        correlations = [row for row in rows if "correlation" in row]
        if correlations:
            kinds = list(correlations[0]["correlation"])
            means = {
                name: [
                    statistics.fmean(row["correlation"][kind] for row in correlations if row["dataset"] == name)
                    for kind in kinds
                ]
                for name in datasets_of(correlations)
            }
            lines = [[title(name), *(f"{value:.2f}" for value in part)] for name, part in means.items()]
            parts.append(table(["rank correlation", *kinds], lines))
        return "\n".join(parts)


def run_search(task: Task, data: Data, test_accuracy: Callable[[Tensor], float]) -> Row:
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
    row: Row = {"settings": len(result), "failed": failed, "accuracy": accuracy, "seconds": seconds}
    if task["part"] == "paper" and task["seed"] == 0:
        row["correlation"] = correlations_of(result, test_accuracy)
    return row


def run_networks(task: Task, data: Data, test_accuracy: Callable[[Tensor], float]) -> Row:
    accuracy, seconds = {}, {}
    for name, recipe in itertools.product(MODELS, RECIPES):
        key, seed = f"{name}_{recipe}", task["split"] or task["seed"]
        predicted, seconds[key] = timed(lambda name=name, recipe=recipe, seed=seed: train_gnn(name, data, seed, recipe))
        accuracy[key] = test_accuracy(predicted)
    return {"accuracy": accuracy, "seconds": seconds}


def correlations_of(result: SearchResult, test_accuracy: Callable[[Tensor], float]) -> dict[str, float]:
    """Spearman's rank correlation of every criterion with the test accuracy over settings."""
    trials = [trial for trial in result.trials if trial.is_valid][:CORRELATED]
    accuracies = [test_accuracy(result.model(trial).predict()) for trial in trials]
    found = {}
    for criterion in ("cosine", "leave_one_out", "per_class_out", "auto"):
        scores = Ranking.of(criterion, result.evaluator.labels).scores(trials)
        found[criterion] = float(spearmanr(scores, accuracies).statistic)
    return found
