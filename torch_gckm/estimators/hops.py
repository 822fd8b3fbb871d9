"""How often to propagate before clustering, found by withheld features instead of labels."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from torch_geometric.data import Data

from torch_gckm.estimators.inputs import to_matrix, to_tensor

HOPS = (1, 2, 4, 8, 16, 32, 64)
Clusters = NDArray[np.int64]
Matrix = Any  # [n, d], a NumPy array or a sparse matrix of SciPy.


def halves_of(graph: Data) -> list[Data]:
    """The graph with one half of its features, and with the other."""
    x = to_matrix(graph.x)
    columns = np.random.default_rng(0).permutation(x.shape[1])
    halves = []
    for half in np.array_split(columns, 2):
        part = Data(**{name: graph[name] for name in ("edge_index", "edge_weight", "adj_t") if name in graph})
        part.x = to_tensor(x[:, np.sort(half)]).to(graph.x.device)
        halves.append(part)
    return halves


def shares_by_hops(halves: Sequence[Matrix], clusters_of: Callable[[int, int], Clusters]) -> dict[int, float]:
    """The share of each half's variance that lies between clusters found from the other, for all of ``HOPS``.

    Args:
        halves: The two halves of the features, ``[n, d]`` each, not propagated.
        clusters_of: Finds clusters ``[n]`` from the half of this number, with so many hops.
    """
    shares = {}
    for hops in HOPS:
        found = [explained_share(halves[1 - half], clusters_of(half, hops)) for half in (0, 1)]
        shares[hops] = float(np.mean(found))
    return shares


def explained_share(x: Matrix, clusters: Clusters) -> float:
    """The share of the variance of features ``[n, d]`` that lies between clusters ``[n]``."""
    count, sizes = x.shape[0], np.bincount(clusters)
    members = scipy.sparse.csr_array((np.ones(count), (clusters, np.arange(count))), shape=(len(sizes), count))
    sums = members @ x
    sums = sums.toarray() if scipy.sparse.issparse(sums) else sums
    of_mean = float(np.square(sums.sum(axis=0)).sum()) / count
    squares = float(np.square(x.data if scipy.sparse.issparse(x) else x, dtype=np.float64).sum())
    between = float((np.square(sums).sum(axis=1) / np.maximum(sizes, 1)).sum()) - of_mean
    return between / (squares - of_mean) if squares > of_mean else 0.0
