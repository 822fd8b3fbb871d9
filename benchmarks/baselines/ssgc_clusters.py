r"""SSGC and k-means for clustering nodes, as in the code of SSGC's authors (NodeClustering/test_mygdc.py).

With features :math:`X` and the normalised adjacency matrix without self-loops :math:`S`, the coordinates of
:math:`\frac{1}{K} \sum_{k=1}^K S^k X` along its 16 leading right singular vectors, every row at unit length, go to
k-means. :math:`K` grows until clusters become wider: the mean, over clusters, of the squared distances within.
Theirs averages ten results of k-means; this keeps the best of ten starts.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse.linalg import svds
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn.functional import normalize
from torch_geometric.data import Data

from baselines.sparse import adjacency

DIMENSIONS, MOST_HOPS = 16, 60


def width(h: np.ndarray, clusters: np.ndarray) -> float:
    """Twice the variance within a cluster, in the mean over clusters."""
    return float(np.mean([2.0 * h[clusters == c].var(axis=0).sum() for c in np.unique(clusters)]))


def cluster(data: Data, clusters: int, seed: int, most_hops: int = MOST_HOPS) -> Tensor:
    """Clusters of all nodes."""
    matrix = adjacency(data, "symmetric")
    power = data.x.to_dense().float()
    total, best, found = torch.zeros_like(power), np.inf, np.zeros(0)
    for hops in range(1, most_hops + 1):
        power = matrix @ power
        total += power
        start = np.random.default_rng(seed).standard_normal(min(total.shape))
        left, scale, _ = svds((total / hops).numpy(), k=min(DIMENSIONS, min(total.shape) - 1), v0=start)
        h = normalize(torch.from_numpy(left * scale).float()).numpy()
        means = KMeans(clusters, n_init=10, random_state=seed).fit_predict(h)
        if width(h, means) > best:
            break
        best, found = width(h, means), means
    return torch.from_numpy(found)
