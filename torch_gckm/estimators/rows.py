"""Rows of a matrix as nodes of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.graph import canonical_edges, graph_of
from torch_gckm.layouts import from_scipy, to_csr, to_scipy
from torch_gckm.neighbours import nearest_edges, nearest_rows

Matrix = Any  # A dense NumPy matrix or a CSR matrix of SciPy.


def to_matrix(x: Any) -> Any:
    """A tensor as NumPy or SciPy hold it; anything else stays as it is."""
    if not isinstance(x, Tensor):
        return x
    x = x.detach().cpu()
    if x.layout == torch.strided:
        return x.numpy()
    return to_scipy(to_csr(x))


def to_tensor(x: Matrix) -> Tensor:
    """A copy of a matrix, as a tensor of the same kind."""
    if not scipy.sparse.issparse(x):
        return torch.from_numpy(np.array(x))
    return from_scipy(x.copy())


def neighbour_graph(x: Matrix, count: int) -> Tensor:
    """Undirected edges ``[2, E]`` from every row to its nearest others.

    Args:
        x: Features ``[n, d]``.
        count: How many of them, but no more than a quarter of all rows: joined to all others, rows would have
            one mean of neighbours and be the same to a model.
    """
    count = min(count, max(1, x.shape[0] // 4))
    return nearest_edges(x, count)


def join(graph: Data, x: Matrix, count: int) -> Data:
    """A graph with new nodes, behind its own, that receive from the nearest of its nodes.

    No edge leads to an old node or from a new one. So old nodes keep their embeddings, and what is predicted for a new
    one does not depend on the other new ones, as long as layers receive along edges.

    Args:
        graph: The graph.
        x: Features of the new nodes, ``[m, d]``.
        count: How many nodes each of them receives from, but no more than a quarter of all.
    """
    features, edge_index, edge_weight = graph_of(graph)
    size, old = features.size(0), to_matrix(features)
    edges, weight = canonical_edges(edge_index, edge_weight, size)
    count = min(count, max(1, size // 4))
    near = nearest_rows(old, count, x)
    new = torch.arange(size, size + len(near)).repeat_interleave(count)
    more = torch.stack([near.flatten(), new]).to(edges.device)
    if weight is not None:  # An edge of the usual weight.
        weight = torch.cat([weight, weight.new_full((new.numel(),), float(weight.mean()) if weight.numel() else 1.0)])
    stack = scipy.sparse.vstack if scipy.sparse.issparse(old) else np.vstack
    both = to_tensor(stack([old, x])).to(features.device)
    return Data(x=both, edge_index=torch.cat([edges, more], dim=1), edge_weight=weight)


def places_among(x: Matrix, known: Matrix) -> NDArray[np.int64]:
    """Where each row occurs among known ones (the first time), -1 where it does not, ``[m]``."""
    keys, known_keys = _keys(x), _keys(known)
    if keys == known_keys:  # Also if rows occur twice, each is itself.
        return np.arange(len(keys))
    places = dict(zip(reversed(known_keys), reversed(range(len(known_keys))), strict=True))
    return np.array([places.get(key, -1) for key in keys], dtype=np.int64)


def _keys(x: Matrix) -> list[bytes]:
    """The bytes of every row; adding zero turns -0.0 into 0.0."""
    if not scipy.sparse.issparse(x):
        return [row.tobytes() for row in np.asarray(x) + np.float32(0.0)]
    x = scipy.sparse.csr_matrix(x, copy=True)
    x.sum_duplicates()
    x.eliminate_zeros()
    ends = zip(x.indptr, x.indptr[1:], strict=False)
    return [x.indices[a:b].astype(np.int64).tobytes() + x.data[a:b].tobytes() for a, b in ends]
