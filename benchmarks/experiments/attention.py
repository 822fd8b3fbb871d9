r"""Attention without parameters: neighbours weigh as much as a kernel says that they are alike.

.. math:: a_v = \sum_u w_{uv} x_u / \sum_u w_{uv}, \qquad w_{uv} = \hat A_{uv} \exp(-|x_u - x_v|^2 / s)

with :math:`s` a multiple of the mean squared distance of neighbours. Next to the plain mean, on the same random
settings and splits. Splits have seeds from 1000: choices rest on this experiment.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from tables import datasets_of, title, values_of
from torch import Tensor
from torch_geometric.utils import scatter

from experiments.common import CITATIONS, Experiment, Row, Rows, Task, percent, seen_by, timed
from torch_gckm.datasets import PercentageSplit, PerClassSplit
from torch_gckm.graph import Topology
from torch_gckm.graph.topology import normalized_edges
from torch_gckm.select import Space, search

METHODS = {"mean": None, "attention, wide": 1.0, "attention, narrow": 0.3}
SETTINGS, MEMBERS = 96, 20  # The rows of version 0.1 had as many.
LABELS, SHARE = 10, 0.025
_BLOCK = 20_000  # Edges at a time.


class KernelAttention(torch.nn.Module):
    """Aggregates with weights from a kernel between neighbours.

    Args:
        hops: How often.
        scale: The kernel's squared bandwidth, relative to the mean squared distance of neighbours.
    """

    def __init__(self, hops: int, scale: float) -> None:
        super().__init__()
        self.hops, self.scale = hops, scale

    def __repr__(self) -> str:
        return f"KernelAttention({self.hops}, {self.scale:g})"

    def forward(self, x: Tensor, edge_index: Any = None, edge_weight: Tensor | None = None) -> Tensor:
        dense = x if x.layout == torch.strided else x.to_dense()
        weights = self._weights(dense, Topology(edge_index, edge_weight, x.size(0)))
        for _ in range(self.hops):
            dense = weights @ dense
        return dense

    @torch.no_grad()
    def _weights(self, x: Tensor, topology: Topology) -> Tensor:
        (source, target), weight, _ = normalized_edges("sum", "in", topology.edges, topology.weight, x)
        parts = zip(source.split(_BLOCK), target.split(_BLOCK), strict=True)
        distance = torch.cat([(x[a] - x[b]).square().sum(dim=1) for a, b in parts])
        weight = weight * torch.exp(-distance / (self.scale * distance[source != target].mean()))
        weight = weight / scatter(weight, target, dim_size=x.size(0), reduce="sum")[target]
        size = (x.size(0), x.size(0))
        matrix = torch.sparse_coo_tensor(torch.stack([target, source]), weight, size, check_invariants=False)
        return matrix.coalesce().to_sparse_csr()


class Attention(Experiment):
    """Does attention without parameters, the paper's future work, gain anything?"""

    name = "attention"
    takes = "25 min"
    default_datasets = ("chameleon", "squirrel", "cora", "citeseer")
    default_first_seed = 1000
    text = """\
**Attention** without parameters, the paper's future work: neighbours weigh by a Gaussian kernel of the features.
Ensembles change by {changes} points against the plain mean. {version} So the package has none; a search takes
[propagations of your own](settings.md#propagations-of-your-own).
"""

    def tasks(self) -> list[Task]:
        return [
            {"dataset": name, "method": method, "split": split}
            for name in self.options.datasets
            for method in self.options.chosen(tuple(METHODS))
            for split in self.seeds
        ]

    def run(self, task: Task) -> Row:
        seed, name = task["split"], task["dataset"]
        split = PerClassSplit(LABELS, seed=seed) if name in CITATIONS else PercentageSplit(SHARE, 0.0, seed=seed)
        data = self.load(name, transform=split)
        seen, classes, scale = seen_by(data, data.train_mask), int(data.y.max()) + 1, METHODS[task["method"]]
        kinds = [("mean", hops) if scale is None else KernelAttention(hops, scale) for hops in (1, 2, 3)]
        space = Space(propagations=tuple(kinds), powers=(0.0,))
        count = 12 if self.options.quick else SETTINGS
        result, seconds = timed(
            lambda: search(seen, space, None, seed=seed, max_settings=count, num_classes=classes, progress=False)
        )
        sizes = {"best one": 1, "ensemble": MEMBERS}
        found = {key: result.ensemble(size, self_training=False).predict() for key, size in sizes.items()}
        accuracy = {key: [percent(predicted, data)] for key, predicted in found.items()}
        return {"accuracy": accuracy, "settings": len(result.ranked()), "seconds": seconds}

    @classmethod
    def facts(cls, rows: Rows) -> dict[str, Any]:
        def ensemble(name: str, method: str) -> float:
            return statistics.fmean(values_of(rows, "ensemble", dataset=name, method=method))

        gains = {name: ensemble(name, "attention, wide") - ensemble(name, "mean") for name in datasets_of(rows)}
        return {"changes": ", ".join(f"{gain:+.1f} ({title(name)})" for name, gain in gains.items())}
