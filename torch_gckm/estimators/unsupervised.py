"""Embeddings and clusters of nodes, found without a label."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.cluster import KMeans
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from torch_gckm.estimators.base import NODES_PER_CHANNEL, GraphEstimator, all_or_nothing
from torch_gckm.gram import GramLike
from torch_gckm.graph import Normalize, PropagationLike, warn_of_heavy_tail, weights_of
from torch_gckm.kernels import KernelLike
from torch_gckm.nn import KernelLayers
from torch_gckm.partition import partition_of


class LayersEstimator(GraphEstimator):
    """An estimator of unsupervised layers, of one model or several; its values are the embeddings, side by side."""

    channels: Any
    directed: bool
    _power = 0.5

    @all_or_nothing
    @torch.no_grad()
    def fit(self, X: Any, y: Any = None, *, edge_index: Any = None, edge_weight: Any = None) -> Self:
        """Fit the layers, and find the clusters if that is what the estimator is for.

        Args:
            X: A ``Data`` object with features ``x`` and edges. Or features ``[n, d]``: NumPy, SciPy sparse or torch.
            y: Not used.
            edge_index: The edges of the rows of a matrix, ``[2, E]``; by default to nearest rows.
            edge_weight: The weights of these edges, ``[E]``.
        """
        graph, _ = self._take(X, edge_index, edge_weight=edge_weight)
        partition_of(graph).refuse("estimators without labels are", "use torch_gckm.nn.KernelLayers")
        if isinstance(self.aggregation, str):
            how = f"aggregation=Propagation({self.aggregation!r}, weights='log', unit=...) takes logarithms"
            warn_of_heavy_tail(weights_of(graph), how)
        shared = ("kernel", "aggregation", "hops", "normalize", "gram")
        options: dict[str, Any] = {name: getattr(self, name) for name in shared}
        numbers = self._numbers_of_channels(graph.num_nodes)
        models = [KernelLayers(self.n_features_in_, channels, power=self._power, **options) for channels in numbers]
        self.layers_ = [model.to(graph.x.device).initialize(graph) for model in models]
        self.graph_, self.from_rows_ = graph, not isinstance(X, Data)
        h = self._values(None)
        self.embedding_ = self._answer(h)
        self._finish(h)
        return self

    def _finish(self, h: Tensor) -> None:
        """What is left to do once the embeddings of the fitted graph are known."""

    def _numbers_of_channels(self, num_nodes: int) -> Sequence[int | Sequence[int]]:
        """Those of the layers of each model."""
        return [self.channels]

    def _fitted_layers(self) -> Sequence[KernelLayers]:
        return self.layers_

    def _values(self, graph: Data | None) -> Tensor:
        return torch.cat([layers.embed(graph) for layers in self.layers_], dim=1)


class GCKMEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LayersEstimator, BaseTransform):  # type: ignore[misc]
    """Embeds the nodes of a graph, or the rows of a matrix, by unsupervised layers.

    A transformer of scikit-learn, for graphs and arrays as with :class:`~torch_gckm.GCKMClassifier`:

    .. code-block:: python

        h = GCKMEmbedding((32, 8)).fit_transform(data)                     # x and edge_index
        make_pipeline(GCKMEmbedding((32, 8)), LogisticRegression()).fit(X, y)

    And a transform of PyG, which returns the graph with other features. Before a fit it embeds each graph by
    itself; after one it extends the fitted embedding, so that different graphs can be compared:

    .. code-block:: python

        dataset = Planetoid(root, "Cora", transform=GCKMEmbedding((32, 8)))
        embed = GCKMEmbedding((32, 8)).fit(data)
        embed(other_data).x

    Args:
        channels: The embedding dimensions of the layers. New nodes are embedded well along directions that the fitted
            graph determines well: one channel per eight of its nodes is much.
        aggregation: Propagations of the layers, see :class:`~torch_gckm.GCKMConv`.
        kernel: The kernel of the layers.
        hops: How often each layer propagates.
        normalize: How to scale features, see :class:`~torch_gckm.GCKM`.
        n_neighbors: How many nearest rows a row is joined to where no edges are given; at most a quarter of all rows.
        gram: How to represent kernel matrices.
        attr: The attribute that takes the embedding when a graph is transformed as PyG does.
        directed: Keep directions of edges; layers then receive along them. By default all edges count in both
            directions, see :class:`~torch_gckm.GCKMClassifier`.

    Attributes:
        embedding_: The embeddings of the fitted graph, ``[n, channels]``, with orthogonal columns.
        layers_: The fitted layers, as a list of one model.
        graph_: The fitted graph.
        n_features_in_: The number of features.
        from_rows_: Whether the fit was to arrays.
        edges_given_: Whether it was given edges.
        directed_: Whether directions of edges are kept.
    """

    def __init__(
        self,
        channels: int | Sequence[int] = (64, 16),
        aggregation: PropagationLike | Sequence[PropagationLike] = "gcn",
        kernel: KernelLike = "rbf",
        hops: int | Sequence[int] = 1,
        normalize: Normalize = None,
        n_neighbors: int = 10,
        gram: GramLike = "auto",
        attr: str = "x",
        directed: bool = False,
    ) -> None:
        self.channels, self.aggregation, self.kernel, self.hops = channels, aggregation, kernel, hops
        self.normalize, self.n_neighbors, self.gram, self.attr = normalize, n_neighbors, gram, attr
        self.directed = directed

    def transform(self, X: Any, *, edge_index: Any = None, edge_weight: Any = None) -> Any:
        """Embeddings ``[n, channels]`` of a graph or of rows.

        Args:
            X: A ``Data`` object with the complete graph, or features.
            edge_index: If given, the edges of a whole new graph, whose features are ``X``.
            edge_weight: The weights of these edges, ``[E]``.
        """
        return self._answer(self._ask(X, edge_index, edge_weight))

    def forward(self, data: Data) -> Data:
        """A graph with its embedding as :attr:`attr`; what calling the object returns."""
        fitted = self if hasattr(self, "graph_") else clone(self).fit(data)
        data[self.attr] = fitted._ask(data)
        return data

    @property
    def _n_features_out(self) -> int:
        """The number of names that scikit-learn makes up; fewer than planned if the kernel matrix has a lower rank."""
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


class GCKMClustering(ClusterMixin, LayersEstimator):  # type: ignore[misc]
    """Clusters the nodes of a graph, or the rows of a matrix: k-means on the last of two unsupervised layers.

    Clusters depend on the numbers of channels, which nothing but labels could choose. By default four models take
    part, with ``(k, k)``, ``(2 k, k)``, ``(16, k)`` and ``(32, k)`` channels, and k-means gets their embeddings
    side by side; :doc:`results </results>` compare this with single models.

    .. code-block:: python

        GCKMClustering(n_clusters=7).fit_predict(data)   # x and edge_index
        GCKMClustering(n_clusters=7).fit_predict(X)      # a graph of nearest rows

    It takes graphs and arrays, and returns tensors or arrays, as :class:`~torch_gckm.GCKMClassifier` does.

    Args:
        n_clusters: The number of clusters ``k``.
        channels: The embedding dimensions of the layers of a single model.
        aggregation, kernel, hops, normalize, n_neighbors, gram, directed: As for :class:`GCKMEmbedding`.
        n_init: How often k-means starts; the best result counts.
        random_state: The seed of k-means.

    Attributes:
        labels_: The cluster of every node, ``[n]``.
        embedding_: The embeddings that were clustered, ``[n, channels]``.
        cluster_centers_: The means of the clusters' embeddings, ``[k, channels]``.
        layers_: The fitted layers, of each of the models.
        graph_: The fitted graph.
        n_features_in_: The number of features.
        from_rows_: Whether the fit was to arrays.
        edges_given_: Whether it was given edges.
        directed_: Whether directions of edges are kept.
    """

    _power = 0.0  # The numbers of channels were settled with directions that all count alike.

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
        directed: bool = False,
    ) -> None:
        self.n_clusters, self.channels, self.aggregation, self.kernel = n_clusters, channels, aggregation, kernel
        self.hops, self.normalize, self.n_neighbors, self.gram = hops, normalize, n_neighbors, gram
        self.n_init, self.random_state, self.directed = n_init, random_state, directed

    def _finish(self, h: Tensor) -> None:
        means = KMeans(self.n_clusters, n_init=self.n_init, random_state=self.random_state)
        self._means = means.fit(h.cpu().contiguous().numpy())
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

    def _numbers_of_channels(self, num_nodes: int) -> Sequence[int | Sequence[int]]:
        """The given numbers, or some that a graph of this size can tell apart from noise."""
        if self.channels is not None:
            return super()._numbers_of_channels(num_nodes)
        k = min(self.n_clusters, num_nodes)
        most = max(k, num_nodes // NODES_PER_CHANNEL)
        return [(min(first, most), k) for first in (k, 2 * k, 16, 32)]
