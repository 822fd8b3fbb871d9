"""Nearest neighbours among rows, the same whatever the number of cores."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import to_undirected

_SHARED = 20_000  # Below so many rows, cores may share the search of one row, and break its ties by chance.


def nearest_rows(x: Any, count: int, queries: Any = None) -> Tensor:
    """The nearest rows of ``x`` to the rows of ``queries``, ``[m, count]``; by default to every row among the others.

    Both are NumPy arrays or SciPy's sparse matrices.
    """
    try:
        from sklearn.neighbors import NearestNeighbors
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise ImportError("nearest neighbours need scikit-learn: pip install 'torch_gckm[sklearn]'") from error

    rows = x.shape[0] if queries is None else queries.shape[0]
    with threadpool_limits(1, "openmp") if rows < _SHARED else nullcontext():
        return torch.from_numpy(NearestNeighbors(n_neighbors=count).fit(x).kneighbors(queries, return_distance=False))


def nearest_edges(x: Any, count: int) -> Tensor:
    """Undirected edges ``[2, E]`` from every row to the nearest others; see :func:`nearest_rows`."""
    near = nearest_rows(x, count)
    return to_undirected(torch.stack([near.flatten(), torch.arange(len(near)).repeat_interleave(count)]))
