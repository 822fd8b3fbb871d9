"""The paper's Table 1, measured: what a method's outputs react to.

On a random directed graph with weights: other attributes, other edges, every edge turned round, other weights. A
method reacts if its outputs for the same nodes and labels change.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from baselines.networks import NETWORKS
from baselines.svm import KERNELS
from baselines.training import GRID, NetworkTrainer
from tables import table
from torch import Tensor
from torch_geometric.data import Data

from experiments.common import Experiment, Row, Rows, Task
from torch_gckm import GCKM

CHANGES = ("attributes", "structure", "directed", "weighted")
NODES, CLASSES = 60, 3


def random_graph() -> Data:
    """A directed graph with weights and a few labels."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(NODES) % CLASSES
    edges = torch.randint(NODES, (2, 6 * NODES), generator=generator)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    x = torch.rand(NODES, 8, generator=generator) + torch.nn.functional.one_hot(y, 8)
    weight = 0.5 + torch.rand(edges.size(1), generator=generator)
    return Data(x=x, edge_index=edges, edge_weight=weight, y=y, train_mask=torch.arange(NODES) < 12)


def changed(data: Data, change: str) -> Data:
    """The graph with something about it changed."""
    data = data.clone()
    generator = torch.Generator().manual_seed(1)
    if change == "attributes":
        data.x = data.x[torch.randperm(NODES, generator=generator)]
    elif change == "structure":
        data.edge_index = torch.randperm(NODES, generator=generator)[data.edge_index]
    elif change == "directed":
        data.edge_index = data.edge_index.flip(0)
    else:
        data.edge_weight = data.edge_weight[torch.randperm(data.num_edges, generator=generator)]
    return data


def kernel_machine(data: Data) -> Tensor:
    """The scores of a GCKM."""
    model = GCKM(data.num_features, (6, 4), CLASSES, aggregation="mean", gram="dense", power=0.0)
    with torch.no_grad():
        return model.initialize(data).solve(data)


def outputs(method: str) -> Callable[[Data], Tensor]:
    """What a method says about all nodes: scores, probabilities, or kernel columns of the labelled nodes."""
    if method in NETWORKS:
        return lambda data: NetworkTrainer(data, method).train(GRID[0], 0, data.train_mask, epochs=5).probabilities
    if method in KERNELS:
        labelled = torch.arange(12)
        return lambda data: torch.from_numpy(list(KERNELS[method](data, labelled))[-8:][0][1].copy())
    return kernel_machine


class Qualitative(Experiment):
    """The paper's Table 1: which parts of a graph do methods react to?"""

    name = "qualitative"
    takes = "1 min"
    keys = ("method",)
    default_datasets = ("random",)

    def tasks(self) -> list[Task]:
        return [{"method": method} for method in self.options.chosen((*KERNELS, *NETWORKS, "GCKM"))]

    def run(self, task: Task) -> Row:
        method, data = outputs(task["method"]), random_graph()
        before = method(data)
        return {change: not torch.allclose(method(changed(data, change)), before, atol=1e-5) for change in CHANGES}

    @staticmethod
    def describe(row: Row) -> str:
        return ", ".join(f"{change} {'yes' if row[change] else 'no'}" for change in CHANGES)

    @classmethod
    def table(cls, rows: Rows) -> str:
        lines = [[row["method"], *("yes" if row[key] else "no" for key in CHANGES)] for row in rows]
        return table(["reacts to", *CHANGES], lines)
