"""What there is to say of a graph: sizes, weights, components, and what the neighbours of nodes are predicted to be."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, is_undirected, to_scipy_sparse_matrix

from torch_gckm.graph import canonical_edges, graph_of
from torch_gckm.layouts import to_csr

_NAMED = 3  # Classes of neighbours that are named, the most frequent ones.


@dataclass(frozen=True)
class GraphView:
    """A graph as a page describes it."""

    x: Tensor
    ends: Tensor  # Edges without self-loops, [2, E].
    loops: int
    weight: Tensor | None  # Of all edges.

    @classmethod
    def of(cls, data: Data) -> Self:
        """From the graph that a model was fitted on."""
        x, adjacency, weight = graph_of(data)
        edges, weight = canonical_edges(adjacency, weight, x.size(0))
        is_loop = edges[0] == edges[1]
        return cls(x, edges[:, ~is_loop].cpu(), int(is_loop.sum()), None if weight is None else weight.cpu())

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.x.size(0)

    @cached_property
    def joined(self) -> Tensor:
        """Every node with each that it is joined to, whatever the direction, once, ``[2, E]``."""
        both = torch.cat([self.ends, self.ends.flip(0)], dim=1)
        return coalesce(both, num_nodes=self.num_nodes)

    @property
    def isolated(self) -> int:
        """The number of nodes without an edge to another."""
        return self.num_nodes - self.ends.unique().numel()

    def alike(self, predicted: Tensor) -> float:
        """The share of edges whose ends are predicted alike; NaN without edges."""
        starts, stops = predicted.cpu()[self.ends]
        return float((starts == stops).double().mean())

    def facts(self) -> list[list[str]]:
        """Rows of a table."""
        count, total = self.num_nodes, self.ends.size(1)
        is_mutual = is_undirected(self.ends, num_nodes=count)
        out, into = (int(torch.bincount(side, minlength=count).max()) for side in self.ends)
        number = f"{total // 2:,} undirected" if is_mutual else f"{total:,} directed"
        weights = "none"
        if self.weight is not None and self.weight.numel():
            weights = f"{float(self.weight.min()):.3g} to {float(self.weight.max()):.3g}"
        stored = self.x if self.x.layout == torch.strided else to_csr(self.x).values()
        filled = int(torch.count_nonzero(stored)) / max(self.x.numel(), 1)
        components, place = connected_components(to_scipy_sparse_matrix(self.ends, num_nodes=count), directed=False)
        return [
            ["nodes", f"{count:,}"],
            ["edges", number + (f", {self.loops:,} self-loops" if self.loops else "")],
            ["edge weights", weights],
            ["mean degree", f"{total / max(count, 1):.2f}" + ("" if is_mutual else " in, and out")],
            ["largest degree", f"{out:,}" if is_mutual else f"{into:,} in, {out:,} out"],
            ["isolated nodes", f"{self.isolated:,}"],
            ["components", f"{components:,}; the largest has {np.bincount(place).max():,} nodes"],
            ["features", f"{self.x.size(1):,}, {100 * filled:.3g} % of them not zero"],
        ]

    def neighbours_of(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Pairs of a place in ``nodes`` and a neighbour of that node."""
        place = torch.full((self.num_nodes,), -1)
        place[nodes] = torch.arange(nodes.numel())
        starts, stops = self.joined
        used = place[starts] >= 0
        return place[starts[used]], stops[used]

    def neighbour_classes(self, nodes: Tensor, predicted: Tensor, names: Sequence[str]) -> list[str]:
        """How often each class is predicted among the neighbours of nodes, such as ``"12 x cat, 3 x dog"``."""
        place, near = self.neighbours_of(nodes)
        pairs, counts = torch.unique(place * len(names) + predicted.cpu()[near], return_counts=True)
        found: list[list[tuple[int, int]]] = [[] for _ in range(nodes.numel())]
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            row, number = divmod(pair, len(names))
            found[row].append((-count, number))
        return [_counted(sorted(row), names) for row in found]

    def neighbour_labels(self, nodes: Tensor, predicted: Tensor, names: Sequence[str]) -> list[str]:
        """The same with several labels per node, ``[n, L]``."""
        place, near = self.neighbours_of(nodes)
        counts = torch.zeros(nodes.numel(), len(names), dtype=torch.long).index_add_(0, place, predicted.long()[near])
        rows = [[(-count, number) for number, count in enumerate(row) if count] for row in counts.tolist()]
        return [_counted(sorted(row), names) for row in rows]

    def neighbour_means(self, nodes: Tensor, values: Tensor) -> list[str]:
        """The mean prediction ``[n]`` among the neighbours of nodes, such as ``"7, mean 3.2"``."""
        place, near = self.neighbours_of(nodes)
        count = torch.bincount(place, minlength=nodes.numel())
        total = torch.zeros(nodes.numel(), dtype=torch.float64).index_add_(0, place, values.double().cpu()[near])
        means = (total / count).tolist()
        return [f"{n}, mean {m:.3g}" if n else "none" for n, m in zip(count.tolist(), means, strict=True)]


def _counted(counts: Sequence[tuple[int, int]], names: Sequence[str]) -> str:
    """Numbers of neighbours, given as negative ones, with the names of their classes."""
    words = [f"{-count:,} x {names[number]}" for count, number in counts[:_NAMED]]
    rest = -sum(count for count, _ in counts[_NAMED:])
    return ", ".join([*words, f"{rest:,} others"] if rest else words) or "none"
