r"""Features of nodes that have none, made of the edges alone.

The columns are eigenvectors of the adjacency matrix with the largest eigenvalues, normalised by degrees to which their
mean is added: :math:`(D + \bar d)^{-1/2} A (D + \bar d)^{-1/2}`. Without that mean, each small component would have an
eigenvector of its own. Nodes that are joined by many paths have similar rows. The last column is the logarithm of the
degree. No labels are used.
"""

import copy

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.linalg import eigsh
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.graph.edges import canonical_edges
from torch_gckm.graph.weights import typical_weight
from torch_gckm.partition import partition_of

CHANNELS = 128  # Eigenvectors.
_DENSE = 400  # Nodes up to which all eigenvectors are computed.


def with_structural_features(data: Data, channels: int = CHANNELS) -> Data:
    """A graph with features ``x`` of its edges, and with an attribute ``structural``, which says so.

    They are about the nodes of this graph only: those of another graph cannot be compared with them.

    Args:
        data: Edges, and ``num_nodes`` if there are nodes without any.
        channels: The number of eigenvectors; fewer of a graph with fewer nodes.
    """
    partition_of(data).refuse("graphs without features are", "give every node features, such as its degree")
    count = data.num_nodes
    given = data.edge_index if data.get("edge_index") is not None else data.get("adj_t")
    edges, weight = canonical_edges(given, data.get("edge_weight"), count or 0)
    if not count or not edges.numel():
        raise InvalidInputError("the graph has neither features 'x' nor edges: there is nothing to learn from")
    values = np.ones(edges.size(1))
    if weight is not None:  # As few large ones would outweigh all others.
        values = np.log1p(weight.detach().abs().cpu().double().numpy() / typical_weight(weight))
    half = scipy.sparse.coo_matrix((values, tuple(edges.cpu().numpy())), shape=(count, count)).tocsr()
    adjacency = half.maximum(half.T).tocsr()
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    root = scipy.sparse.diags_array((degree + degree.mean()) ** -0.5)
    size, vectors = _largest(root @ adjacency @ root, min(channels, max(count - 2, 1)))
    h = vectors * np.sqrt(count * np.maximum(size, 0.0))
    log_degree = np.log1p(degree)
    spread = log_degree.std()
    column = (log_degree - log_degree.mean()) / (spread if spread > 0 else 1.0) * np.sqrt(size.clip(min=0.0).mean())
    result = copy.copy(data)
    result.x = torch.from_numpy(np.column_stack([h, column]).astype(np.float32)).to(edges.device)
    result.structural = True
    return result


def _largest(matrix: scipy.sparse.csr_matrix, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues, in decreasing order, and their eigenvectors, whose largest entries are positive."""
    if matrix.shape[0] <= _DENSE:
        values, vectors = np.linalg.eigh(matrix.toarray())
        values, vectors = values[-count:], vectors[:, -count:]
    else:
        start = np.random.default_rng(0).random(matrix.shape[0])
        values, vectors = eigsh(matrix, k=count, which="LA", v0=start)
    order = np.argsort(-values, kind="stable")
    values, vectors = values[order], vectors[:, order]
    largest = np.abs(vectors).argmax(axis=0)
    return values, vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])])
