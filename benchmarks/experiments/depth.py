"""Deeper models: accuracy and time by the number of layers, GCKM next to GCN, few labels."""

from __future__ import annotations

from baselines.networks import gcn
from baselines.training import GRID, NetworkTrainer

from experiments.common import Experiment, Row, Task, paper_space, percent, searched, seen_by, timed

DEPTHS = (1, 2, 4, 8, 10)
METHODS = ("GCN", "GCKM", "GCKM default")


class Depth(Experiment):
    """The number of layers."""

    name = "depth"
    default_datasets = ("cora",)

    def tasks(self) -> list[Task]:
        options = self.options
        return [
            {"dataset": name, "method": method, "depth": depth, "seed": seed}
            | ({} if method == "GCN" else {"budget": options.budget})
            for name in options.datasets
            for method in options.chosen(METHODS)
            for depth in DEPTHS
            for seed in range(options.seeds)
        ]

    def run(self, task: Task) -> Row:
        name, depth, seed = task["dataset"], task["depth"], task["seed"]
        data = self.load(name, "few_labels")
        if task["method"] == "GCN":
            trainer = NetworkTrainer(data, lambda *given: gcn(*given, depth=depth))
            epochs = 20 if self.options.quick else 200
            run, seconds = timed(lambda: trainer.train(GRID[0], seed, data.train_mask, epochs=epochs))
            return {"accuracy": {"all labels": [percent(run.predicted, data)]}, "seconds": seconds}
        is_paper = task["method"] == "GCKM"
        space, criterion = paper_space(name, view=False, depth=(depth,)), "cosine" if is_paper else "auto"
        result = searched(seen_by(data, data.train_mask), data, task["budget"], seed, space, criterion)
        model, seconds = timed(lambda: result.model())
        return {
            "accuracy": {"best one": [percent(model.predict(), data)]},
            "settings": len(result),
            "seconds": seconds,  # Of one fit, as the paper counts.
        }
