"""Clusters of nodes, found without a label."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn.functional import normalize as unit_rows
from torch_geometric.data import Data

from torch_gckm.errors import GCKMWarning, InvalidInputError, LowRankWarning
from torch_gckm.estimators.base import NODES_PER_CHANNEL
from torch_gckm.estimators.embedding import SHARED, LayersEstimator
from torch_gckm.estimators.hops import Clusters, halves_of, shares_by_hops
from torch_gckm.estimators.inputs import to_matrix
from torch_gckm.gram import GramLike
from torch_gckm.graph import Normalize, PreparedGraph, PropagationLike, Topology, graph_of
from torch_gckm.kernels import KernelLike, NormalizedPolynomial
from torch_gckm.nn import KernelLayers

CHANNELS = 16
POWER = 0.125  # Of eigenvalues: between directions that all count alike (0) and kernel PCA's coordinates (0.5).
OFFSET = 0.1  # Of the usual length of a row: it gives rows of zeros an angle, too.


class GCKMClustering(ClusterMixin, LayersEstimator):  # type: ignore[misc]
    """Clusters the nodes of a graph, or the rows of a matrix: k-means on an unsupervised layer.

    The layer smooths the features (``"ssgc"``) and embeds the nodes by the angles between them. Every embedding is
    scaled to unit length, and k-means finds the clusters.

    .. code-block:: python

        GCKMClustering(n_clusters=7).fit_predict(data)   # x and edge_index
        GCKMClustering(n_clusters=7).fit_predict(X)      # a graph of nearest rows

    With ``hops="auto"`` withheld features decide how far to smooth, with 1, 2, 4, ..., 64 hops. The columns of the
    features are split into two halves. Clusters are found from one half, and measured by the share of the variance of
    the other half, not smoothed, that lies between them. Smoothing that brings nodes of a kind together raises this
    share, smoothing that mixes kinds lowers it. The number of hops with the largest share counts;
    :doc:`Selection </selection>` says what this rests on.

    It takes graphs and arrays, and returns tensors or arrays, as :class:`~torch_gckm.GCKMClassifier` does.

    Args:
        n_clusters: The number of clusters ``k``.
        channels: The embedding dimensions of the layers. By default there is one layer with 16, or ``k`` if that is
            more, and fewer on small graphs: one per eight nodes, but not less than ``k``.
        aggregation: As for :class:`GCKMEmbedding`.
        kernel: The kernel of the layers. By default the cosine of the angle between features, with a constant feature
            of a tenth of the usual length beside them.
        hops: How often each layer propagates. ``"auto"`` chooses for an aggregation that is given by one name, and is
            1 for others.
        normalize, n_neighbors, gram, directed: As for :class:`GCKMEmbedding`.
        n_init: How often k-means starts; the best result counts.
        random_state: The seed of k-means.

    Attributes:
        labels_: The cluster of every node, ``[n]``.
        embedding_: The embeddings that were clustered, ``[n, channels]``, with rows of unit length.
        cluster_centers_: The means of the clusters' embeddings, ``[k, channels]``.
        hops_: How often layers propagate.
        explained_: The share of withheld features that clusters explain, for every number of hops that was tried; empty
            if there was no choice.
        layers_: The fitted layers, as a list of one model.
        graph_: The fitted graph.
        n_features_in_: The number of features.
        encoding_: How the columns of a table were encoded; ``None`` if it was no table.
        structural_: Whether features were made of the edges, as there were none.
        from_rows_: Whether the fit was to arrays.
        edges_given_: Whether it was given edges.
        directed_: Whether directions of edges are kept.
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

    def _fitted(self, graph: Data) -> KernelLayers:
        self.hops_, self.explained_ = self.hops, {}
        if isinstance(self.hops, str):
            if self.hops != "auto":
                raise InvalidInputError(f"'hops' must be \"auto\" or a number for each layer, got {self.hops!r}")
            self.explained_ = self._explained(graph)
            self.hops_ = max(self.explained_, key=lambda hops: self.explained_[hops], default=1)
        with warnings.catch_warnings():
            if self.channels is None:  # Fewer directions than the default are no news.
                warnings.simplefilter("ignore", LowRankWarning)
            return self._layers(graph, self.hops_).initialize(graph)

    def _layers(self, graph: Data | PreparedGraph, hops: int | Sequence[int]) -> KernelLayers:
        num_nodes, num_features = graph.x.shape
        channels = self.channels
        if channels is None:
            most = max(self.n_clusters, num_nodes // NODES_PER_CHANNEL)
            channels = max(1, min(max(CHANNELS, self.n_clusters), most, num_features, num_nodes - 1))
        options: dict[str, Any] = {name: getattr(self, name) for name in SHARED}
        if self.kernel is None:
            options["kernel"] = NormalizedPolynomial(1, "auto", scale=OFFSET)
        return KernelLayers(num_features, channels, hops=hops, power=POWER, **options).to(graph.x.device)

    def _explained(self, graph: Data) -> dict[int, float]:
        """The share of withheld features that clusters explain, by numbers of hops, if these can make a difference."""
        is_named = isinstance(self.aggregation, str) and self.aggregation != "none"
        if not is_named or graph.x.size(1) < 2 or Topology(*graph_of(graph)[1:], graph.num_nodes).edges.size(1) == 0:
            return {}

        with warnings.catch_warnings():  # About halves of the features, which the caller does not know of.
            for kind in (GCKMWarning, ConvergenceWarning):
                warnings.simplefilter("ignore", kind)
            parts = [self._layers(half, 1).prepare_for_fit(half) for half in halves_of(graph)]

            def clusters_of(half: int, hops: int) -> Clusters:
                layers = self._layers(parts[half], hops).initialize(parts[half])
                return self._k_means(unit_rows(layers.embed())).labels_

            return shares_by_hops([to_matrix(part.x) for part in parts], clusters_of)

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
