"""From a graph with a few known numbers to those of all nodes."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError, InvalidLabelError
from torch_gckm.estimators.inputs import choose_split, to_matrix
from torch_gckm.estimators.searched import SearchedEstimator, timed
from torch_gckm.files import PathLike, load_tensors
from torch_gckm.gram import GramLike
from torch_gckm.partition import partition_of
from torch_gckm.readout import labels_of, pick_mask
from torch_gckm.select import Space
from torch_gckm.select.ensemble_files import ensemble_from
from torch_gckm.select.result import MEMBERS
from torch_gckm.select.studies import StorageLike

FORMAT = "regressor 3"


class GCKMRegressor(RegressorMixin, SearchedEstimator):  # type: ignore[misc]
    """Predicts numbers for the nodes of a graph, or for the rows of a matrix, from a few known ones.

    It tries settings that did well on other graphs, and averages the predictions of those with the smallest squared
    errors on withheld targets.

    .. code-block:: python

        regressor = GCKMRegressor(budget=10).fit(data)   # x, edge_index, y (NaN: unknown) and perhaps train_mask
        regressor.predict()                              # a number for every node
        regressor.predict(return_std=True)               # and the spread of the errors

    Graphs, arrays and rows that are new are taken as by :class:`~torch_gckm.GCKMClassifier`; in ``y``, NaN means
    unknown. There may be several columns of targets, which are predicted by the same settings; a node may lack some.

    Args:
        search, budget, max_settings: As of :class:`~torch_gckm.GCKMClassifier`.
        members: How many of the best settings are combined.
        gram: How to represent kernel matrices.
        random_state: The seed of the search, as scikit-learn takes it.
        workers: How many settings to fit at a time; by default as many as there are cores, on small graphs.
        progress: Show what is being done, and the time left.
        n_neighbors: How many nearest rows a row is joined to where no edges are given; at most a quarter of all rows.
        checkpoint: A file to keep the settings in that were tried; a later fit, with a budget of its own, continues it.
        storage, study: Where to share the search with other processes, see :func:`~torch_gckm.select.search`.
        directed: Keep directions of edges, see :class:`~torch_gckm.GCKMClassifier`.

    Attributes:
        model_: The fitted :class:`~torch_gckm.select.ValueEnsemble`.
        result_: All settings that were tried, ranked; ``None`` if the regressor was read from a file.
        graph_: The fitted graph.
        labels_: The targets that were given, and the nodes to judge by.
        node_names_: The names of the nodes, if they were given.
        seconds_: How long the parts of the fit took.
        n_features_in_: The number of features.
        feature_names_in_: The names of the features, if they were given.
        encoding_: How the columns of a table were encoded; ``None`` if it was no table.
        structural_: Whether features were made of the edges, as there were none.
        from_rows_: Whether the fit was to arrays.
        edges_given_: Whether it was given edges.
        directed_: Whether directions of edges are kept.
        has_columns_: Whether the targets were a matrix, so that predictions are one.
    """

    def __init__(
        self,
        search: Literal["auto"] | Space | None = "auto",
        budget: float | None = 10.0,
        max_settings: int | None = None,
        members: int = MEMBERS,
        gram: GramLike = "auto",
        random_state: int | np.random.RandomState | None = 0,
        workers: int | None = None,
        progress: bool = True,
        n_neighbors: int = 10,
        checkpoint: PathLike | None = None,
        storage: StorageLike | None = None,
        study: str = "gckm",
        directed: bool = False,
    ) -> None:
        self.search, self.budget, self.max_settings, self.members = search, budget, max_settings, members
        self.gram, self.random_state, self.workers = gram, random_state, workers
        self.progress, self.n_neighbors, self.checkpoint = progress, n_neighbors, checkpoint
        self.storage, self.study, self.directed = storage, study, directed

    @timed
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        edge_index: Any = None,
        edge_weight: Any = None,
        split: int | None = None,
        node_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> Self:
        """Search, fit and combine.

        Args:
            X: A ``Data`` object: features ``x``, edges, targets ``y`` (NaN: unknown) and perhaps ``train_mask``. Or
                features ``[n, d]``: pandas, NumPy, SciPy sparse or torch.
            y: The targets of the rows of a matrix, ``[n]`` or ``[n, p]``, NaN: unknown.
            edge_index: The edges of the rows of a matrix, ``[2, E]``; by default to nearest rows.
            edge_weight: The weights of these edges, ``[E]``.
            split: The column to use of masks ``[n, splits]``.
            node_names: The names of the nodes, to be kept in :attr:`node_names_`.
            feature_names: The names of the features of a ``Data`` object, to be kept in ``feature_names_in_``.
        """
        self._check_options()
        from_rows = not isinstance(X, Data)
        if not from_rows and y is not None:
            raise InvalidInputError("a Data object has its own edges and labels; pass no 'edge_index' or 'y' too")
        graph, _ = self._take(X, edge_index, edge_weight=edge_weight)
        graph.y = torch.from_numpy(_numbers(y, graph.num_nodes)) if from_rows else _numbers_of(graph)
        choose_split(graph, split)
        self.labels_, self.has_columns_ = self._fit_model(graph, None).evaluator.labels, graph.y.dim() == 2
        self._keep_names(node_names, feature_names, from_rows)
        return self

    def predict(
        self,
        X: Any = None,
        *,
        edge_index: Any = None,
        edge_weight: Any = None,
        new_edges: Any = None,
        return_std: bool = False,
    ) -> Any:
        """Numbers ``[n]`` or ``[n, p]`` for the fitted graph, for another, or for rows.

        Args:
            X: A ``Data`` object with the complete new graph, or features; by default the fitted graph.
            edge_index: If given, the edges of a whole new graph, whose features are ``X``.
            edge_weight: The weights of ``edge_index`` or ``new_edges``, ``[E]``.
            new_edges: If given, the edges that join new rows ``X`` to fitted nodes, see :meth:`GCKMClassifier.predict
                <torch_gckm.GCKMClassifier.predict>`.
            return_std: Also return the root mean square of the errors on withheld targets, in the same shape. It is
                the same for all nodes; the search chose settings by such errors, so expect somewhat larger ones.
        """
        values = self._ask(X, edge_index, edge_weight, new_edges)
        values = values.double() if self.from_rows_ else values  # As scikit-learn's regressors return them.
        spread = self.model_.deviation.to(values).expand_as(values)
        if not self.has_columns_:
            values, spread = values.squeeze(1), spread.squeeze(1)
        return (self._answer(values), self._answer(spread)) if return_std else self._answer(values)

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        edge_index: Any = None,
        edge_weight: Any = None,
        mask: Tensor | str = "test_mask",
        split: int | None = None,
    ) -> float:
        """The coefficient of determination on some nodes of a graph, by default its ``test_mask``, or on rows.

        Targets that are unknown do not count. The arguments are those of :meth:`GCKMClassifier.score
        <torch_gckm.GCKMClassifier.score>`.
        """
        partition_of(X).refuse("scores of predicted numbers are", "collect predictions and targets, and score these")
        predicted = to_matrix(self.predict(X, edge_index=edge_index, edge_weight=edge_weight))
        if isinstance(X, Data):
            if y is not None or sample_weight is not None:
                raise InvalidInputError("a Data object has its own targets; choose nodes of it with mask=")
            if isinstance(mask, str) and X.get(mask) is None:
                raise InvalidInputError(f"the graph has no '{mask}'; say with mask= which nodes to score")
            true = _numbers_of(X).cpu().numpy()
            used = to_matrix(pick_mask(X[mask] if isinstance(mask, str) else mask, X.num_nodes, split, "mask") > 0)
        else:
            true = _numbers(y, len(predicted))
            used = np.ones(len(true), dtype=bool)
        used = used & ~np.isnan(true.reshape(len(true), -1)).any(axis=1)
        if not used.any():
            raise InvalidInputError("none of the nodes to score has a target")
        weight = None if sample_weight is None else column_or_1d(to_matrix(sample_weight))[used]
        return float(r2_score(true[used].reshape(predicted[used].shape), predicted[used], sample_weight=weight))

    def save(self, path: PathLike, *, inductive: bool = False) -> None:
        """Write the regressor to one file, atomically; only what new nodes and graphs need if it is ``inductive``."""
        self._require_fit()
        self._write({"format": FORMAT, "has_columns": self.has_columns_}, path, inductive)

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read a regressor that :meth:`save` wrote; executes no code from the file."""
        content = load_tensors(path)
        if content.get("format") != FORMAT:
            raise InvalidInputError(f"'{path}' is not a file of a regressor of this version of torch_gckm")
        loaded = cls()
        loaded._take_content(content, ensemble_from(content, path))
        loaded.has_columns_ = content["has_columns"]
        return loaded

    def _values(self, graph: Data | None, known: Tensor | None = None) -> Tensor:
        model = self._ensemble() if graph is None else self.model_
        predicted: Tensor = model.scores(graph) if known is None else model.scores(graph, known)
        return predicted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _numbers(y: Any, count: int) -> Any:
    """Targets of rows as double precision, ``[n]`` or ``[n, p]``; NaN is allowed, infinity is not."""
    if y is None:
        raise InvalidInputError("a regressor requires y to be passed, but the target y is None")
    y = check_array(to_matrix(y), ensure_2d=False, ensure_all_finite="allow-nan", dtype=np.float64, input_name="y")
    check_consistent_length(y, np.empty(count))
    return y.copy()


def _numbers_of(graph: Data) -> Tensor:
    """Targets of a graph in double precision; whole numbers are numbers, too."""
    y = labels_of(graph)
    if y.is_complex() or y.dtype == torch.bool:
        raise InvalidLabelError(f"real targets are numbers, got {y.dtype} {tuple(y.shape)}")
    return y.double()
