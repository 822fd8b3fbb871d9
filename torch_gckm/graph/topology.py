"""The edges of one graph, checked once, and the normalised adjacency matrices made of them."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, scatter

from torch_gckm import panels
from torch_gckm.blocks import blocks
from torch_gckm.errors import InvalidInputError
from torch_gckm.graph.edges import Adjacency, canonical_edges
from torch_gckm.graph.halo import Halo, local_numbers, sent_to_owners
from torch_gckm.graph.weights import AS_GIVEN, Weighting
from torch_gckm.layouts import SPARSE_BELOW, csr_matrix, to_csr, to_scipy, with_short_indices
from torch_gckm.partition import WHOLE, Partition

Direction = Literal["in", "out", "both"]
DIRECTIONS: tuple[Direction, ...] = ("in", "out", "both")
KINDS = ("gcn", "sum", "mean", "none", "ssgc", "ppr")


class EdgeIdentity(NamedTuple):
    """The number of nodes and of edges, and a hash of the weighted edges."""

    num_nodes: int
    num_edges: int
    digest: int


def edge_identity(edges: Tensor, weight: Tensor | None, num_nodes: int, over: Partition = WHOLE) -> EdgeIdentity:
    """The identity of weighted edges; it does not depend on their order, or on the format that they were given in."""

    def part(block: slice) -> Tensor:
        source, target = edges[:, block]
        given = torch.ones(len(source), device=edges.device) if weight is None else weight[block].detach()
        keys = _mix(source * num_nodes + target + 1) + given.double().contiguous().view(torch.int64)
        return _mix(keys).sum()

    count = int(panels.total(torch.tensor(edges.size(1)), over))
    parts = [torch.zeros((), dtype=torch.long, device=edges.device), *map(part, blocks(edges.size(1), 1))]
    return EdgeIdentity(num_nodes, count, int(panels.accumulate(parts, over)))


def matrix_identity(x: Tensor, over: Partition = WHOLE) -> tuple[int, int]:
    """A hash of the numbers of a matrix; it depends neither on their type nor on the layout, dense or sparse.

    A sum over rows, so that it does not depend on who has which of them either.
    """
    x, rows = x.detach().cpu(), over.all_rows(x.size(0))
    columns = _mix(torch.arange(1, x.size(1) + 1)) | 1
    hashes = torch.cat([torch.zeros(0, dtype=torch.long), *_row_hashes(x, columns)])
    numbers = torch.arange(over.start + 1, over.start + 1 + x.size(0))
    first, second = (panels.total(_mix(hashes + _mix(factor * numbers)), over) for factor in (1, -3))
    return int(first + rows), int(second + x.size(1))


def _row_hashes(x: Tensor, columns: Tensor) -> Iterator[Tensor]:
    """A hash of the numbers of every row, by blocks of rows; zeros add nothing to it."""
    is_dense = x.layout == torch.strided
    sparse = x if is_dense else to_csr(x)
    if is_dense and panels.count(x) >= SPARSE_BELOW * x.numel():
        for block in blocks(x.size(0), x.size(1)):
            yield (_mix(_bits(x[block])) * columns).sum(dim=1)
        return
    sparse = to_csr(sparse)
    lengths, parts = sparse.crow_indices().diff(), _mix(_bits(sparse.values())) * columns[sparse.col_indices()]
    yield panels.sums_by(torch.repeat_interleave(lengths), parts, x.size(0))


def _bits(x: Tensor) -> Tensor:
    """Numbers in double precision as integers; zeros lose their sign."""
    return (x.double() + 0.0).view(torch.int64)


def _mix(keys: Tensor) -> Tensor:
    """Scatter integers over all 64 bits (the finaliser of splitmix64, wrapping on overflow)."""
    keys = (keys ^ (keys >> 30)) * -4658895280553007687
    keys = (keys ^ (keys >> 27)) * -7723592293110705685
    return keys ^ (keys >> 31)


class NormalizedEdges(NamedTuple):
    """Edges with self-loops, ``[2, E']``, towards the node that receives, and their weights, ``[E']``.

    Nodes are named by their rows in what the halo extends; without one, by their numbers.
    """

    edges: Tensor
    weight: Tensor
    halo: Halo


class PropagationMatrix:
    """A normalised adjacency matrix as a CSR tensor ``[n, n + h]``, for rows that the halo extends by ``h`` others."""

    def __init__(self, normalized: NormalizedEdges, num_rows: int, typical_rows: int) -> None:
        edges, weight, self.halo = normalized
        self.typical_rows = typical_rows  # Of all processes, which must agree on what depends on it.
        size = (num_rows, num_rows + self.halo.sources.numel())
        self.adj_t = with_short_indices(csr_matrix(edges.flip(0), weight.detach(), size))

    @cached_property
    def adj(self) -> Tensor:
        """The transpose, for the backward pass."""
        rows = torch.repeat_interleave(self.adj_t.crow_indices().diff())
        index = torch.stack([self.adj_t.col_indices().long(), rows.long()])
        size = (self.adj_t.size(1), self.adj_t.size(0))
        return with_short_indices(csr_matrix(index, self.adj_t.values(), size))

    def __matmul__(self, x: Any) -> Any:
        """The product with rows, differentiable, or with a CSR matrix of SciPy."""
        if isinstance(x, Tensor):
            return SparseProduct.apply(self, self.halo.extended(x))
        return to_scipy(self.adj_t) @ self.halo.extended_sparse(x)


def normalized_edges(
    kind: str, direction: Direction, edges: Tensor, weight: Tensor | None, like: Tensor, over: Partition = WHOLE
) -> NormalizedEdges:
    """Edges with self-loops, oriented towards the node that receives, and their weights."""
    own, num_nodes = like.size(0), over.all_rows(like.size(0))
    edges = edges.to(like.device)
    weight = like.new_ones(edges.size(1)) if weight is None else weight.to(like)
    edges, weight = coalesce(edges, weight, num_nodes, reduce="add")
    if direction != "in":
        source, target, returned = sent_to_owners(edges[0], [edges[1], edges[0], weight], over)
        back = torch.stack([source, target])
        if direction == "out":
            edges, weight = back, returned
        else:
            edges, weight = torch.cat([edges, back], dim=1), torch.cat([weight, returned])
            edges, weight = coalesce(edges, weight, num_nodes, reduce="mean")
    edges, weight = _with_self_loops(edges, weight, over.start, own)
    columns, halo = local_numbers(edges[0], own, over)
    rows = edges[1] - over.start
    if kind in ("gcn", "mean"):
        degree = scatter(weight, rows, dim_size=own, reduce="sum")
        _check_degrees(degree.detach(), rows, weight.detach(), over.start)
        if kind == "gcn":
            root = degree.pow(-0.5)
            weight = halo.extended(root)[columns] * weight * root[rows]
        else:
            weight = weight / degree[rows]
    return NormalizedEdges(torch.stack([columns, rows]), weight, halo)


def _with_self_loops(edges: Tensor, weight: Tensor, start: int, own: int) -> tuple[Tensor, Tensor]:
    """Edges with a self-loop of every one of the ``own`` nodes from ``start`` on: of weight 1, unless there is one."""
    is_loop = edges[0] == edges[1]
    nodes = torch.arange(start, start + own, device=edges.device)
    of_loops = weight.new_ones(own).index_copy(0, edges[0][is_loop] - start, weight[is_loop])
    others = edges[:, ~is_loop]
    return torch.cat([others, nodes.expand(2, -1)], dim=1), torch.cat([weight[~is_loop], of_loops])


def _check_degrees(degree: Tensor, rows: Tensor, weight: Tensor, start: int) -> None:
    """Raise unless the weights of every node have a finite sum that is larger than its rounding."""
    magnitude = scatter(weight.abs(), rows, dim_size=degree.numel(), reduce="sum")
    bad = ~(degree > 16 * torch.finfo(degree.dtype).eps * magnitude) | ~magnitude.isfinite()
    if panels.holds_somewhere(bad):
        row = panels.first(bad)
        what = f"node {start + row} has a total edge weight of {float(degree[row]):.3g}, which is not a positive number"
        hint = "drop negative weights, rescale large ones, or use aggregation='sum'"
        raise InvalidInputError(f"{what}, so its neighbours cannot be averaged; {hint}")


class SparseProduct(torch.autograd.Function):
    """A product with a propagation matrix, whose backward pass multiplies by its transpose."""

    @staticmethod
    def forward(ctx: Any, matrix: PropagationMatrix, x: Tensor, transposed: bool = False) -> Tensor:
        ctx.matrix, ctx.transposed = matrix, transposed
        return (matrix.adj if transposed else matrix.adj_t) @ x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        return None, SparseProduct.apply(ctx.matrix, grads[0], not ctx.transposed), None


class Topology:
    """Canonical edges of a graph and its propagation matrices, each of which is made once, when it is asked for.

    ``adjacency`` and ``edge_weight`` are as they were given, for propagations of the user's own; ``edges``,
    ``[2, E]``, and ``weight``, ``[E]`` or ``None``, are canonical. Over several processes these are the edges to the
    ``num_rows`` nodes of this one.
    """

    def __init__(
        self, adjacency: Adjacency | None, edge_weight: Tensor | None, num_rows: int, partition: Partition = WHOLE
    ) -> None:
        self.adjacency, self.edge_weight, self.partition = adjacency, edge_weight, partition
        self.num_rows, self.num_nodes = num_rows, partition.all_rows(num_rows)
        self.edges, self.weight = canonical_edges(adjacency, edge_weight, self.num_nodes)
        if not partition.is_whole:
            self._check_targets()
        self._matrices: dict[tuple[str, Direction, Weighting, torch.dtype, torch.device], PropagationMatrix] = {}

    def _check_targets(self) -> None:
        """Refuse edges that do not lead to this process's nodes."""
        start, stop = self.partition.start, self.partition.start + self.num_rows
        wrong = (self.edges[1] < start) | (self.edges[1] >= stop)
        if panels.holds_somewhere(wrong):
            node = int(self.edges[1, panels.first(wrong)])
            raise InvalidInputError(
                f"an edge leads to node {node}, but this process has the nodes {start} to {stop - 1}; "
                "every process needs all edges to its own nodes, and no others"
            )

    @property
    def is_tracked(self) -> bool:
        """Whether gradients flow to the edge weights."""
        return self.weight is not None and self.weight.requires_grad

    @cached_property
    def identity(self) -> EdgeIdentity:
        """What tells these edges from any others."""
        return edge_identity(self.edges, self.weight, self.num_nodes, self.partition)

    def matrix(
        self, kind: str, direction: Direction, like: Tensor, weighting: Weighting = AS_GIVEN
    ) -> PropagationMatrix:
        """The propagation matrix of a kind and direction, in the type and on the device of ``like``."""
        key = (kind, direction, AS_GIVEN if self.weight is None else weighting, like.dtype, like.device)
        if key not in self._matrices:
            weight = None if self.weight is None else weighting(self.weight.detach())
            normalized = normalized_edges(kind, direction, self.edges, weight, like, self.partition)
            self._matrices[key] = PropagationMatrix(normalized, self.num_rows, self.num_nodes // self.partition.world)
        return self._matrices[key]

    def __repr__(self) -> str:
        return f"Topology({self.num_nodes} nodes, {self.edges.size(1)} edges)"
