"""The edges of one graph, checked once, and the normalised adjacency matrices made of them."""

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, coalesce, scatter, to_undirected

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.graph.edges import Adjacency, canonical_edges
from torch_gckm.layouts import SPARSE_BELOW, csr_matrix, to_csr, to_scipy

Direction = Literal["in", "out", "both"]
DIRECTIONS: tuple[Direction, ...] = ("in", "out", "both")
KINDS = ("gcn", "sum", "mean", "none", "ssgc", "ppr")


class EdgeIdentity(NamedTuple):
    """The number of nodes and of edges, and a hash of the weighted edges."""

    num_nodes: int
    num_edges: int
    digest: int


def edge_identity(edges: Tensor, weight: Tensor | None, num_nodes: int) -> EdgeIdentity:
    """The identity of weighted edges; it does not depend on their order, or on the format that they were given in."""
    weight = torch.ones(edges.size(1), device=edges.device) if weight is None else weight.detach()
    keys = _mix(edges[0] * num_nodes + edges[1] + 1) + weight.double().contiguous().view(torch.int64)
    return EdgeIdentity(num_nodes, edges.size(1), int(panels.total(_mix(keys))))


def matrix_identity(x: Tensor) -> tuple[int, int]:
    """A hash of the numbers of a matrix; it depends neither on their type nor on the layout, dense or sparse."""
    digest = hashlib.blake2b(str(tuple(x.shape)).encode(), digest_size=16)
    for part in _contents(x.detach().cpu()):
        digest.update(part.contiguous().numpy().data)
    value = digest.digest()
    return int.from_bytes(value[:8], "little", signed=True), int.from_bytes(value[8:], "little", signed=True)


def _contents(x: Tensor) -> Iterator[Tensor]:
    """The numbers of a matrix by blocks of rows; where few of them are not zero, their places and values instead."""
    is_dense = x.layout == torch.strided
    sparse = x if is_dense else to_csr(x)
    if panels.count(x if is_dense else sparse.values()) < SPARSE_BELOW * x.numel():
        sparse = to_csr(sparse)
        places = torch.repeat_interleave(sparse.crow_indices().diff()).long() * x.size(1) + sparse.col_indices()
        stored = sparse.values() != 0
        yield places[stored]
        yield _shortest(sparse.values()[stored])
        return
    for block in panels.blocks(x.size(0), x.size(1)):
        yield _shortest(x[block] if is_dense else torch.from_numpy(to_scipy(sparse)[block].toarray()))


def _shortest(x: Tensor) -> Tensor:
    """Numbers in single precision if it holds them exactly, else in double; zeros lose their sign."""
    single = x.float()
    return (single if single is x or torch.equal(single.to(x.dtype), x) else x.double()) + 0.0


def _mix(keys: Tensor) -> Tensor:
    """Scatter integers over all 64 bits (the finaliser of splitmix64, wrapping on overflow)."""
    keys = (keys ^ (keys >> 30)) * -4658895280553007687
    keys = (keys ^ (keys >> 27)) * -7723592293110705685
    return keys ^ (keys >> 31)


class PropagationMatrix(NamedTuple):
    """A normalised adjacency matrix and its transpose, for the backward pass; both CSR tensors ``[n, n]``."""

    adj_t: Tensor
    adj: Tensor


def normalized_edges(
    kind: str, direction: Direction, edges: Tensor, weight: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Edges with self-loops ``[2, E']``, oriented towards the node that receives, and their weights ``[E']``."""
    num_nodes = like.size(0)
    edges = edges.to(like.device)
    weight = like.new_ones(edges.size(1)) if weight is None else weight.to(like)
    edges, weight = coalesce(edges, weight, num_nodes, reduce="add")
    if direction == "out":
        edges = edges.flip(0)
    elif direction == "both":
        edges, weight = to_undirected(edges, weight, num_nodes, reduce="mean")
    edges, weight = add_remaining_self_loops(edges, weight, 1.0, num_nodes)
    if kind in ("gcn", "mean"):
        degree = scatter(weight, edges[1], dim_size=num_nodes, reduce="sum")
        _check_degrees(degree.detach(), edges, weight.detach())
        if kind == "gcn":
            edges, weight = gcn_norm(edges, weight, num_nodes, add_self_loops=False)
        else:
            weight = weight / degree[edges[1]]
    return edges, weight


def _check_degrees(degree: Tensor, edges: Tensor, weight: Tensor) -> None:
    """Raise unless the weights of every node have a finite sum that is larger than its rounding."""
    magnitude = scatter(weight.abs(), edges[1], dim_size=degree.numel(), reduce="sum")
    bad = ~(degree > 16 * torch.finfo(degree.dtype).eps * magnitude) | ~magnitude.isfinite()
    if panels.holds_somewhere(bad):
        node = panels.first(bad)
        what = f"node {node} has a total edge weight of {float(degree[node]):.3g}, which is not a positive number"
        hint = "drop negative weights, rescale large ones, or use aggregation='sum'"
        raise InvalidInputError(f"{what}, so its neighbours cannot be averaged; {hint}")


def propagation_matrix(edges: Tensor, weight: Tensor, num_nodes: int) -> PropagationMatrix:
    """The matrix of edges that :func:`normalized_edges` returned."""
    size = (num_nodes, num_nodes)
    return PropagationMatrix(csr_matrix(edges.flip(0), weight, size), csr_matrix(edges, weight, size))


class SparseProduct(torch.autograd.Function):
    """``adj_t @ x`` whose backward pass multiplies by a transpose that was made before."""

    @staticmethod
    def forward(ctx: Any, adj_t: Tensor, adj: Tensor, x: Tensor) -> Tensor:
        ctx.adj_t, ctx.adj = adj_t, adj
        return adj_t @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        return None, None, SparseProduct.apply(ctx.adj, ctx.adj_t, grad)


class Topology:
    """Canonical edges of a graph and its propagation matrices, each of which is made once, when it is asked for.

    ``adjacency`` and ``edge_weight`` are as they were given, for propagations of the user's own; ``edges``,
    ``[2, E]``, and ``weight``, ``[E]`` or ``None``, are canonical.
    """

    def __init__(self, adjacency: Adjacency | None, edge_weight: Tensor | None, num_nodes: int) -> None:
        self.adjacency, self.edge_weight, self.num_nodes = adjacency, edge_weight, num_nodes
        self.edges, self.weight = canonical_edges(adjacency, edge_weight, num_nodes)
        self._matrices: dict[tuple[str, Direction, torch.dtype, torch.device], PropagationMatrix] = {}

    @property
    def is_tracked(self) -> bool:
        """Whether gradients flow to the edge weights."""
        return self.weight is not None and self.weight.requires_grad

    @cached_property
    def identity(self) -> EdgeIdentity:
        """What tells these edges from any others."""
        return edge_identity(self.edges, self.weight, self.num_nodes)

    def matrix(self, kind: str, direction: Direction, like: Tensor) -> PropagationMatrix:
        """The propagation matrix of a kind and direction, in the type and on the device of ``like``."""
        key = (kind, direction, like.dtype, like.device)
        if key not in self._matrices:
            edges, weight = normalized_edges(kind, direction, self.edges, self.weight, like)
            self._matrices[key] = propagation_matrix(edges, weight.detach(), self.num_nodes)
        return self._matrices[key]

    def __repr__(self) -> str:
        return f"Topology({self.num_nodes} nodes, {self.edges.size(1)} edges)"
