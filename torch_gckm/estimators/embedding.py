"""Embeddings of nodes, made without a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from torch_gckm.estimators.base import LayersEstimator
from torch_gckm.gram import GramLike
from torch_gckm.graph import Normalize, PropagationLike
from torch_gckm.kernels import KernelLike


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
            graph determines well: a channel for every eight of its nodes is much.
        aggregation: Propagations of the layers, see :class:`~torch_gckm.GCKMConv`.
        kernel: The kernel of the layers.
        hops: How often each layer propagates.
        normalize: How to scale features, see :class:`~torch_gckm.GCKM`.
        n_neighbors: How many nearest rows a row is joined to where no edges are given; at most a quarter of all rows.
        gram: How to represent kernel matrices.
        attr: The attribute that takes the embedding when a graph is transformed as PyG does.

    Attributes:
        embedding_: The embeddings of the fitted graph, ``[n, channels]``, with orthonormal columns.
        layers_: The fitted layers, as a list of one model.
        graph_: The fitted graph.
        n_features_in_: The number of features.
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
    ) -> None:
        self.channels = channels
        self.aggregation = aggregation
        self.kernel = kernel
        self.hops = hops
        self.normalize = normalize
        self.n_neighbors = n_neighbors
        self.gram = gram
        self.attr = attr

    def fit(self, X: Any, y: Any = None, *, edge_index: Any = None) -> GCKMEmbedding:
        """Fit the layers.

        Args:
            X: A ``Data`` object with features ``x`` and edges. Or features ``[n, d]``: NumPy, SciPy sparse or torch.
            y: Not used.
            edge_index: The edges of the rows of a matrix, ``[2, E]``; by default to nearest rows.
        """
        self._fit_layers(X, edge_index, lambda num_nodes: [self.channels])
        return self

    def transform(self, X: Any, *, edge_index: Any = None) -> Any:
        """Embeddings ``[n, channels]`` of a graph or of rows.

        Args:
            X: A ``Data`` object with the complete graph, or features.
            edge_index: If given, the edges of a whole new graph, whose features are ``X``.
        """
        return self._answer(self._ask(X, edge_index))

    def forward(self, data: Data) -> Data:
        """A graph with its embedding as :attr:`attr`; what calling the object returns."""
        fitted = self if hasattr(self, "graph_") else clone(self).fit(data)
        data[self.attr] = fitted._values(data)
        return data

    @property
    def _n_features_out(self) -> int:
        """The number of names that scikit-learn makes up; fewer than planned if the kernel matrix has a lower rank."""
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
