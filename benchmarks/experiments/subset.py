"""What training on some of the nodes costs: the paper's route to large graphs, next to low-rank kernel matrices.

The model is fitted to the graph between a share of the nodes, the labelled ones among them, and extended to the
others. One default model, no search.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from tables import datasets_of, title, values_of

from experiments.common import Experiment, Row, Rows, Task, percent, timed
from torch_gckm import GCKM, Trainer
from torch_gckm.datasets import PerClassSplit

SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)
CHANNELS = (64, 16)


class Subset(Experiment):
    """What does training on a share of the nodes cost?"""

    name = "subset"
    takes = "5 min"
    default_seeds = 5
    text = """\
**Training on part of the nodes** (`Trainer(model, nodes=share)`, the paper's way to large graphs; one default model)
leaves out edges, too. With half of the nodes, and all of them, the accuracy is {shares}. {version}
"""
    default_datasets = ("cora", "pubmed", "physics")

    def tasks(self) -> list[Task]:
        options = self.options
        return [
            {"dataset": name, "method": f"{100 * share:g} % of the nodes", "share": share, "seed": seed}
            for name in options.datasets
            for share in SHARES
            for seed in self.seeds
        ]

    def run(self, task: Task) -> Row:
        split = None if task["dataset"] == "physics" else "few_labels"
        transform = PerClassSplit(20, seed=task["seed"]) if split is None else None
        data = self.load(task["dataset"], split, transform)
        model = GCKM(data.num_features, CHANNELS, int(data.y.max()) + 1, power=0.0)
        nodes = None if task["share"] == 1.0 else task["share"]
        trainer = Trainer(model, steps=0, nodes=nodes, seed=task["seed"], progress=False)
        _, fit = timed(lambda: trainer.fit(data))
        with torch.no_grad():
            predicted, extend = timed(lambda: model.predict(data))
        return {"accuracy": {"all nodes": [percent(predicted, data)]}, "seconds": fit + extend, "fit_seconds": fit}

    @classmethod
    def facts(cls, rows: Rows) -> dict[str, Any]:
        def mean(name: str, share: float) -> str:
            return f"{statistics.fmean(values_of(rows, 'all nodes', dataset=name, share=share)):.1f}"

        return {
            "shares": ", ".join(
                f"{mean(name, 0.5)} and {mean(name, 1.0)} on {title(name)}" for name in datasets_of(rows)
            )
        }
