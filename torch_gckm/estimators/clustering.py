"""Clusters of nodes, found without a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClusterMixin
from sklearn.cluster import KMeans
from torch import Tensor

from torch_gckm.estimators.base import NODES_PER_CHANNEL, LayersEstimator
from torch_gckm.gram import GramLike
from torch_gckm.graph import Normalize, PropagationLike
from torch_gckm.kernels import KernelLike


class GCKMClustering(ClusterMixin, LayersEstimator):  # type: ignore[misc]
    """Clusters the nodes of a graph, or the rows of a matrix: k-means on the last of two unsupervised layers.

    Clusters depend on the numbers of channels, which nothing but labels could choose. By default four models take
    part, with ``(k, k)``, ``(2 k, k)``, ``(16, k)`` and ``(32, k)`` channels, and k-means sees their embeddings
    side by side; :doc:`results </results>` compare this with single models.

    .. code-block:: python

        GCKMClustering(n_clusters=7).fit_predict(data)   # x and edge_index
        GCKMClustering(n_clusters=7).fit_predict(X)      # a graph of nearest rows

    Graphs and arrays go in, and answers come out, as with :class:`~torch_gckm.GCKMClassifier`.

    Args:
        n_clusters: The number of clusters ``k``.
        channels: The embedding dimensions of the layers of a single model.
        aggregation: Propagations of the layers, see :class:`~torch_gckm.GCKMConv`.
        kernel: The kernel of the layers.
        hops: How often each layer propagates.
        normalize: How to scale features, see :class:`~torch_gckm.GCKM`.
        n_neighbors: How many nearest rows a row is joined to where no edges are given; at most a quarter of all rows.
        gram: How to represent kernel matrices.
        n_init: How often k-means starts; the best result counts.
        random_state: The seed of k-means.

    Attributes:
        labels_: The cluster of every node, ``[n]``.
        embedding_: The embeddings that were clustered, ``[n, channels]``.
        cluster_centers_: The means of the clusters' embeddings, ``[k, channels]``.
        layers_: The fitted layers, of each of the models.
        graph_: The fitted graph.
        n_features_in_: The number of features.
    """

    labels_: Any
    cluster_centers_: Any

    def __init__(
        self,
        n_clusters: int = 8,
        channels: int | Sequence[int] | None = None,
        aggregation: PropagationLike | Sequence[PropagationLike] = "gcn",
        kernel: KernelLike = "rbf",
        hops: int | Sequence[int] = 1,
        normalize: Normalize = None,
        n_neighbors: int = 10,
        gram: GramLike = "auto",
        n_init: int = 10,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.channels = channels
        self.aggregation = aggregation
        self.kernel = kernel
        self.hops = hops
        self.normalize = normalize
        self.n_neighbors = n_neighbors
        self.gram = gram
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, edge_index: Any = None) -> GCKMClustering:
        """Fit the layers and find the clusters.

        Args:
            X: A ``Data`` object with features ``x`` and edges. Or features ``[n, d]``: NumPy, SciPy sparse or torch.
            y: Not used.
            edge_index: The edges of the rows of a matrix, ``[2, E]``; by default to nearest rows.
        """
        h = self._fit_layers(X, edge_index, self._several)
        self._means = KMeans(self.n_clusters, n_init=self.n_init, random_state=self.random_state).fit(_array(h))
        self.labels_ = self._answer(torch.from_numpy(self._means.labels_).to(h.device).long())
        self.cluster_centers_ = self._answer(torch.from_numpy(self._means.cluster_centers_).to(h))
        return self

    def _several(self, num_nodes: int) -> Sequence[int | Sequence[int]]:
        """The given numbers of channels, or some that a graph of this size can tell apart from noise."""
        if self.channels is not None:
            return [self.channels]
        k = min(self.n_clusters, num_nodes)
        most = max(k, num_nodes // NODES_PER_CHANNEL)
        return [(min(first, most), k) for first in (k, 2 * k, 16, 32)]

    def predict(self, X: Any = None, *, edge_index: Any = None) -> Any:
        """Clusters ``[n]`` of the fitted graph, of another, or of rows: the centres nearest to their embeddings.

        Args:
            X: A ``Data`` object with the complete new graph, or features; ``None`` asks about the fitted graph.
            edge_index: If given, the edges of a whole new graph, whose features are ``X``.
        """
        h = self._ask(X, edge_index)
        return self._answer(torch.from_numpy(self._means.predict(_array(h))).to(h.device).long())


def _array(h: Tensor) -> NDArray[Any]:
    return np.ascontiguousarray(h.cpu().numpy())
