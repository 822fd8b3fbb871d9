"""Nodes that come later: a fifth of the nodes, with their edges, is not there when the model is fitted.

The fitted model then sees the whole graph, and is judged on the nodes that are new to it; next to a fit to the whole
graph with the same labels, and to networks that are trained on the smaller graph and applied to the whole one.
"""

from __future__ import annotations

import torch
from baselines.networks import NETWORKS
from baselines.sparse import features
from baselines.training import GRID, NetworkTrainer
from tables import by_dataset
from torch import Tensor
from torch_geometric.data import Data

from experiments.common import CITATIONS, Experiment, Row, Rows, Task, searched, seen_by, timed

METHODS = ("GCN", "GraphSAGE", "GCKM default")
SHARE = 0.2
EPOCHS = 200


def hide_nodes(data: Data, seed: int) -> tuple[Data, Tensor]:
    """The graph without some of its unlabelled nodes, and which nodes are left."""
    free = (~data.train_mask).nonzero().view(-1)
    order = torch.randperm(free.numel(), generator=torch.Generator().manual_seed(seed))
    left = torch.ones(data.num_nodes, dtype=torch.bool)
    left[free[order[: round(SHARE * data.num_nodes)]]] = False
    return data.subgraph(left), left


class Inductive(Experiment):
    """How well are nodes classified that come later?"""

    name = "inductive"
    takes = "30 min"
    default_seeds = 5
    text = """\
### Nodes that come later

A fifth of the nodes, none of them labelled, is taken out with its edges. *New nodes* is the accuracy on them of a
model fitted to the rest, *fitted to all* that of a model fitted to all nodes. Few-label splits, five choices of the
nodes. {version}

{table}"""
    default_datasets = CITATIONS

    def tasks(self) -> list[Task]:
        options = self.options
        return [
            {"dataset": name, "method": method, "seed": seed}
            | ({"budget": options.budget} if method == "GCKM default" else {})
            for name in options.datasets
            for method in options.chosen(METHODS)
            for seed in self.seeds
        ]

    def run(self, task: Task) -> Row:
        data = self.load(task["dataset"], "few_labels")
        small, left = hide_nodes(data, task["seed"])

        def on_new(predicted: Tensor) -> list[float]:
            return [100 * float((predicted == data.y)[~left].double().mean())]

        if task["method"] in NETWORKS:
            epochs = 10 if self.options.quick else EPOCHS
            predictions, seconds = timed(lambda: [network(task, part, data, epochs) for part in (small, data)])
            found = {"new nodes": on_new(predictions[0]), "fitted to all": on_new(predictions[1])}
            return {"accuracy": found, "seconds": seconds}
        found, times = {}, {}
        for key, part in (("new nodes", small), ("fitted to all", data)):
            seen = seen_by(part, part.train_mask)
            ensemble = searched(seen, data, task["budget"], task["seed"], None, "auto").ensemble()
            predicted, times[key] = timed(lambda ensemble=ensemble: ensemble.predict(data))
            found[key] = on_new(predicted)
        return {"accuracy": found, "seconds": times["new nodes"]}

    @classmethod
    def page_table(cls, rows: Rows) -> str:
        return by_dataset([row for row in rows if row["method"] != "GraphSAGE"], cls.printed)


def network(task: Task, part: Data, data: Data, epochs: int) -> Tensor:
    """The classes that a network, trained on a part of the graph, gives to all nodes."""
    trained = NetworkTrainer(part, task["method"]).train(GRID[0], task["seed"], part.train_mask, epochs=epochs).network
    channels = (data.num_features, GRID[0].hidden, int(data.y.max()) + 1)
    whole = NETWORKS[task["method"]](data, channels, GRID[0].drop)
    whole.load_state_dict(trained.state_dict())
    with torch.no_grad():
        return whole.eval()(features(data, GRID[0].unit_rows)).argmax(dim=1)
