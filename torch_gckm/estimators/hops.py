"""How often to propagate before clustering, found by withheld features instead of labels."""

from collections.abc import Callable

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.estimators.inputs import to_matrix, to_tensor

HOPS = (1, 2, 4, 8, 16, 32, 64)
TOLERANCE = 0.1
Clusters = NDArray[np.int64]


def shares_by_hops(graph: Data, clusters_of: Callable[[Data, int], Clusters]) -> dict[int, float]:
    r"""How much of withheld features clusters explain, for increasing numbers of hops.

    The columns of the features are split into two halves. Clusters are found from one half, and what they explain of
    the other, as it is without propagation, is the share of its variance that lies between clusters; then with the
    halves exchanged. Smoothing that brings nodes of a kind together raises this share, because their withheld
    features are alike, too. Smoothing that mixes nodes of different kinds lowers it.

    It stops at the first number whose share is more than :data:`TOLERANCE` below the best one.

    Args:
        graph: The graph.
        clusters_of: Finds clusters ``[n]`` of a graph with a number of hops.
    """
    x = to_matrix(graph.x)
    columns = np.random.default_rng(0).permutation(x.shape[1])
    halves = [x[:, np.sort(part)] for part in np.array_split(columns, 2)]
    graphs = [_with_features(graph, half) for half in halves]
    shares: dict[int, float] = {}
    for hops in HOPS:
        pairs = zip(graphs, reversed(halves), strict=True)
        shares[hops] = float(np.mean([explained_share(other, clusters_of(part, hops)) for part, other in pairs]))
        if not _is_good(shares[hops], shares):
            break
    return shares


def best_hops(shares: dict[int, float]) -> int:
    """The largest number of hops whose share is at most :data:`TOLERANCE` below the best one."""
    return max(hops for hops, share in shares.items() if _is_good(share, shares))


def explained_share(x: scipy.sparse.csr_array | NDArray[np.float32], clusters: Clusters) -> float:
    """The share of the variance of features ``[n, d]`` that lies between clusters ``[n]``."""
    count, sizes = x.shape[0], np.bincount(clusters)
    members = scipy.sparse.csr_array((np.ones(count), (clusters, np.arange(count))), shape=(len(sizes), count))
    sums = _dense(members @ x)
    of_mean = float(np.square(sums.sum(axis=0)).sum()) / count
    squares = float(x.multiply(x).sum()) if scipy.sparse.issparse(x) else float(np.square(x, dtype=np.float64).sum())
    between = float((np.square(sums).sum(axis=1) / np.maximum(sizes, 1)).sum()) - of_mean
    return between / (squares - of_mean) if squares > of_mean else 0.0


def _dense(x: scipy.sparse.csr_array | NDArray[np.float64]) -> NDArray[np.float64]:
    dense: NDArray[np.float64] = x.toarray() if scipy.sparse.issparse(x) else np.asarray(x)
    return dense


def _with_features(graph: Data, x: scipy.sparse.csr_array | NDArray[np.float32]) -> Data:
    part = Data(**{name: graph[name] for name in ("edge_index", "edge_weight", "adj_t") if name in graph})
    features: Tensor = to_tensor(x)
    part.x = features.to(graph.x.device)
    return part


def _is_good(share: float, shares: dict[int, float]) -> bool:
    return share >= (1.0 - TOLERANCE) * max(shares.values())
