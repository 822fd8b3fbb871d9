"""Deeper models: accuracy and time by the number of layers, GCKM next to GCN, few labels.

A random search draws every layer's setting by itself, so the deeper the model, the rarer a draw in which all of
them are good. *Equal layers* have one setting in common, chosen from a small grid by leave-one-out accuracy.
"""

from __future__ import annotations

import itertools
from typing import Any

from baselines.networks import gcn
from baselines.training import GRID, NetworkTrainer
from torch_geometric.data import Data

from experiments.common import Experiment, Row, Task, paper_space, percent, searched, seen_by, timed
from torch_gckm import GCKM, Trainer
from torch_gckm.kernels import RBF

DEPTHS = (1, 2, 4, 8, 10)
EQUAL = "GCKM, equal layers"
METHODS = ("GCN", "GCKM", "GCKM default", EQUAL)
CHANNELS, SCALES = (16, 32, 64), (1.0, 3.0, 10.0, 30.0)


class Depth(Experiment):
    """The number of layers."""

    name = "depth"
    default_datasets = ("cora",)

    def tasks(self) -> list[Task]:
        options = self.options
        return [
            {"dataset": name, "method": method, "depth": depth, "seed": seed}
            | ({"budget": options.budget} if method in ("GCKM", "GCKM default") else {})
            for name in options.datasets
            for method in options.chosen(METHODS)
            for depth in DEPTHS
            for seed in range(1 if method == EQUAL else options.seeds)
        ]

    def run(self, task: Task) -> Row:
        name, depth, seed = task["dataset"], task["depth"], task["seed"]
        data = self.load(name, "few_labels")
        if task["method"] == "GCN":
            trainer = NetworkTrainer(data, lambda *given: gcn(*given, depth=depth))
            epochs = 20 if self.options.quick else 200
            run, seconds = timed(lambda: trainer.train(GRID[0], seed, data.train_mask, epochs=epochs))
            return {"accuracy": {"all labels": [percent(run.predicted, data)]}, "seconds": seconds}
        if task["method"] == EQUAL:
            return self._equal_layers(data, depth)
        is_paper = task["method"] == "GCKM"
        space, criterion = paper_space(name, view=False, depth=(depth,)), "cosine" if is_paper else "auto"
        result = searched(seen_by(data, data.train_mask), data, task["budget"], seed, space, criterion)
        model, seconds = timed(lambda: result.model())
        return {
            "accuracy": {"best one": [percent(model.predict(), data)]},
            "settings": len(result),
            "seconds": seconds,  # Of one fit, as the paper counts.
        }

    def _equal_layers(self, data: Data, depth: int) -> Row:
        best: dict[str, Any] = {"leave_one_out": -1.0}
        grid = itertools.product(CHANNELS, SCALES)
        for width, scale in itertools.islice(grid, 1 if self.options.quick else None):
            kernels = [*(RBF(scale=scale) for _ in range(depth)), RBF()]
            eta = [*(1.0 for _ in range(depth)), 1.05]
            model = GCKM(data.num_features, (width,) * depth, int(data.y.max()) + 1, kernels, eta=eta, power=0.0)
            history, seconds = timed(lambda model=model: Trainer(model, steps=0, progress=False).fit(data))
            record = history.best
            if record.leave_one_out > best["leave_one_out"]:
                best = {
                    "leave_one_out": record.leave_one_out,
                    "accuracy": {"best one": [100 * record.test_acc]},
                    "setting": {"channels": width, "scale": scale},
                    "seconds": seconds,
                }
        return best
