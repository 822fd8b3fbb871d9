"""Edges in one canonical form, whatever form the caller uses."""

import warnings
from typing import Union

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import coalesce, is_sparse, is_undirected, to_edge_index

from torch_gckm import panels
from torch_gckm.errors import GCKMWarning, InvalidInputError, heterogeneous_graph
from torch_gckm.graph.halo import sent_to_owners
from torch_gckm.partition import partition_of

Adjacency = Union[Tensor, SparseTensor]


def graph_of(data: Data) -> tuple[Tensor, Adjacency | None, Tensor | None]:
    """The features, edges and edge weights of a PyG ``Data`` object; a warning says that ``edge_attr`` is not used."""
    if isinstance(data, HeteroData):
        raise heterogeneous_graph(data)
    x = data.x
    if isinstance(x, tuple | list):
        raise InvalidInputError("'x' is a pair: bipartite graphs are not supported; join all nodes in one 'x'")
    if not isinstance(x, Tensor):
        raise InvalidInputError(
            "the data object has no node features 'x'; estimators make some of the edges when they are fitted, as does "
            "data = torch_gckm.graph.with_structural_features(data), for this graph only"
        )
    if x.dim() != 2:
        raise InvalidInputError(f"'x' must have shape [n, d], got {tuple(x.shape)}")
    edges, weight = data.edge_index, data.get("edge_weight")
    if weight is None and data.get("edge_attr") is not None:
        advice = "set data.edge_weight to one number per edge if they are weights, or delete them"
        warnings.warn(f"the edge attributes 'edge_attr' are not used; {advice}", GCKMWarning, stacklevel=2)
    return x, data.get("adj_t") if edges is None else edges, weight


def is_directed(data: Data) -> bool:
    """Whether some pair of nodes is joined one way only, or by weights that differ by more than rounding."""
    x, edge_index, edge_weight = graph_of(data)
    over = partition_of(data)
    num_nodes = over.all_rows(x.size(0))
    edges, weight = canonical_edges(edge_index, edge_weight, num_nodes)
    if weight is None:
        if over.is_whole:
            return not is_undirected(edges, num_nodes=num_nodes)
        weight = torch.ones(edges.size(1))
    there, weight = coalesce(edges, weight, num_nodes, reduce="add")
    source, target, returned = sent_to_owners(there[0], [there[1], there[0], weight], over)
    back, returned = coalesce(torch.stack([source, target]), returned, num_nodes)
    return not over.processes.everywhere(torch.equal(there, back) and torch.allclose(weight, returned))


def canonical_edges(
    edge_index: Adjacency | None, edge_weight: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor | None]:
    """Edges as ``[2, E]`` (source, target) and their weights, checked.

    They may come so, as an ``EdgeIndex``, or as a ``torch.sparse`` matrix or ``SparseTensor``, which is read as
    ``adj_t`` with its values as weights; ``None`` stands for no edges.
    """
    if edge_index is None:
        return torch.empty(2, 0, dtype=torch.long), None
    if is_sparse(edge_index):
        if _sizes(edge_index) != (num_nodes, num_nodes):
            raise InvalidInputError(
                f"the adjacency matrix must be square, a row and a column for each of the {num_nodes} nodes, "
                f"got {_sizes(edge_index)}; bipartite graphs are not supported"
            )
        if edge_weight is not None:
            raise InvalidInputError("a sparse adjacency matrix holds its own weights; do not pass 'edge_weight' too")
        if isinstance(edge_index, Tensor) and edge_index.layout == torch.sparse_coo:
            edge_index = edge_index.coalesce()  # PyG would take it to be coalesced, and stop gradients.
            edges, edge_weight = edge_index.indices(), edge_index.values()
        else:
            edges, edge_weight = to_edge_index(edge_index)
        edges = edges.flip(0)  # Rows of adj_t are targets.
    else:
        edges = edge_index.as_tensor() if hasattr(edge_index, "as_tensor") else edge_index
    if edges.dim() != 2 or edges.size(0) != 2 or edges.is_floating_point():
        hint = "; pass edge_index.t()" if edges.dim() == 2 and edges.size(1) == 2 else ""
        found = f"{edges.dtype} {tuple(edges.shape)}{hint}"
        raise InvalidInputError(f"'edge_index' must be an integer tensor [2, E] or a sparse matrix, got {found}")
    edges = edges.long()
    if edges.numel():
        low, high = int(panels.smallest(edges)), int(panels.largest(edges))
        if not 0 <= low <= high < num_nodes:
            raise InvalidInputError(f"'edge_index' names nodes {low} to {high}, but there are {num_nodes} nodes")
    if edge_weight is not None:
        edge_weight = edge_weight.squeeze(-1) if edge_weight.dim() == 2 else edge_weight
        if edge_weight.shape != (edges.size(1),):
            wrong = tuple(edge_weight.shape)
            raise InvalidInputError(f"'edge_weight' must have one value per edge, [{edges.size(1)}], got {wrong}")
        if not edge_weight.is_floating_point():
            edge_weight = edge_weight.to(torch.get_default_dtype())
        panels.check_finite(edge_weight, "edge_weight")
    return edges, edge_weight


def _sizes(adjacency: Adjacency) -> tuple[int, ...]:
    """The shape of a sparse matrix of any kind."""
    return tuple(adjacency.size() if isinstance(adjacency, Tensor) else adjacency.sparse_sizes())
