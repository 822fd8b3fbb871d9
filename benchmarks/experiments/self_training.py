"""The experiment behind self-training: how sure, how strong, how often.

Searches see random labels, as many of every class as the paper's or so many per class. Their ensembles then learn
from nodes that they are sure of, with several choices of confidence, strength and rounds. Splits have seeds from
1000: their training labels are not those of another benchmark, though the graphs are the same.
"""

from __future__ import annotations

import statistics

import torch
from tables import table, title, unique

from experiments.common import Experiment, Row, Rows, Task, percent, seen_by
from torch_gckm.datasets import PerClassSplit
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
SETTINGS = 96  # Of a search.


class SelfTraining(Experiment):
    """How sure must the ensemble be of a node to learn from it, how much do such nodes weigh, how often?"""

    name = "self_training"
    takes = "1 h"
    default_datasets = tuple(LABELS)
    default_first_seed = 1000
    quick_labels = (4,)
    keys = ("dataset", "labels")

    def tasks(self) -> list[Task]:
        return [
            {"dataset": name, "labels": labels, "split": split, "settings": 12 if self.options.quick else SETTINGS}
            for split in self.seeds
            for name in self.options.datasets
            for labels in self.labels or LABELS.get(name, (0,))
        ]

    def run(self, task: Task) -> Row:
        data = self.load(task["dataset"], "few_labels")
        counts = torch.bincount(data.y[data.train_mask], minlength=int(data.y.max()) + 1)
        counts = counts if task["labels"] == 0 else torch.full_like(counts, task["labels"])
        data = PerClassSplit(counts.tolist(), seed=task["split"])(data)
        seen, classes = seen_by(data, data.train_mask), int(data.y.max()) + 1
        result = search(seen, budget=None, max_settings=task["settings"], num_classes=classes, progress=False)
        accuracy = {"none": percent(result.ensemble(self_training=False).predict(), data)}
        for confidence, strength, rounds in CHOICES:
            ensemble = result.ensemble(self_training=False)
            ensemble.self_train(seen, confidence=confidence, strength=strength, rounds=rounds)
            accuracy[f"{confidence:g}, {strength:g}, {rounds}"] = percent(ensemble.predict(), data)
        return {"accuracy": accuracy}

    @staticmethod
    def describe(row: Row) -> str:
        return "  ".join(f"[{name}] {value:.1f}" for name, value in row["accuracy"].items())

    @classmethod
    def table(cls, rows: Rows) -> str:
        lines = []
        for name, labels in unique((row["dataset"], row["labels"]) for row in rows):
            found = [row["accuracy"] for row in rows if (row["dataset"], row["labels"]) == (name, labels)]
            means = [f"{statistics.fmean(part[key] for part in found):.1f}" for key in found[0]]
            lines.append([title(name), str(labels or "as the paper"), *means])
        return table(["", "labels per class", *rows[0]["accuracy"]], lines)
