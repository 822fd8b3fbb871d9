"""Graphs: edges in one form, propagation over them, scaled features, and all of that prepared for the layers."""

from torch_gckm.graph.edges import Adjacency, canonical_edges, graph_of, is_directed
from torch_gckm.graph.prepared import Normalize, PreparedGraph, Scaling, check_features
from torch_gckm.graph.propagation import Propagation, PropagationLike, as_propagation
from torch_gckm.graph.remembered import RememberedGraph
from torch_gckm.graph.sharded import ShardedGraph, processes_of
from torch_gckm.graph.topology import DIRECTIONS, KINDS, Direction, Topology

__all__ = [
    "Adjacency", "DIRECTIONS", "Direction", "KINDS", "Normalize", "PreparedGraph", "Propagation", "PropagationLike",
    "RememberedGraph", "Scaling", "ShardedGraph", "Topology", "as_propagation", "canonical_edges", "check_features",
    "graph_of", "is_directed", "processes_of"
]  # fmt: skip
