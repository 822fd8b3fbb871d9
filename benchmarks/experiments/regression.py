"""Real targets and several labels per node, from a few labelled nodes, next to other methods.

    python benchmarks/run.py regression --datasets diabetes --labels 20 --first-seed 1000

The targets of the real graph, PubMed, are three columns of its TF-IDF features, which are then not among the features.
Digits (the ink in the lower rows of an image, from the upper ones), diabetes and Friedman's function, both of
scikit-learn, are joined to their 10 nearest rows. Each row of the results has R², the mean over the columns, on all
nodes without a label. Peers choose their settings by cross-validation on the labelled nodes. What was left open in
``GCKMRegressor`` was decided on draws of the labels with seeds from 1000; the results are of seeds 0 to 4.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from tables import table, unique
from torch_geometric.data import Data

from experiments import regression_tasks as peers
from experiments.common import Experiment, Row, Rows, Task
from torch_gckm.estimators import GCKMClassifier, GCKMRegressor, label_metrics


def gckm(data: Data) -> tuple[Any, Row]:
    """Predictions, and how many errors are below twice the spread that is returned with them."""
    values, spread = GCKMRegressor(budget=None, progress=False, workers=1).fit(data).predict(return_std=True)
    test = ~data.train_mask
    within = ((values - data.y).abs() <= 2 * spread)[test].double().mean()
    return values.double().numpy(), {"within_two": float(within)}


METHODS: dict[str, Callable[[Data], Any]] = {
    "gckm": gckm,
    "kernel_ridge": peers.kernel_ridge,
    "kernel_ridge_propagated": lambda data: peers.kernel_ridge(data, peers.propagated(data)),
    "nearest": peers.nearest,
    "forest": peers.forest,
    "gcn": peers.gcn,
}
SEVERAL = ("gckm", "logistic", "logistic_propagated")


@cache
def _graph(name: str, root: str | None) -> Data:
    return peers.digits_with_attributes() if name == "attributes" else peers.graph(name, root)


class Regression(Experiment):
    """How well are real targets and several labels per node predicted, next to other methods?"""

    name = "regression"
    takes = "30 min"
    default_datasets = (*peers.GRAPHS, "attributes")
    default_seeds = 5
    default_labels = (20, 50, 100)
    quick_labels = (20,)
    keys = ("graph", "method", "labels")
    text = """\
**Real targets.** `GCKMRegressor` has the highest mean R² of {methods} methods in {best} of {cells} cells (four tables
and graphs, 20 to 100 known targets): [targets](targets.md#measured).
"""

    def tasks(self) -> list[Task]:
        chosen = self.options.chosen(tuple(unique([*METHODS, *SEVERAL])))
        return [
            {"graph": name, "labels": count, "seed": seed, "method": method}
            for name in self.options.datasets
            if name in self.default_datasets
            for count in self.labels
            for seed in self.seeds
            for method in (SEVERAL if name == "attributes" else METHODS)
            if method in chosen
        ]

    def run(self, task: Task) -> Row:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run(task, self.options.root)

    @staticmethod
    def describe(row: Row) -> str:
        return " ".join(f"{row[name]:.3f}" for name in ("r2", "macro_f1", "seconds") if name in row)

    @classmethod
    def table(cls, rows: Rows) -> str:
        values = [
            value for value in ("r2", "macro_f1", "micro_f1", "average_precision") if any(value in r for r in rows)
        ]
        return "\n".join(f"{value}:\n\n{of_value(rows, value)}" for value in values)

    @classmethod
    def facts(cls, rows: Rows) -> dict[str, Any]:
        rows = [row for row in rows if "r2" in row]
        cells = unique((row["graph"], row["labels"]) for row in rows)
        best = [max(METHODS, key=lambda method, cell=cell: mean(rows, cell, method, "r2")) for cell in cells]
        return {"methods": len(METHODS), "best": best.count("gckm"), "cells": len(cells)}


def mean(rows: Rows, cell: tuple[str, int], method: str, value: str) -> float:
    return float(np.mean([row[value] for row in of_cell(rows, cell, method) if value in row] or [-np.inf]))


def of_cell(rows: Rows, cell: tuple[str, int], method: str) -> Rows:
    return [row for row in rows if (row["graph"], row["labels"], row["method"]) == (*cell, method)]


def of_value(rows: Rows, value: str) -> str:
    """Means and spreads over the draws, a line per graph and number of labels."""
    rows = [row for row in rows if value in row]
    methods = unique(row["method"] for row in rows)
    lines = []
    for cell in unique((row["graph"], row["labels"]) for row in rows):
        line = [cell[0], str(cell[1])]
        for method in methods:
            found = [row[value] for row in of_cell(rows, cell, method)]
            line.append(f"{np.mean(found):.3f} ± {np.std(found):.3f}" if found else "")
        lines.append(line)
    return table(["graph", "labels", *methods], lines)


def run(task: Task, root: str | None) -> Row:
    """One method on one draw of the labels."""
    data = peers.with_labels(_graph(task["graph"], root), task["labels"], task["seed"])
    test, start, more = ~data.train_mask, time.perf_counter(), {}
    if task["graph"] == "attributes":
        if task["method"] == "gckm":
            classifier = GCKMClassifier(budget=None, progress=False, workers=1).fit(data)
            found = classifier.predict(), classifier.predict_proba()
        else:
            rows = peers.propagated(data) if task["method"].endswith("propagated") else data.x.double().numpy()
            classes, probabilities = peers.one_vs_rest(data, rows)
            found = torch.from_numpy(classes), torch.from_numpy(probabilities)
        measured = label_metrics(data.y[test], *(part[test] for part in found))
        return {**measured, "seconds": time.perf_counter() - start}
    predicted = METHODS[task["method"]](data)
    if isinstance(predicted, tuple):
        predicted, more = predicted
    return {"r2": peers.r2(predicted, data.y, test), **more, "seconds": time.perf_counter() - start}
