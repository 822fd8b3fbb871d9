"""Graphs: edges in one form, propagation over them, scaled features, and all of that prepared for the layers."""

from torch_gckm.graph.edges import Adjacency, canonical_edges, graph_of, is_directed
from torch_gckm.graph.prepared import Normalize, PreparedGraph, Scaling, check_features
from torch_gckm.graph.propagation import Propagation, PropagationLike, as_propagation
from torch_gckm.graph.remembered import RememberedGraph
from torch_gckm.graph.sharded import ShardedGraph, processes_of
from torch_gckm.graph.structural import with_structural_features
from torch_gckm.graph.topology import DIRECTIONS, KINDS, Direction, Topology
from torch_gckm.graph.weights import (
    AS_GIVEN,
    WEIGHTS,
    Weighting,
    Weights,
    has_weights,
    typical_weight,
    warn_of_heavy_tail,
    warn_of_unusable,
    weights_of,
)

__all__ = [
    "AS_GIVEN", "Adjacency", "DIRECTIONS", "Direction", "KINDS", "Normalize", "PreparedGraph", "Propagation",
    "PropagationLike", "RememberedGraph", "Scaling", "ShardedGraph", "Topology", "WEIGHTS", "Weighting", "Weights",
    "as_propagation", "canonical_edges", "check_features", "graph_of", "has_weights", "is_directed", "processes_of",
    "typical_weight", "warn_of_heavy_tail", "warn_of_unusable", "weights_of", "with_structural_features",
]  # fmt: skip
