"""Neighbourhood aggregation: the one place where a layer sees the graph."""

from __future__ import annotations

import warnings
from typing import Any, Literal, NamedTuple, Union

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, coalesce, scatter, to_undirected

from torch_gckm.cache import LastCall
from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels import DenseFeatures, Features, SparseFeatures, prefers_sparse, to_csr
from torch_gckm.nn.graph import Adjacency, canonical_edges

Direction = Literal["in", "out", "both"]
DIRECTIONS: tuple[Direction, ...] = ("in", "out", "both")
AggregationLike = Union[str, torch.nn.Module]
_KINDS = ("gcn", "sum", "mean", "none")


class _Propagator(NamedTuple):
    """A normalised adjacency matrix and its transpose, for the backward pass."""

    adj_t: Tensor
    adj: Tensor


class Aggregation(MessagePassing):  # type: ignore[misc]
    r"""Combine every node's features with those of its neighbours, without parameters.

    With :math:`\hat A` the weighted adjacency matrix with self-loops and
    :math:`\hat d` its degrees:

    ========  =====================================================================
    ``gcn``   :math:`a_v = \sum_u \hat A_{uv} x_u / \sqrt{\hat d_u \hat d_v}`
    ``sum``   :math:`a_v = \sum_u \hat A_{uv} x_u`
    ``mean``  :math:`a_v = \sum_u \hat A_{uv} x_u / \hat d_v`
    ``none``  :math:`a_v = x_v`
    ========  =====================================================================

    The normalised sparse matrix is built once a graph. Parallel edges add up;
    a self-loop that is given keeps its weight, all others get weight 1.

    Args:
        kind: ``"gcn"``, ``"sum"``, ``"mean"`` or ``"none"``.
        hops: How often to aggregate.
        direction: On a directed graph, listen to nodes with an edge to this one (``"in"``),
            to nodes that this one has an edge to (``"out"``), or to ``"both"``; a pair
            joined both ways then counts once, with the mean of the weights.

    Shapes:
        - **input:** features ``[n, d]``, edges ``[2, E]`` or sparse, edge weights ``[E]`` *(optional)*
        - **output:** ``[n, d]``
    """

    def __init__(self, kind: str = "gcn", hops: int = 1, direction: Direction = "in") -> None:
        super().__init__(aggr="add")
        if kind not in _KINDS:
            raise InvalidInputError(f"unknown aggregation '{kind}'; choose from {', '.join(_KINDS)}, or pass a module")
        if direction not in DIRECTIONS:
            raise InvalidInputError(f"'direction' must be 'in', 'out' or 'both', got {direction!r}")
        if hops != int(hops) or hops < 1:
            raise InvalidInputError(f"'hops' must be a positive integer, got {hops!r}")
        self.kind, self.hops, self.direction = kind, int(hops), direction
        self._cache: LastCall[_Propagator] = LastCall()
        self._sparse_cache: LastCall[Tensor] = LastCall()
        self._features_cache: LastCall[Features] = LastCall()

    def forward(self, x: Tensor, edge_index: Adjacency | None = None, edge_weight: Tensor | None = None) -> Tensor:
        """Aggregate ``hops`` times."""
        if self.kind == "none":
            return x
        if any(isinstance(t, Tensor) and t.requires_grad for t in (edge_index, edge_weight)):
            # Gradients to edge weights need the messages themselves.
            edges, weight = self.normalize(edge_index, edge_weight, x)
            for _ in range(self.hops):
                # propagate_type: (x: Tensor, edge_weight: OptTensor, adj: OptTensor)
                x = self.propagate(edges, x=x, edge_weight=weight, adj=None, size=(x.size(0), x.size(0)))
            return x
        propagator = self._propagator(x, edge_index, edge_weight)
        for _ in range(self.hops):
            x = self.propagate(propagator.adj_t, x=x, edge_weight=None, adj=propagator.adj)
        return x

    def features(self, x: Tensor, edge_index: Adjacency | None = None, edge_weight: Tensor | None = None) -> Features:
        """The aggregated features as a kernel sees them; sparse ones are aggregated without being densified."""
        if any(isinstance(t, Tensor) and t.requires_grad for t in (x, edge_index, edge_weight)):
            return self._features(x, edge_index, edge_weight)
        inputs = (x, edge_index, edge_weight)
        return self._features_cache.get(inputs, lambda: self._features(*inputs))

    def _features(self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None) -> Features:
        if x.layout == torch.strided and not prefers_sparse(x):
            return DenseFeatures(self(x, edge_index, edge_weight))
        sparse = self._sparse_cache.get((x,), lambda: to_csr(x))
        if self.kind == "none":
            return SparseFeatures(sparse)
        like = torch.empty(x.size(0), 0, dtype=x.dtype)
        return SparseFeatures(sparse, self._propagator(like, edge_index, edge_weight).adj_t, self.hops)

    def _propagator(self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None) -> _Propagator:
        inputs = (edge_index, edge_weight, x.size(0), x.dtype, x.device)
        return self._cache.get(inputs, lambda: _build(*self.normalize(edge_index, edge_weight, x), x.size(0)))

    def normalize(self, edge_index: Adjacency | None, edge_weight: Tensor | None, x: Tensor) -> tuple[Tensor, Tensor]:
        """Edges with self-loops ``[2, E']``, oriented towards the listening node, and their weights ``[E']``."""
        num_nodes = x.size(0)
        edges, weight = canonical_edges(edge_index, edge_weight, num_nodes)
        edges = edges.to(x.device)
        weight = x.new_ones(edges.size(1)) if weight is None else weight.to(x)
        edges, weight = coalesce(edges, weight, num_nodes, reduce="add")
        if self.direction == "out":
            edges = edges.flip(0)
        elif self.direction == "both":
            edges, weight = to_undirected(edges, weight, num_nodes, reduce="mean")
        edges, weight = add_remaining_self_loops(edges, weight, 1.0, num_nodes)
        if self.kind == "gcn":
            edges, weight = gcn_norm(edges, weight, num_nodes, add_self_loops=False)
        elif self.kind == "mean":
            total = scatter(weight, edges[1], dim_size=num_nodes, reduce="sum")
            weight = weight / total.masked_fill(total < 0, 0.0)[edges[1]]
        bad = ~weight.detach().isfinite()
        if bool(bad.any()):
            raise InvalidInputError(
                f"node {int(edges[1][bad][0])} has a total edge weight that is not positive, so its neighbours cannot "
                f"be averaged; drop negative weights or use aggregation='sum'"
            )
        return edges, weight

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        """Weigh a neighbour's features."""
        return edge_weight.unsqueeze(1) * x_j

    def message_and_aggregate(self, adj_t: Tensor, x: Tensor, adj: Tensor) -> Tensor:
        """One sparse matrix product."""
        result: Tensor = _SparseProduct.apply(adj_t, adj, x)
        return result

    def __repr__(self) -> str:
        return f"Aggregation({self.kind!r}, hops={self.hops}, direction={self.direction!r})"


def as_aggregation(aggregation: AggregationLike, hops: int = 1, direction: Direction = "in") -> torch.nn.Module:
    """An aggregation from its name; any module ``(x, edge_index, edge_weight) -> a`` passes through."""
    if isinstance(aggregation, str):
        return Aggregation(aggregation, hops, direction)
    if not isinstance(aggregation, torch.nn.Module):
        raise InvalidInputError(f"an aggregation is a name or a module, got {aggregation!r}")
    if hops not in (1, getattr(aggregation, "hops", 1)):
        raise InvalidInputError(f"'hops={hops}' needs an aggregation given by name; {aggregation} decides for itself")
    return aggregation


def shared_aggregations(
    kinds: list[AggregationLike], hops: list[int], directions: list[Direction]
) -> list[torch.nn.Module]:
    """The aggregations of several layers; one module for those that aggregate alike, whose matrix is built once."""
    shared: dict[tuple[AggregationLike, int, Direction], torch.nn.Module] = {}
    specs = list(zip(kinds, hops, directions, strict=True))
    for spec in specs:
        if spec not in shared:
            shared[spec] = as_aggregation(*spec)
    return [shared[spec] for spec in specs]


class _SparseProduct(torch.autograd.Function):
    """``adj_t @ x`` whose backward pass multiplies by a transpose that was made before."""

    @staticmethod
    def forward(ctx: Any, adj_t: Tensor, adj: Tensor, x: Tensor) -> Tensor:
        ctx.adj_t, ctx.adj = adj_t, adj
        return adj_t @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        return None, None, _SparseProduct.apply(ctx.adj, ctx.adj_t, grad)


def _build(edges: Tensor, weight: Tensor, num_nodes: int) -> _Propagator:
    def matrix_of(index: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*Sparse CSR tensor support is in beta.*")
            matrix = torch.sparse_coo_tensor(index, weight, (num_nodes, num_nodes), check_invariants=False)
            return matrix.coalesce().to_sparse_csr()

    return _Propagator(matrix_of(edges.flip(0)), matrix_of(edges))
