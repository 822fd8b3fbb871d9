"""What the estimators have in common: graphs or arrays in, tensors or arrays out."""

import copy
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import scipy.sparse
import sklearn.exceptions
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from torch_gckm import errors
from torch_gckm.errors import InvalidInputError
from torch_gckm.estimators.edges import require_same_edges, to_edges, to_weights, undirected
from torch_gckm.estimators.inputs import join, neighbour_graph, places_among, to_matrix, to_tensor
from torch_gckm.estimators.tables import check_encoding, check_index, encoded, encoding_of, learned
from torch_gckm.graph import graph_of, with_structural_features
from torch_gckm.layouts import warn_of_lost_digits
from torch_gckm.nn import GCKM, KernelLayers
from torch_gckm.partition import partition_of
from torch_gckm.tables import TableEncoding

# With more channels, the last directions of a small kernel matrix are noise, and new nodes land anywhere along them.
NODES_PER_CHANNEL = 8


class NotFittedError(errors.NotFittedError, sklearn.exceptions.NotFittedError):  # type: ignore[misc]
    """An estimator is used before it was fitted; an error of this package and of scikit-learn alike."""


P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound="GraphEstimator")


def all_or_nothing(fit: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """A fit that fails leaves the estimator as it was."""

    @wraps(fit)
    def guarded(self: E, /, *args: P.args, **kwargs: P.kwargs) -> R:
        before = self.__dict__.copy()
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            self.__dict__ = before
            raise

    return guarded


class GraphEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that is fitted to one graph and predicts for it, for other graphs, and for rows that are new."""

    graph_: Data  # The graph that was fitted, given or made of the rows of X.
    from_rows_: bool  # Whether it was made of the rows of a matrix; predictions are then arrays, else tensors.
    edges_given_: bool  # Whether its edges were given, rather than made from rows: then equal rows are different nodes.
    directed_: bool  # Whether directions of edges are kept; else all edges count in both.
    n_features_in_: int
    encoding_: TableEncoding | None  # How tables with named columns become matrices; None: a fit to another X.
    structural_: bool  # Whether features were made of the edges, so that only nodes of the fitted graph have any.
    n_neighbors: int
    directed: bool

    @abstractmethod
    def _values(self, graph: Data | None) -> Tensor:
        """What is predicted for every node of the fitted graph, or of another, ``[n, c]``."""

    @abstractmethod
    def _fitted_layers(self) -> Sequence[KernelLayers]:
        """The models that the values come from."""

    def _take(
        self, X: Any, edge_index: Any = None, y: Any = "no_validation", edge_weight: Any = None
    ) -> tuple[Data, Any]:
        """The graph to fit, and checked labels if there are some beside it."""
        check_index(X, y)
        _check_edges(X, edge_index, edge_weight)
        self.directed_ = bool(self.directed)
        check_count("n_neighbors", self.n_neighbors)
        if isinstance(X, Data | HeteroData):
            if not (y is None or isinstance(y, str)):
                raise InvalidInputError("a Data object has its own edges and labels; pass no 'edge_index' or 'y' too")
            if isinstance(X, Data) and X.get("x") is None:
                X = with_structural_features(X)
            self.structural_ = isinstance(X, Data) and bool(X.get("structural"))
            self.n_features_in_ = graph_of(X)[0].size(1)
            _warn_of_no_edges(X)
            self.__dict__.pop("feature_names_in_", None)  # Of an earlier fit to a table.
            self.edges_given_ = True
            graph = copy.copy(self._as_fitted(X, warn=True))
            self._keep_encoding(graph.get("encoding"))
            if "encoding" in graph:
                del graph["encoding"]
            return graph, None
        checked, self.structural_ = self._check(X, y, reset=True), False
        self.edges_given_ = edge_index is not None
        x, y = (checked, None) if isinstance(y, str) else checked
        if edge_index is None:
            return Data(x=to_tensor(x), edge_index=neighbour_graph(x, self.n_neighbors)), y
        graph = Data(x=to_tensor(x), edge_index=to_edges(edge_index), edge_weight=to_weights(edge_weight))
        return self._as_fitted(graph, warn=True), y

    def _as_fitted(self, graph: Data, *, warn: bool = False) -> Data:
        """A graph with its edges taken as those of the fitted one are."""
        return graph if self.directed_ else undirected(graph, warn=warn)

    def _ask(self, X: Any = None, edge_index: Any = None, edge_weight: Any = None) -> Tensor:
        """The values of every node of a graph, or of every row of a matrix, ``[n, c]``."""
        self._require_fit()
        _check_edges(X, edge_index, edge_weight)
        if X is not None and getattr(self, "structural_", False):
            require_same_edges(X, self.graph_ if hasattr(self, "graph_") else None, self._as_fitted)
            return self._values(None)
        if isinstance(X, Data):
            check_encoding(self, X)
            _warn_of_no_edges(X)
        if X is None or isinstance(X, Data | HeteroData):
            return self._values(X if X is None else self._as_fitted(X))
        x = self._check(X, reset=False)
        if edge_index is not None:
            graph = Data(x=to_tensor(x), edge_index=to_edges(edge_index), edge_weight=to_weights(edge_weight))
            return self._values(self._as_fitted(graph))
        self._require_graph()
        if not self._fitted_layers()[0].is_fitted_on(self.graph_):
            raise errors.GraphMismatchError("the fitted graph was changed since; fit again, or pass a whole new graph")
        known = to_matrix(self.graph_.x)
        if scipy.sparse.issparse(x) != scipy.sparse.issparse(known):
            x = scipy.sparse.csr_matrix(x) if scipy.sparse.issparse(known) else x.toarray()
        places = places_among(x, known.astype(np.float32, copy=False), are_nodes=self.edges_given_)
        values, new = self._values(None)[places], places < 0
        if new.any():
            fitted = self._fitted_layers()
            propagations = [conv.aggregation for layers in fitted for conv in layers.layers]
            propagations += [layers.propagation for layers in fitted if isinstance(layers, GCKM)]
            if any(
                getattr(part, "direction", "in") != "in" and getattr(part, "kind", "") != "none"
                for part in propagations
            ):
                raise InvalidInputError(  # A new row has no edge from it, and none to fitted nodes.
                    "rows that are new receive along edges, but some layers receive against them: fit with direction "
                    "'in' (of a search: Space(directions=(\"in\",))), or pass the whole new graph"
                )
            joined = self._values(join(self.graph_, x[new], self.n_neighbors))
            values[torch.from_numpy(new).to(values.device)] = joined[known.shape[0] :]
        return values

    def _check(self, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
        """Rows, and perhaps labels, as scikit-learn checks them; at least two rows for a fit. Tables are encoded."""
        encoding, x = learned(X) if reset else (encoding_of(self), encoded(self, X))
        options = {"accept_sparse": "csr", "dtype": (np.float64, np.float32), "ensure_min_samples": 2 if reset else 1}
        if not reset and encoding is not None and x is not X:
            return check_array(x, **options)  # Its columns are those of the encoding.
        options["multi_output"] = len(getattr(y, "shape", ())) == 2 and y.shape[1] > 1  # Several labels per node.
        if isinstance(y, str):
            del options["multi_output"]
        checked = validate_data(self, to_matrix(x), to_matrix(y), reset=reset, **options)
        if reset:
            self._keep_encoding(encoding)
        x, *rest = checked if isinstance(checked, tuple) else (checked,)
        if reset and isinstance(x, np.ndarray) and x.dtype != np.float32:
            names = getattr(self, "feature_names_in_", None)
            warn_of_lost_digits(torch.tensor(x), torch.float32, None if names is None else list(names))
        with np.errstate(over="ignore"):
            x = x.astype(np.float32, copy=False)
        if not np.isfinite(x.data if scipy.sparse.issparse(x) else x).all():
            raise InvalidInputError("X contains a value too large for single precision; rescale it")
        return (x, *rest) if rest else x

    def _keep_encoding(self, encoding: TableEncoding | None) -> None:
        """Keep how the fitted table was encoded, and its columns."""
        self.encoding_ = encoding
        if encoding is not None:
            self.n_features_in_ = len(encoding.columns)
            self.feature_names_in_ = np.array(encoding.columns, dtype=object)

    def _answer(self, values: Tensor) -> Any:
        """As the fit was given, a tensor or an array."""
        return values.detach().cpu().numpy() if self.from_rows_ else values

    def _require_fit(self) -> None:
        if not hasattr(self, "from_rows_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")

    def _require_graph(self) -> None:
        """Raise unless the fitted graph is here, which new rows are joined to."""
        if not hasattr(self, "graph_"):
            raise InvalidInputError(
                "the estimator was read from a file without its graph (inductive=True), so rows cannot be joined to "
                "fitted nodes; pass a whole new graph, with edges"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def check_count(name: str, value: Any) -> None:
    """Raise unless a parameter is a positive integer."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise InvalidInputError(f"'{name}' must be a positive integer, got {value!r}")


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """The seed that scikit-learn's ``random_state`` stands for; ``None`` is a new one each time."""
    if isinstance(random_state, int | np.integer):
        if not 0 <= random_state < 2**63:
            raise InvalidInputError(f"'random_state' must not be negative, got {random_state}")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def _warn_of_no_edges(graph: Data) -> None:
    if graph.get("edge_index") is None and graph.get("adj_t") is None:
        text = "the graph has no 'edge_index': its nodes are told apart by their features alone"
        warnings.warn(text, errors.GCKMWarning, stacklevel=5)


def _check_edges(X: Any, edge_index: Any, edge_weight: Any) -> None:
    """Refuse edges beside a graph, weights without edges, and several graphs."""
    partition_of(X)
    if edge_index is not None and (X is None or isinstance(X, Data | HeteroData)):
        raise InvalidInputError("'edge_index' goes with a matrix X; a Data object has its own edges")
    if edge_weight is not None and edge_index is None:
        raise InvalidInputError("'edge_weight' goes with 'edge_index'; a Data object has its own weights")
