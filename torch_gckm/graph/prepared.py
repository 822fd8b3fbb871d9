"""A graph as the layers see it."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.graph.edges import graph_of
from torch_gckm.graph.identity import matrix_identity
from torch_gckm.graph.propagation import Propagation
from torch_gckm.graph.scaling import Scaling
from torch_gckm.graph.topology import Direction, Topology
from torch_gckm.kernels import DenseFeatures, Features, SparseFeatures
from torch_gckm.layouts import prefers_sparse, to_csr

Identity = tuple[int, ...]
_MOST_KEPT = 8  # Propagated features: searches try several propagations of one graph.


class PreparedGraph:
    """What depends on a graph alone: scaled features, edges, propagation matrices, propagated features, identity.

    It is made where a graph comes in (:meth:`Trainer.fit <torch_gckm.Trainer.fit>`,
    :func:`~torch_gckm.select.search`, :meth:`GCKMConv.initialize <torch_gckm.GCKMConv.initialize>`), passed down, and
    gone when its owner drops it. What is expensive is computed when it is first asked for, and kept.

    Args:
        x: Node features ``[n, d]``, dense or sparse.
        topology: The edges.
        scaling: What to do to the features.
        dtype: The precision to compute in.

    Attributes:
        given: The features as they were given, in the precision of the model.
        x: The scaled features, in the precision of the model.
        topology: The edges and their matrices.
        scaling: The scaling that was applied.
    """

    def __init__(self, x: Tensor, topology: Topology, scaling: Scaling, dtype: torch.dtype) -> None:
        self.given, self.topology, self.scaling, self.dtype = x.to(dtype), topology, scaling, dtype
        self.x: Tensor = scaling(self.given)
        self._is_callers = self.x is x  # Who may write to it.
        self._propagated: dict[tuple[str, int, Direction], Features] = {}

    @classmethod
    def of(cls, data: Data, scaling: Scaling, dtype: torch.dtype) -> PreparedGraph:
        """From a PyG ``Data`` object."""
        x, edge_index, edge_weight = graph_of(data)
        check_features(x)
        return cls(x, Topology(edge_index, edge_weight, x.size(0)), scaling, dtype)

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.topology.num_nodes

    @cached_property
    def identity(self) -> Identity:
        """Numbers that tell this graph, with its weights and features, from any other in the model's precision."""
        return (*self.topology.identity, *matrix_identity(self.given))

    @cached_property
    def _sparse(self) -> Tensor | None:
        """The scaled features as a CSR tensor, if products with them are faster so."""
        if self.x.layout == torch.strided:
            return to_csr(self.x) if prefers_sparse(self.x) else None
        return to_csr(self.x).clone() if self._is_callers else to_csr(self.x)

    @cached_property
    def input(self) -> Features:
        """The scaled features themselves, as kernels see them; never the tensor of the caller, who may write to it."""
        if self._sparse is not None:
            return SparseFeatures(self._sparse)
        return DenseFeatures(self.x.clone() if self._is_callers else self.x)

    def propagated(self, propagation: torch.nn.Module) -> Features:
        """The propagated input features; sparse ones are never densified."""
        if not isinstance(propagation, Propagation) or self.x.requires_grad or self.topology.is_tracked:
            return self.propagate(propagation, self.x)
        kept, key = self._propagated, propagation.key
        features = kept.get(key)
        if features is None:
            features = self._propagate_input(propagation)
        others = [(name, known) for name, known in kept.items() if name != key]
        # The last one used is the last to go. Replaced as a whole: threads may share a graph.
        self._propagated = {**dict(others[1 - _MOST_KEPT :]), key: features}
        return features

    def propagate(self, propagation: torch.nn.Module, h: Tensor) -> Features:
        """Any features of the nodes, propagated; never ``h`` itself or a view of it, which may be written to."""
        result: Tensor
        if isinstance(propagation, Propagation):
            result = propagation(h, self.topology)
            return DenseFeatures(result.clone() if result is h else result)
        result = propagation(h, self.topology.adjacency, self.topology.edge_weight)
        return DenseFeatures(result.clone())

    def scaled(self, scaling: Scaling) -> PreparedGraph:
        """The same graph with its features scaled in another way; edges and their matrices are shared."""
        return PreparedGraph(self.given, self.topology, scaling, self.dtype)

    def _propagate_input(self, propagation: Propagation) -> Features:
        if propagation.kind == "none":
            return self.input
        if self._sparse is None:
            return self.propagate(propagation, self.x)
        like = torch.empty(self.num_nodes, 0, dtype=self.x.dtype)
        matrix = self.topology.matrix(propagation.kind, propagation.direction, like)
        return SparseFeatures(self._sparse, matrix.adj_t, propagation.hops)

    def __repr__(self) -> str:
        return f"PreparedGraph({self.num_nodes} nodes, {self.topology.edges.size(1)} edges, {self.x.size(1)} features)"


def check_features(x: Tensor, columns: int | None = None) -> None:
    """Raise unless features are a matrix of finite numbers, with as many columns as are expected."""
    if not isinstance(x, Tensor):
        raise InvalidInputError("'x' must be one tensor; bipartite graphs are not supported")
    if x.dim() != 2 or (columns is not None and x.size(1) != columns):
        raise InvalidInputError(f"'x' must have shape [n, {'d' if columns is None else columns}], got {tuple(x.shape)}")
    if x.is_floating_point():
        panels.check_finite(x)
