"""Propagation over neighbours: the one place where a layer sees the graph."""

from typing import Union

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from torch_gckm.errors import InvalidInputError
from torch_gckm.graph.edges import Adjacency
from torch_gckm.graph.topology import DIRECTIONS, KINDS, Direction, SparseProduct, Topology, normalized_edges

PropagationLike = Union[str, torch.nn.Module]


class Propagation(MessagePassing):  # type: ignore[misc]
    r"""Combine every node's features with those of its neighbours, without parameters.

    With :math:`\hat A` the weighted adjacency matrix with self-loops and
    :math:`\hat d` its degrees:

    ========  =====================================================================
    ``gcn``   :math:`a_v = \sum_u \hat A_{uv} x_u / \sqrt{\hat d_u \hat d_v}`
    ``sum``   :math:`a_v = \sum_u \hat A_{uv} x_u`
    ``mean``  :math:`a_v = \sum_u \hat A_{uv} x_u / \hat d_v`
    ``none``  :math:`a_v = x_v`
    ========  =====================================================================

    Parallel edges add up; a self-loop that is given keeps its weight, all others get weight 1.

    Args:
        kind: ``"gcn"``, ``"sum"``, ``"mean"`` or ``"none"``.
        hops: How often to propagate.
        direction: On a directed graph, receive from nodes with an edge to this one (``"in"``),
            from nodes that this one has an edge to (``"out"``), or from ``"both"``; a pair
            joined both ways then counts once, with the mean of the weights.

    Shapes:
        - **input:** features ``[n, d]``, edges ``[2, E]`` or sparse, edge weights ``[E]`` *(optional)*
        - **output:** ``[n, d]``
    """

    def __init__(self, kind: str = "gcn", hops: int = 1, direction: Direction = "in") -> None:
        super().__init__(aggr="add")
        if kind not in KINDS:
            raise InvalidInputError(f"unknown aggregation '{kind}'; choose from {', '.join(KINDS)}, or pass a module")
        if direction not in DIRECTIONS:
            raise InvalidInputError(f"'direction' must be 'in', 'out' or 'both', got {direction!r}")
        if hops != int(hops) or hops < 1:
            raise InvalidInputError(f"'hops' must be a positive integer, got {hops!r}")
        self.kind, self.hops, self.direction = kind, int(hops), direction

    @property
    def key(self) -> tuple[str, int, Direction]:
        """What tells it from other propagations."""
        return self.kind, self.hops, self.direction

    def forward(
        self, x: Tensor, edge_index: Adjacency | Topology | None = None, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Propagate ``hops`` times."""
        if self.kind == "none":
            return x
        topology = edge_index
        if not isinstance(topology, Topology):
            topology = Topology(edge_index, edge_weight, x.size(0))
        if topology.is_tracked:  # Gradients to edge weights need the messages themselves.
            edges, weight = normalized_edges(self.kind, self.direction, topology.edges, topology.weight, x)
            for _ in range(self.hops):
                # propagate_type: (x: Tensor, edge_weight: OptTensor, adj: OptTensor)
                x = self.propagate(edges, x=x, edge_weight=weight, adj=None, size=(x.size(0), x.size(0)))
            return x
        matrix = topology.matrix(self.kind, self.direction, x)
        for _ in range(self.hops):
            x = self.propagate(matrix.adj_t, x=x, edge_weight=None, adj=matrix.adj)
        return x

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        """Weigh a neighbour's features."""
        return edge_weight.unsqueeze(1) * x_j

    def message_and_aggregate(self, adj_t: Tensor, x: Tensor, adj: Tensor) -> Tensor:
        """One sparse matrix product."""
        result: Tensor = SparseProduct.apply(adj_t, adj, x)
        return result

    def __repr__(self) -> str:
        return f"Propagation({self.kind!r}, hops={self.hops}, direction={self.direction!r})"


def as_propagation(aggregation: PropagationLike, hops: int = 1, direction: Direction = "in") -> torch.nn.Module:
    """A propagation from its name; any module ``(x, edge_index, edge_weight) -> a`` passes through."""
    if isinstance(aggregation, str):
        return Propagation(aggregation, hops, direction)
    if not isinstance(aggregation, torch.nn.Module):
        raise InvalidInputError(f"an aggregation is a name or a module, got {aggregation!r}")
    if hops not in (1, getattr(aggregation, "hops", 1)):
        raise InvalidInputError(f"'hops={hops}' needs an aggregation given by name; {aggregation} decides for itself")
    return aggregation
