"""Deeper models: accuracy and time by the number of layers, GCKM next to GCN, few labels.

A random search draws every layer's setting by itself, so the deeper the model, the rarer a draw in which all of
them are good. *Equal layers* have one setting in common, chosen from a small grid by leave-one-out accuracy.
"""

from __future__ import annotations

import itertools
import statistics
from typing import Any

from baselines.networks import gcn
from baselines.training import GRID, NetworkTrainer
from paper_numbers import DEPTH
from tables import interval, printed, table, title, unique
from torch_geometric.data import Data

from experiments.common import Experiment, Row, Rows, Task, paper_space, percent, searched, seen_by, timed
from torch_gckm import GCKM, Trainer
from torch_gckm.kernels import RBF

DEPTHS = (1, 2, 4, 8, 10)
EQUAL = "GCKM, equal layers"
METHODS = ("GCN", "GCKM", "GCKM default", EQUAL)
CHANNELS, SCALES = (16, 32, 64), (1.0, 3.0, 10.0, 30.0)


class Depth(Experiment):
    """What do accuracy and time do with the number of layers?"""

    name = "depth"
    takes = "20 min"
    keys = ("dataset", "method", "depth")
    text = """\
### Depth

Cora, few labels. *GCKM* is chosen by the cosine score, *GCKM default* by the package's criterion; *equal layers* have
one kernel and one number of channels, chosen among twelve by leave-one-out accuracy. Seconds are of one fit.
{version}

{table}
A GCN without skip connections loses much with depth, a GCKM little, unless the cosine score chooses a model that puts
almost all nodes into one class; the package's criterion passes over such models.
"""
    default_datasets = ("cora",)

    def tasks(self) -> list[Task]:
        options = self.options
        return [
            {"dataset": name, "method": method, "depth": depth, "seed": seed}
            | ({"budget": options.budget} if method in ("GCKM", "GCKM default") else {})
            for name in options.datasets
            for method in options.chosen(METHODS)
            for depth in DEPTHS
            for seed in self.seeds[: 1 if method == EQUAL else None]
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

    @classmethod
    def table(cls, rows: Rows) -> str:
        depths = sorted({row["depth"] for row in rows})
        lines = []
        for name, method in unique((row["dataset"], row["method"]) for row in rows):
            own = [row for row in rows if (row["dataset"], row["method"]) == (name, method)]
            known = DEPTH.get(method, {}) if name == "cora" else {}
            accuracies, seconds = [], []
            for depth in depths:
                part = [row for row in own if row["depth"] == depth]
                values = [value for row in part for found in row["accuracy"].values() for value in found]
                accuracies.append(interval(values) + printed(known.get(depth)) if values else "-")
                seconds.append(f"{statistics.fmean(row['seconds'] for row in part):.1f}" if part else "-")
            lines.append([f"{title(name)}, {method}", *accuracies])
            if method in ("GCN", "GCKM"):
                lines.append([f"{method}, seconds", *seconds])
        return table(["layers", *map(str, depths)], lines)
