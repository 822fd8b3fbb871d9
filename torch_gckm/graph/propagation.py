"""Propagation over neighbours: the one place where a layer sees the graph."""

from collections.abc import Callable
from typing import Any, Union, cast

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from torch_gckm.errors import InvalidInputError
from torch_gckm.graph.edges import Adjacency
from torch_gckm.graph.topology import DIRECTIONS, KINDS, Direction, PropagationMatrix, Topology, normalized_edges
from torch_gckm.graph.weights import Weights, weighting

PropagationLike = Union[str, torch.nn.Module]
Step = Callable[[Any], Any]  # A product with the propagation matrix.
_CACHED = 2**19  # Entries that fit into a processor's cache: 2 to 6 times as fast as all columns of wide features.
_FEWEST = 32  # Columns at a time, on large graphs, too.
DEFAULT_ALPHA = {"ssgc": 0.05, "ppr": 0.1}  # What is kept of the features themselves, as in the methods' papers.


class Propagation(MessagePassing):  # type: ignore[misc]
    r"""Combine every node's features with those of its neighbours, without parameters.

    With :math:`\hat A` the weighted adjacency matrix with self-loops and :math:`\hat d` its degrees:

    ========  =====================================================================
    ``gcn``   :math:`a_v = \sum_u \hat A_{uv} x_u / \sqrt{\hat d_u \hat d_v}`
    ``sum``   :math:`a_v = \sum_u \hat A_{uv} x_u`
    ``mean``  :math:`a_v = \sum_u \hat A_{uv} x_u / \hat d_v`
    ``none``  :math:`a_v = x_v`
    ``ssgc``  :math:`a = \alpha x + \frac{1 - \alpha}{K} \sum_{k=1}^{K} P^k x`
    ``ppr``   :math:`a = z_K`, :math:`z_0 = x`, :math:`z_k = (1 - \alpha) P z_{k-1} + \alpha x`
    ========  =====================================================================

    with :math:`P` the matrix of ``gcn`` and :math:`K` the number of hops: the simple spectral graph convolution
    (SSGC), and personalised PageRank as in APPNP, for which many hops do not blur all nodes into one.
    Parallel edges add up; a self-loop that is given keeps its weight, all others get weight 1.

    Args:
        kind: ``"gcn"``, ``"sum"``, ``"mean"``, ``"none"``, ``"ssgc"`` or ``"ppr"``.
        hops: How often to propagate.
        direction: On a directed graph, receive from nodes with an edge to this one (``"in"``), from nodes that this one
            has an edge to (``"out"``), or from ``"both"``; a pair joined both ways then counts once, with the mean of
            the weights.
        alpha: The share :math:`\alpha` of the features themselves in ``ssgc`` (by default 0.05) and ``ppr`` (0.1).
        weights: How to read edge weights, each before parallel edges add up: as ``"given"``, as
            :math:`\log(1 + w / u)` (``"log"``), or not at all (``"none"``).
        unit: The :math:`u` of ``"log"``, a usual weight.

    Shapes:
        - **input:** features ``[n, d]``, edges ``[2, E]`` or sparse, edge weights ``[E]`` *(optional)*
        - **output:** ``[n, d]``
    """

    def __init__(
        self,
        kind: str = "gcn",
        hops: int = 1,
        direction: Direction = "in",
        alpha: float | None = None,
        weights: Weights = "given",
        unit: float = 1.0,
    ) -> None:
        super().__init__(aggr="add")
        if kind not in KINDS:
            raise InvalidInputError(f"unknown aggregation '{kind}'; choose from {', '.join(KINDS)}, or pass a module")
        if direction not in DIRECTIONS:
            raise InvalidInputError(f"'direction' must be 'in', 'out' or 'both', got {direction!r}")
        if hops != int(hops) or hops < 1:
            raise InvalidInputError(f"'hops' must be a positive integer, got {hops!r}")
        if alpha is not None and (kind not in DEFAULT_ALPHA or not 0.0 <= alpha <= 1.0):
            raise InvalidInputError(f"'alpha' is a number from 0 to 1 for 'ssgc' and 'ppr', got {alpha!r} for '{kind}'")
        self.kind, self.hops, self.direction = kind, int(hops), direction
        self.alpha: float | None = DEFAULT_ALPHA.get(kind) if alpha is None else float(alpha)
        self.weighting = weighting(weights, unit)

    @property
    def key(self) -> tuple[str, int, Direction, float | None, Weights, float]:
        """What tells it from other propagations; its arguments."""
        return self.kind, self.hops, self.direction, self.alpha, *self.weighting

    @property
    def matrix_kind(self) -> str:
        """The normalisation of the matrix that it multiplies by."""
        return "gcn" if self.kind in DEFAULT_ALPHA else self.kind

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
            topology.partition.refuse("gradients to edge weights are")
            weight = self.weighting(topology.weight)
            edges, weight, _ = normalized_edges(self.matrix_kind, self.direction, topology.edges, weight, x)
            size = (x.size(0), x.size(0))
            # propagate_type: (x: Tensor, edge_weight: OptTensor, adj: OptTensor)
            return self.smooth(lambda z: self.propagate(edges, x=z, edge_weight=weight, adj=None, size=size), x)
        matrix = topology.matrix(self.matrix_kind, self.direction, x, self.weighting)
        return cast(Tensor, self.propagate(matrix.adj_t, x=x, edge_weight=None, adj=matrix))

    def smooth(self, step: Step, x: Any) -> Any:
        """The polynomial of the propagation matrix, times ``x``; a ``step`` is a product with that matrix."""
        alpha = self.alpha or 0.0
        own = mean = 0.0 if self.alpha is None else alpha * x
        for _ in range(self.hops):
            x = step(x)
            if self.kind == "ppr":
                x = (1.0 - alpha) * x + own
            elif self.kind == "ssgc":
                mean = mean + ((1.0 - alpha) / self.hops) * x
        return mean if self.kind == "ssgc" else x

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        """Weigh a neighbour's features."""
        return edge_weight.unsqueeze(1) * x_j

    def message_and_aggregate(self, adj_t: Tensor, x: Tensor, adj: PropagationMatrix) -> Tensor:
        """All hops by sparse matrix products; on a CPU some columns at a time, which stay in its cache meanwhile."""

        def step(z: Tensor) -> Tensor:
            return cast(Tensor, adj @ z)

        columns = max(_FEWEST, _CACHED // max(1, adj.typical_rows))
        if x.device.type != "cpu" or x.size(1) <= columns:
            return cast(Tensor, self.smooth(step, x))
        return torch.cat([self.smooth(step, part.contiguous()) for part in x.split(columns, dim=1)], dim=1)

    def __repr__(self) -> str:
        alpha = "" if self.alpha is None else f", alpha={self.alpha:g}"
        kind, unit = self.weighting
        weights = "" if kind == "given" else f", weights={kind!r}" + (f", unit={unit:g}" if kind == "log" else "")
        return f"Propagation({self.kind!r}, hops={self.hops}, direction={self.direction!r}{alpha}{weights})"


def as_propagation(aggregation: PropagationLike, hops: int = 1, direction: Direction = "in") -> torch.nn.Module:
    """A propagation from its name; any module ``(x, edge_index, edge_weight) -> a`` passes through."""
    if isinstance(aggregation, str):
        return Propagation(aggregation, hops, direction)
    if not isinstance(aggregation, torch.nn.Module):
        raise InvalidInputError(f"an aggregation is a name or a module, got {aggregation!r}")
    if hops not in (1, getattr(aggregation, "hops", 1)):
        raise InvalidInputError(f"'hops={hops}' needs an aggregation given by name; {aggregation} decides for itself")
    return aggregation
