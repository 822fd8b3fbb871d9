"""What there is to see of a node: its most unusual features, and its neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.estimators.inputs import to_matrix
from torch_gckm.graph import canonical_edges, graph_of


@dataclass(frozen=True)
class Value:
    """A feature of a node."""

    name: str
    value: float
    mean: float  # Of all nodes.
    deviations: float  # From the mean, in standard deviations of all nodes.


class NodeDetails:
    """Features and neighbours of every node of a graph.

    Args:
        graph: Features ``x``, dense or sparse, and edges.
        feature_names: The names of the features; by default their numbers, from 1 on.
    """

    def __init__(self, graph: Data, feature_names: Sequence[str] | None = None) -> None:
        features, adjacency, weight = graph_of(graph)
        self._x = to_matrix(features)
        if (encoding := graph.get("encoding")) is not None and not encoding.is_plain:
            self._x = encoding.unscaled(self._x if isinstance(self._x, np.ndarray) else self._x.toarray())
        count, width = self._x.shape
        if feature_names is not None and len(feature_names) != width:
            raise InvalidInputError(f"{len(feature_names)} 'feature_names' for {width} features")
        self._names = feature_names or [f"column {place + 1}" for place in range(width)]
        is_sparse = scipy.sparse.issparse(self._x)
        self._mean = np.asarray(self._x.mean(axis=0, dtype=float)).ravel()
        # Without a copy of a dense matrix.
        squares = self._x.multiply(self._x).sum(axis=0, dtype=float) if is_sparse else None
        total = np.einsum("nd,nd->d", self._x, self._x, dtype=float) if squares is None else np.asarray(squares).ravel()
        self._deviation = np.sqrt(np.maximum(total / count - np.square(self._mean), 0.0))
        edges, weight = canonical_edges(adjacency, weight, count)
        values = np.ones(edges.size(1)) if weight is None else weight.abs().double().cpu().numpy()
        joined = scipy.sparse.coo_matrix((values, tuple(edges.cpu().numpy())), shape=(count, count)).tocsr()
        self._joined = joined.maximum(joined.T).tocsr()  # In whichever direction.

    def unusual(self, node: int, count: int = 8) -> list[Value]:
        """The features in which a node differs most from all nodes, the most unusual first."""
        row = self._x[[node]]
        row = (row.toarray() if scipy.sparse.issparse(row) else row).ravel().astype(float)
        away = np.divide(row - self._mean, self._deviation, out=np.zeros_like(row), where=self._deviation > 1e-12)
        order = np.argsort(-np.abs(away), kind="stable")[:count].tolist()
        return [Value(self._names[place], row[place], self._mean[place], away[place]) for place in order if away[place]]

    def neighbours(self, node: int) -> list[int]:
        """The nodes that a node is joined to, those of the largest weights first."""
        start, stop = self._joined.indptr[node : node + 2]
        others, weights = self._joined.indices[start:stop], self._joined.data[start:stop]
        return [int(other) for other in others[np.lexsort((others, -weights))] if other != node]
