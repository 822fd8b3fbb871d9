"""Embeddings of nodes by unsupervised layers."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from torch_gckm.estimators.base import GraphEstimator, all_or_nothing
from torch_gckm.gram import GramLike
from torch_gckm.graph import Normalize, PropagationLike, warn_of_heavy_tail, weights_of
from torch_gckm.kernels import KernelLike
from torch_gckm.nn import KernelLayers
from torch_gckm.partition import partition_of

SHARED = ("kernel", "aggregation", "normalize", "gram")  # Arguments that layers take as they are.


class LayersEstimator(GraphEstimator):
    """An estimator of unsupervised layers; its values are embeddings."""

    channels: Any
    hops: Any
    aggregation: Any
    directed: bool

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
        self.layers_ = [self._fitted(graph)]
        self.graph_, self.from_rows_ = graph, not isinstance(X, Data)
        h = self._values(None)
        self.embedding_ = self._answer(h)
        self._finish(h)
        return self

    def _finish(self, h: Tensor) -> None:
        """What is left to do once the embeddings of the fitted graph are known."""

    def _fitted(self, graph: Data) -> KernelLayers:
        """The layers, fitted to a graph."""
        options: dict[str, Any] = {name: getattr(self, name) for name in SHARED}
        layers = KernelLayers(self.n_features_in_, self.channels, hops=self.hops, **options)
        return layers.to(graph.x.device).initialize(graph)

    def _fitted_layers(self) -> Sequence[KernelLayers]:
        return self.layers_

    def _values(self, graph: Data | None) -> Tensor:
        return self.layers_[0].embed(graph)


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
        encoding_: How the columns of a table were encoded; ``None`` if it was no table.
        structural_: Whether features were made of the edges, as there were none.
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
