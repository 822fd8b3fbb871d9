"""Edges of arrays, edges without a direction, and new rows that edges join to a fitted graph."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.estimators.inputs import Matrix, stacked, to_matrix
from torch_gckm.graph import canonical_edges, graph_of, is_directed, typical_weight
from torch_gckm.layouts import prefers_sparse, to_csr
from torch_gckm.partition import partition_of


def to_edges(edges: Any, name: str = "edge_index") -> Tensor:
    """Edges of any kind as a tensor, ``[2, E]``."""
    if isinstance(edges, Tensor):
        return edges
    numbers = np.array(edges)
    if numbers.dtype.kind not in "iu":
        raise InvalidInputError(f"'{name}' must be whole numbers [2, E], got {type(edges).__name__}")
    return torch.from_numpy(numbers.astype(np.int64))


def to_weights(weight: Any) -> Tensor | None:
    """Weights of edges of any kind as a tensor, ``[E]``, a copy."""
    return None if weight is None else torch.as_tensor(np.array(to_matrix(weight)))


def undirected(graph: Data, *, warn: bool) -> Data:
    """The graph with all edges in both directions; a pair that occurs twice counts once, with the mean of its weights.

    One that has them is returned as it is, and so is a part of a graph over several processes.
    """
    if not partition_of(graph).is_whole or not is_directed(graph):
        return graph
    x, edge_index, edge_weight = graph_of(graph)
    edges, weight = canonical_edges(edge_index, edge_weight, x.size(0))
    both, mean = to_undirected(edges, None if weight is None else weight.detach(), x.size(0), reduce="mean")
    if warn:
        given = coalesce(edges, num_nodes=x.size(0)).size(1)
        more = both.size(1) - given
        what = f"{more:,} of {given:,} edges are given in one direction only, and count in both"
        if more == 0:
            what = "some edges have other weights in one direction than in the other; their mean counts in both"
        warnings.warn(f"{what}; directed=True keeps directions", GCKMWarning, stacklevel=6)
    result = copy.copy(graph)
    for name in ("adj_t", "edge_attr"):  # Not those of these edges.
        if name in result:
            del result[name]
    result.edge_index, result.edge_weight = both, mean
    return result


def join_by_edges(graph: Data, x: Matrix, new_edges: Any, edge_weight: Any, *, directed: bool) -> Data:
    """A graph with new nodes ``[m, d]`` behind its own ``n``, and edges of these new nodes.

    Unless edges are ``directed``, those between two new nodes lead both ways, and all others from the node of the graph
    to the new one: nothing changes for the nodes of the graph.
    """
    features, edge_index, old_weight = graph_of(graph)
    size, total = features.size(0), features.size(0) + x.shape[0]
    old, old_weight = canonical_edges(edge_index, old_weight, size)
    edges, weight = to_edges(new_edges, "new_edges"), to_weights(edge_weight)
    if edges.numel() and not edges.is_floating_point() and not 0 <= int(edges.min()) <= int(edges.max()) < total:
        raise InvalidInputError(
            f"'new_edges' names nodes {int(edges.min())} to {int(edges.max())}; fitted nodes are 0 to {size - 1}, "
            f"rows of X {size} to {total - 1}"
        )
    edges, weight = canonical_edges(edges, weight, total)
    is_old = (edges < size).all(dim=0)
    if bool(is_old.any()):
        first = edges[:, is_old][:, 0].tolist()
        raise InvalidInputError(
            f"'new_edges' has an edge of the fitted nodes {first[0]} and {first[1]}, but every edge must have a row of "
            f"X, {size} to {total - 1}; to change edges of fitted nodes, pass the whole new graph"
        )
    if weight is None and old_weight is not None:
        weight = torch.full((edges.size(1),), typical_weight(old_weight))
    if not directed:
        edges, weight = to_undirected(edges, weight, total, reduce="mean")
        towards_new = edges[1] >= size
        edges, weight = edges[:, towards_new], None if weight is None else weight[towards_new]
    if weight is not None:
        old_weight = torch.ones(old.size(1)) if old_weight is None else old_weight
        weight = torch.cat([old_weight, weight.to(old_weight)])
    return Data(x=stacked(features, x), edge_index=torch.cat([old, edges.to(old.device)], dim=1), edge_weight=weight)


def require_same_edges(X: Any, graph: Data | None, as_fitted: Callable[[Data], Data]) -> None:
    """Raise unless X is the fitted graph, whose features were made of its edges and are not known of other graphs."""
    if isinstance(X, Data) and graph is not None and X.num_nodes == graph.num_nodes:
        given = copy.copy(X)
        given.x = graph.x
        there, here = (canonical_edges(*graph_of(part)[1:], part.num_nodes)[0] for part in (as_fitted(given), graph))
        if torch.equal(coalesce(there), coalesce(here)):
            return
    raise InvalidInputError(
        "the estimator was fitted to a graph without features, and knows the nodes of this graph only; fit it to "
        "a graph that has the new nodes as well"
    )


def graph_content(graph: Data) -> dict[str, Tensor | None]:
    """What a file keeps of a fitted graph: features, sparse ones as such, edges and their weights."""
    x, edge_index, edge_weight = graph_of(graph)
    edges, weight = canonical_edges(edge_index, edge_weight, x.size(0))
    features = to_csr(x) if x.layout != torch.strided or prefers_sparse(x) else x
    return {"x": features.detach(), "edge_index": edges, "edge_weight": None if weight is None else weight.detach()}
