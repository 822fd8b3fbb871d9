r"""Attention without parameters: neighbours weigh as much as a kernel says that they are alike.

.. math:: a_v = \sum_u w_{uv} x_u / \sum_u w_{uv}, \qquad w_{uv} = \hat A_{uv} \exp(-|x_u - x_v|^2 / s)

with :math:`s` a multiple of the mean squared distance of neighbours. Next to the plain mean, on the same random
settings and splits. Splits have seeds from 1000: choices rest on this experiment.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from experiments.common import CITATIONS, Experiment, Row, Task, percent, seen_by, timed
from torch_gckm.datasets import PercentageSplit, PerClassSplit
from torch_gckm.graph import Topology
from torch_gckm.graph.topology import normalized_edges
from torch_gckm.nn import GCKM, GCKMConv, ModelSettings
from torch_gckm.select import SearchResult, Space
from torch_gckm.select.criteria import Ranking
from torch_gckm.select.result import MEMBERS
from torch_gckm.select.search import ROUGH
from torch_gckm.select.trial import Evaluator, PreparedGraphs, SharedFits, quiet
from torch_gckm.train.labelling import Labelling

METHODS = {"mean": None, "attention, wide": 1.0, "attention, narrow": 0.3}
SETTINGS, FIRST_SPLIT = 96, 1000
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


class AttentiveFits(SharedFits):
    """Fits whose layers pay attention, whatever a setting says."""

    def __init__(self, scale: float, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.scale = scale

    @torch.no_grad()
    def fit(self, settings: ModelSettings) -> GCKM:
        graph, convs = self.graph(settings), list[GCKMConv]()
        model = GCKM.from_settings(settings, graph.x.size(1), self.num_classes, self.gram)
        for conv, key in zip(model.layers, settings.layer_keys(), strict=True):
            if key not in self._layers:
                conv.aggregation = KernelAttention(int(getattr(conv.aggregation, "hops", 1)), self.scale)
                conv.initialize_on(graph, convs[-1].z if convs else None)
                self._layers[key] = conv
            self._layers.move_to_end(key)
            convs.append(self._layers[key])
        return GCKM.with_readout(convs, graph, model.propagation, model.readout)


class Attention(Experiment):
    """Attention without parameters."""

    name = "attention"
    default_datasets = ("chameleon", "squirrel", "cora", "citeseer")

    def tasks(self) -> list[Task]:
        options = self.options
        return [
            {"dataset": name, "method": method, "split": FIRST_SPLIT + split}
            for name in options.datasets
            for method in options.chosen(tuple(METHODS))
            for split in range(options.seeds)
        ]

    def run(self, task: Task) -> Row:
        seed, name = task["split"], task["dataset"]
        split = PerClassSplit(LABELS, seed=seed) if name in CITATIONS else PercentageSplit(SHARE, 0.0, seed=seed)
        data = self.load(name, transform=split)
        seen, classes, scale = seen_by(data, data.train_mask), int(data.y.max()) + 1, METHODS[task["method"]]
        arguments = (PreparedGraphs(seen), classes, ROUGH)
        fits = SharedFits(*arguments) if scale is None else AttentiveFits(scale, *arguments)
        evaluator, space = (
            Evaluator(fits, Labelling.of(seen, classes)),
            Space(propagations=(("mean", 1), ("mean", 2), ("mean", 3)), powers=(0.0,)),
        )

        def tried() -> SearchResult:
            count = 12 if self.options.quick else SETTINGS
            trials = [evaluator(number, space.setting(number, seed)) for number in range(count)]
            return SearchResult(evaluator, Ranking.of("auto", evaluator.labels), trials)

        with quiet():
            result, seconds = timed(tried)
            sizes = {"best one": 1, "ensemble": MEMBERS}
            found = {key: result.ensemble(size, self_training=False).predict() for key, size in sizes.items()}
        accuracy = {key: [percent(predicted, data)] for key, predicted in found.items()}
        return {"accuracy": accuracy, "settings": len(result.ranked()), "seconds": seconds}
