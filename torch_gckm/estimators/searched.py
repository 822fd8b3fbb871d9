"""What estimators that search for settings have in common."""

import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.estimators.base import GraphEstimator, all_or_nothing, check_count, seed_of
from torch_gckm.estimators.edges import graph_content, join_by_edges
from torch_gckm.files import PathLike
from torch_gckm.graph import is_directed
from torch_gckm.nn import GCKM
from torch_gckm.nn.settings import save_content
from torch_gckm.partition import WHOLE, partition_of
from torch_gckm.progress import Bar
from torch_gckm.select import GCKMEnsemble, SearchResult, Space, search
from torch_gckm.select.result import PREPARING
from torch_gckm.tables import TableEncoding

_FEW_SETTINGS = 20
_LEAST = 1e-3  # Seconds for a search if none are left.
P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound="SearchedEstimator")


def timed(fit: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """A fit whose budget begins with the call, and that says so at once; if it fails, the estimator is as before."""

    @wraps(fit)
    def begun(self: E, /, *args: P.args, **kwargs: P.kwargs) -> R:
        data = args[0] if args else kwargs.get("X")
        self._preparing = Bar(PREPARING, shown=bool(self.progress) and partition_of(data).rank == 0)
        try:
            return fit(self, *args, **kwargs)
        finally:
            self._preparing.close()
            del self._preparing

    return all_or_nothing(begun)


class SearchedEstimator(GraphEstimator):
    """An estimator that searches for settings and combines the best; ``model_`` is the ensemble of these."""

    model_: Any
    result_: SearchResult | None
    search: Any
    members: int
    progress: bool
    _preparing: Bar  # Since the beginning of a fit.

    @abstractmethod
    def _values(self, graph: Data | None, known: Tensor | None = None) -> Tensor:
        """As of other estimators; ``known`` says where the fitted nodes are in another graph."""

    def _check_options(self) -> None:
        if not (self.search is None or self.search == "auto" or isinstance(self.search, Space)):
            raise InvalidInputError(f"'search' must be \"auto\", a Space or None, got {self.search!r}")
        check_count("members", self.members)

    def _fit_model(self, graph: Data, num_classes: int | None, **combining: Any) -> SearchResult:
        """Search, and combine the best settings, in what is left of the budget."""
        self._preparing.close()
        began, read = time.perf_counter(), self._preparing.seconds
        budget: Any = None if self.search is None else self.get_params(deep=False)["budget"]
        is_limited = isinstance(budget, int | float) and budget > 0
        result = self._search(graph, num_classes, max(budget - read, _LEAST) if is_limited else budget)
        self._warn_of_few(result)
        left = budget - read - (time.perf_counter() - began) if is_limited else None
        self.graph_, self.result_ = graph, result
        self.model_ = result.ensemble(self.members, budget=left, progress=self.progress, **combining)
        self.seconds_ = {**result.seconds, PREPARING: read + result.seconds[PREPARING]}
        return result

    def _search(self, graph: Data, num_classes: int | None, budget: float | None) -> SearchResult:
        space = self.search if isinstance(self.search, Space) else Space()
        if self.directed_ and space.directions is None and is_directed(graph):
            space = replace(space, directions=("both", "in", "out"))
        options: dict[str, Any] = self.get_params(deep=False)
        most, workers = options["max_settings"], options["workers"]
        if self.search is None:
            budget, most, workers = None, 2 * self.members, workers or 1
        return search(
            graph, space, budget, options.get("criterion", "auto"), seed_of(options["random_state"]), max_settings=most,
            members=self.members, num_classes=num_classes, gram=options["gram"], numeric=num_classes is None,
            workers=workers, progress=options["progress"], checkpoint=options["checkpoint"], storage=options["storage"],
            study=options["study"],
        )  # fmt: skip

    def _warn_of_few(self, result: SearchResult) -> None:
        """Warn if the time was too short for a search."""
        options = self.get_params(deep=False)
        is_whole = self.search is None or result.interrupted
        if not is_whole and len(result) < min(_FEW_SETTINGS, options["max_settings"] or _FEW_SETTINGS):
            text = (
                f"the search tried {len(result)} settings in a budget of {options['budget']:g} s; give it a larger one"
            )
            warnings.warn(text, GCKMWarning, stacklevel=6)

    def _keep_names(
        self, node_names: Sequence[str] | None, feature_names: Sequence[str] | None, from_rows: bool
    ) -> None:
        """Keep names that were given, and whether rows were."""
        self.node_names_ = None if node_names is None else list(node_names)
        if feature_names is not None and self.encoding_ is None:
            if len(feature_names) != self.n_features_in_:
                raise InvalidInputError(f"{len(feature_names)} 'feature_names' for {self.n_features_in_} features")
            self.feature_names_in_ = np.array(feature_names, dtype=object)
        self.from_rows_ = from_rows

    def _ask(self, X: Any = None, edge_index: Any = None, edge_weight: Any = None, new_edges: Any = None) -> Tensor:
        """As of other estimators, or of new rows that edges join to fitted nodes, whose embeddings stay, ``[m, c]``."""
        self._require_fit()
        if new_edges is None:
            return super()._ask(X, edge_index, edge_weight)
        if X is None or isinstance(X, Data) or edge_index is not None:
            raise InvalidInputError("'new_edges' goes with the features X of new rows, and without 'edge_index'")
        self._require_graph()
        if self.structural_:
            raise InvalidInputError("the estimator was fitted to a graph without features, and has none of new nodes")
        x = self._check(X, reset=False)
        joined = join_by_edges(self.graph_, x, new_edges, edge_weight, directed=self.directed_)
        size = cast(int, self.graph_.num_nodes)
        return self._values(joined, torch.arange(size, device=joined.x.device))[size:]

    def _content(self, inductive: bool) -> dict[str, Any]:
        """What files of all such estimators hold."""
        self._require_fit()
        encoding = getattr(self, "encoding_", None)
        is_reduced = inductive and isinstance(self.model_, GCKMEnsemble)
        return {
            "ensemble": (self.model_.inductive() if is_reduced else self.model_).content(),
            "from_rows": self.from_rows_,
            "node_names": None if inductive else self.node_names_,
            "directed": self.directed_,
            "graph": graph_content(self.graph_) if hasattr(self, "graph_") and not inductive else None,
            "edges_given": getattr(self, "edges_given_", True),
            "n_neighbors": self.n_neighbors,
            "num_features": self.n_features_in_,
            "structural": self.structural_,
            "encoding": None if encoding is None else encoding.state(),
            "feature_names": list(getattr(self, "feature_names_in_", ())) or None,
        }

    def _write(self, own: dict[str, Any], path: PathLike, inductive: bool) -> None:
        """Write a file of what all such estimators hold, and of the estimator's own."""
        over = self.model_.partition if isinstance(self.model_, GCKMEnsemble) else WHOLE
        save_content(lambda: {**self._content(inductive), **own}, path, over, inductive)

    def _take_content(self, content: dict[str, Any], model: Any) -> None:
        """Become what :meth:`_content` described."""
        self.model_, self.result_, self.node_names_ = model, None, content.get("node_names")
        self.from_rows_, self.directed_ = content.get("from_rows", False), content.get("directed", False)
        if content.get("graph") is not None:
            self.graph_ = Data(**content["graph"])
        self.edges_given_, self.n_neighbors = content.get("edges_given", True), content.get("n_neighbors", 10)
        self.n_features_in_ = content.get("num_features", model.models[0].in_channels)
        self.structural_, state = content.get("structural", False), content.get("encoding")
        self.encoding_ = None if state is None else TableEncoding.from_state(state)
        if content.get("feature_names"):
            self.feature_names_in_ = np.array(content["feature_names"], dtype=object)

    def _fitted_layers(self) -> list[GCKM]:
        return self._ensemble().members

    def _ensemble(self) -> GCKMEnsemble:
        """The fitted ensemble; raises if a file held only what other graphs need."""
        self._require_fit()
        if not isinstance(self.model_, GCKMEnsemble):
            kind = "regressor" if self._estimator_type_is_regressor() else "classifier"
            raise InvalidInputError(f"the {kind} was saved with inductive=True and knows no graph; pass it one")
        return self.model_

    def _estimator_type_is_regressor(self) -> bool:
        return bool(self.__sklearn_tags__().estimator_type == "regressor")
