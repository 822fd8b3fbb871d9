"""The edges of one graph, checked once, and the matrices made of them."""

from functools import cached_property

import torch
from torch import Tensor

from torch_gckm.graph.edges import Adjacency, canonical_edges
from torch_gckm.graph.identity import EdgeIdentity, edge_identity
from torch_gckm.graph.normalization import Direction, PropagationMatrix, normalized_edges, propagation_matrix


class Topology:
    """Canonical edges of a graph and its propagation matrices, each of which is made once, when it is asked for.

    Attributes:
        adjacency: The edges as they were given, for propagations of the user's own.
        edge_weight: The weights as they were given.
        edges: Canonical edges, ``[2, E]``.
        weight: Canonical weights, ``[E]``, if there are any.
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
