"""Clusters of nodes, found without a label."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import ClusterMixin
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn.functional import normalize as unit_rows
from torch_geometric.data import Data

from torch_gckm.errors import LowRankWarning, ZeroRowWarning
from torch_gckm.estimators.base import NODES_PER_CHANNEL
from torch_gckm.estimators.embedding import SHARED, LayersEstimator
from torch_gckm.estimators.hops import Clusters, best_hops, shares_by_hops
from torch_gckm.gram import GramLike
from torch_gckm.graph import Normalize, PreparedGraph, PropagationLike, graph_of
from torch_gckm.kernels import KernelLike, NormalizedPolynomial
from torch_gckm.nn import KernelLayers

CHANNELS = 32
POWER = 0.25  # Of eigenvalues: between directions that all count alike (0) and kernel PCA's coordinates (0.5).
NORM_OFFSET = 0.1  # Of the usual length of a row: rows of zeros have a place, others hardly change.


class GCKMClustering(ClusterMixin, LayersEstimator):  # type: ignore[misc]
    """Clusters the nodes of a graph, or the rows of a matrix: k-means on an unsupervised layer.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        channels: int | Sequence[int] | None = None,
        aggregation: PropagationLike | Sequence[PropagationLike] = "ssgc",
        kernel: KernelLike | None = None,
        hops: int | Sequence[int] | Literal["auto"] = "auto",
        normalize: Normalize = None,
        n_neighbors: int = 10,
        gram: GramLike = "auto",
        n_init: int = 10,
        random_state: int | np.random.RandomState | None = 0,
        directed: bool = False,
    ) -> None:
        self.n_clusters, self.channels, self.aggregation, self.kernel = n_clusters, channels, aggregation, kernel
        self.hops, self.normalize, self.n_neighbors, self.gram = hops, normalize, n_neighbors, gram
        self.n_init, self.random_state, self.directed = n_init, random_state, directed

    def _made(self, graph: Data) -> KernelLayers:
        self.explained_: dict[int, float] = {}
        if self.hops != "auto":
            self.hops_ = self.hops
        else:
            self.hops_ = 1
            if isinstance(self.aggregation, str) and self.aggregation != "none" and self._has_choice(graph):
                self.explained_ = self._explained(graph)
                self.hops_ = best_hops(self.explained_)
        return self._layers(graph, self.hops_)

    @staticmethod
    def _has_choice(graph: Data) -> bool:
        x, edge_index, _ = graph_of(graph)
        return x.size(1) > 1 

    def _layers(self, graph: Data, hops: Any) -> KernelLayers:
        """Layers for this graph."""
        num_nodes, num_features = graph.x.shape
        channels = self.channels
        if channels is None:
            channels = min(max(CHANNELS, self.n_clusters), max(self.n_clusters, num_nodes // NODES_PER_CHANNEL))
            channels = max(1, min(channels, num_features, num_nodes - 1))
        options: dict[str, Any] = {name: getattr(self, name) for name in SHARED}
        if self.kernel is None:
            options["kernel"] = NormalizedPolynomial(1, "auto", scale=NORM_OFFSET)
        return KernelLayers(num_features, channels, hops=hops, power=POWER, **options).to(graph.x.device)

    def _explained(self, graph: Data) -> dict[int, float]:
        prepared: dict[int, PreparedGraph] = {}

        def clusters(part: Data, hops: int) -> Clusters:
            layers = self._layers(part, hops)
            if id(part) not in prepared:
                prepared[id(part)] = layers.prepare_for_fit(part)
            h = layers.initialize(prepared[id(part)]).embed()
            return self._k_means(unit_rows(h)).labels_

        with warnings.catch_warnings():  # About halves of the features, which the caller does not know of.
            warnings.simplefilter("ignore", LowRankWarning)
            warnings.simplefilter("ignore", ZeroRowWarning)
            return shares_by_hops(graph, clusters)

    def _k_means(self, h: Tensor) -> KMeans:
        means = KMeans(self.n_clusters, n_init=self.n_init, random_state=self.random_state)
        return means.fit(h.cpu().contiguous().numpy())

    def _values(self, graph: Data | None) -> Tensor:
        return unit_rows(super()._values(graph))

    def _finish(self, h: Tensor) -> None:
        self._means = self._k_means(h)
        self.labels_ = self._answer(torch.from_numpy(self._means.labels_).to(h.device).long())
        self.cluster_centers_ = self._answer(torch.from_numpy(self._means.cluster_centers_).to(h))

    def predict(self, X: Any = None, *, edge_index: Any = None, edge_weight: Any = None) -> Any:
        """Clusters ``[n]`` of the fitted graph, of another, or of rows: the centres nearest to their embeddings.

        Args:
            X: A ``Data`` object with the complete new graph, or features; by default the fitted graph.
            edge_index: If given, the edges of a whole new graph, whose features are ``X``.
            edge_weight: The weights of these edges, ``[E]``.
        """
        h = self._ask(X, edge_index, edge_weight)
        clusters = torch.from_numpy(self._means.predict(h.cpu().contiguous().numpy()))
        return self._answer(clusters.to(h.device).long())
