"""From a graph with a few labels to classes, with no other choice to make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import column_or_1d
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.estimators.base import NODES_A_CHANNEL, GraphEstimator
from torch_gckm.estimators.labels import check_blanks, is_labelled, number_labels
from torch_gckm.estimators.rows import to_matrix
from torch_gckm.gram import GramLike
from torch_gckm.nn import GCKM
from torch_gckm.nn.labels import parse_labels, pick_mask
from torch_gckm.select import GCKMEnsemble, SearchResult, Space, search
from torch_gckm.select.criteria import Criterion
from torch_gckm.select.result import MEMBERS
from torch_gckm.train import Trainer


class GCKMClassifier(ClassifierMixin, GraphEstimator):  # type: ignore[misc]
    """Classifies the nodes of a graph, or the rows of a matrix, from a handful of labels.

    It searches for settings by what withheld labels say, so it needs no validation set, and combines
    the best ones.

    .. code-block:: python

        classifier = GCKMClassifier(budget=60).fit(data)   # x, edge_index, y and train_mask
        classifier.predict()                               # the class of every node
        classifier.predict_proba()                         # calibrated
        classifier.suggest(10)                             # the nodes to label next

    It also takes arrays, as scikit-learn does: ``fit(X, y)`` joins every row to its nearest others,
    ``fit(X, y, edge_index=edges)`` takes a graph of the rows; in ``y``, -1 means unlabelled and classes may have
    any names. ``predict(X)`` looks at each row on its own. One that equals a fitted row is that node. Any other
    becomes a node that listens to the nearest fitted rows, which do not hear of it: so fitted rows keep their
    classes, and the answer for a row does not depend on what other rows are asked about.
    After a fit to arrays answers are NumPy arrays, after a fit to a ``Data`` object tensors.

    Args:
        search: ``"auto"`` searches the default space, a :class:`~torch_gckm.select.Space` another one;
            ``None`` fits one model with default settings (and fewer channels on small graphs).
        budget: The time to search for, in seconds; ``None`` for no limit.
        max_settings: The number of settings to try; ``None`` for no limit.
        criterion: How to rank settings, see :mod:`torch_gckm.select.criteria`.
        members: How many of the best settings are combined.
        self_training: Whether they also learn from the classes of nodes that they are sure of; without a search
            there is no ensemble to do so.
        gram: How to represent kernel matrices.
        random_state: The seed of the search.
        workers: How many settings to fit at a time; by default as many as there are cores, on small graphs.
        progress: Show a progress bar.
        neighbours: How many nearest rows a row is joined to where no edges are given; at most a quarter of all rows.

    Attributes:
        classes_: The classes that occur among the labels, in increasing order.
        model_: The fitted ensemble.
        result_: All settings that were tried, ranked; ``None`` without a search.
        graph_: The fitted graph; its ``y`` are places in :attr:`classes_`, its masks those of the split.
        n_features_in_: The number of features.
    """

    classes_: Any
    model_: GCKMEnsemble
    result_: SearchResult | None

    def __init__(
        self,
        search: Literal["auto"] | Space | None = "auto",
        budget: float | None = 60.0,
        max_settings: int | None = None,
        criterion: Criterion = "auto",
        members: int = MEMBERS,
        self_training: bool = True,
        gram: GramLike = "auto",
        random_state: int = 0,
        workers: int | None = None,
        progress: bool = True,
        neighbours: int = 10,
    ) -> None:
        self.search = search
        self.budget = budget
        self.max_settings = max_settings
        self.criterion = criterion
        self.members = members
        self.self_training = self_training
        self.gram = gram
        self.random_state = random_state
        self.workers = workers
        self.progress = progress
        self.neighbours = neighbours

    def fit(self, X: Any, y: Any = None, *, edge_index: Any = None, split: int | None = None) -> GCKMClassifier:
        """Search, fit and combine.

        Args:
            X: A ``Data`` object: features ``x``, edges, labels ``y`` (-1: unknown) and ``train_mask`` (without one,
                every known label is used). Or features ``[n, d]``: NumPy, SciPy sparse or torch.
            y: The labels of the rows of a matrix, -1: unknown.
            edge_index: The edges of the rows of a matrix, ``[2, E]``; by default to nearest rows.
            split: The column to use of masks ``[n, splits]``.
        """
        if not (self.search is None or self.search == "auto" or isinstance(self.search, Space)):
            raise InvalidInputError(f"'search' must be \"auto\", a Space or None, got {self.search!r}")
        check_blanks(y)
        graph, y = self._take(X, edge_index, y)
        classes: Any
        if graph.get("is_of_rows"):
            classes, numbers = number_labels(y)
            graph.y = torch.from_numpy(numbers)
        else:
            classes = _classes_of(graph, split)
            graph.given_y = graph.y
            graph.y = _places(graph.y.reshape(-1).long(), classes)
            for name in ("train_mask", "val_mask", "test_mask"):
                mask = graph.get(name)
                if split is not None and mask is not None and mask.dim() == 2:
                    graph[name] = mask[:, split]
        result = None if self.search is None else self._search(graph, len(classes))
        if result is None:
            model = self._one_model(graph, len(classes))
        else:
            model = result.ensemble(self.members, self_training=self.self_training)
        # All at once: a fit that fails leaves the one before as it was.
        self.graph_, self.classes_, self.model_, self.result_ = graph, classes, model, result
        return self

    def predict(self, X: Any = None, *, edge_index: Any = None) -> Any:
        """Classes ``[n]`` of the fitted graph, of another, or of rows.

        Args:
            X: A ``Data`` object with the complete new graph, or features; ``None`` asks about the fitted graph.
            edge_index: If given, the edges of a whole new graph, whose features are ``X``.
        """
        places = self._ask(X, edge_index).argmax(dim=1)
        return self.classes_[self._answer(places)]

    def predict_proba(self, X: Any = None, *, edge_index: Any = None) -> Any:
        """Calibrated probabilities of :attr:`classes_`, ``[n, num_classes]``; see :meth:`predict`."""
        return self._answer(self._ask(X, edge_index))

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        edge_index: Any = None,
        mask: Tensor | str = "test_mask",
        split: int | None = None,
    ) -> float:
        """The accuracy on some nodes of a graph, by default its ``test_mask``, or on the rows with a label.

        Args:
            X: A ``Data`` object, or features.
            y: The labels of rows, -1: unknown.
            sample_weight: Weights of the rows.
            edge_index: See :meth:`predict`.
            mask: The nodes of a ``Data`` object, or the name of its mask.
            split: The column to use of masks ``[n, splits]``.
        """
        if isinstance(X, Data):
            if y is not None or sample_weight is not None:
                raise InvalidInputError("a Data object has its own labels; choose nodes of it with mask=")
            if isinstance(mask, str) and X.get(mask) is None:
                raise InvalidInputError(f"the graph has no '{mask}'; say with mask= which nodes to score")
            chosen = X[mask] if isinstance(mask, str) else mask
            where = (pick_mask(chosen, X.num_nodes, split, "mask") > 0) & (X.y.reshape(-1) >= 0)
            if not bool(where.any()):
                raise InvalidInputError("none of the nodes to score has a label")
            true, predicted = to_matrix(X.y.reshape(-1)[where]), to_matrix(self.predict(X))[to_matrix(where)]
            return float((true == predicted).mean())
        predicted = to_matrix(self.predict(X, edge_index=edge_index))
        y = column_or_1d(to_matrix(y))
        labelled = is_labelled(y)
        if not labelled.any():
            raise InvalidInputError("none of the rows to score has a label")
        weight = None if sample_weight is None else column_or_1d(to_matrix(sample_weight))[labelled]
        return float(accuracy_score(y[labelled], predicted[labelled], sample_weight=weight))

    def suggest(self, count: int = 10) -> Any:
        """The unlabelled nodes of the fitted graph whose labels would tell most, ``[count]``."""
        self._require_fit()
        return self._answer(self.model_.suggest(count))

    def _values(self, graph: Data | None) -> Tensor:
        return self.model_.predict_proba(graph)

    def _fitted_models(self) -> list[GCKM]:
        return self.model_.members

    def _one_model(self, graph: Data, num_classes: int) -> GCKMEnsemble:
        most = max(2, graph.num_nodes // NODES_A_CHANNEL)
        channels = (min(64, most), min(16, most))
        model = GCKM(graph.num_features, channels, num_classes, gram=self.gram).to(graph.x.device)
        Trainer(model, steps=0, progress=False).fit(graph)
        return GCKMEnsemble([model])

    def _search(self, graph: Data, num_classes: int) -> SearchResult:
        space = self.search if isinstance(self.search, Space) else Space()
        if graph.get("is_of_rows") and space.directions is None:
            space = replace(space, directions=("in",))  # As rows that are new listen.
        return search(
            graph,
            space,
            self.budget,
            self.criterion,
            self.random_state,
            max_settings=self.max_settings,
            num_classes=num_classes,
            gram=self.gram,
            workers=self.workers,
            progress=self.progress,
        )


def _classes_of(data: Data, split: int | None) -> Tensor:
    """The classes that occur among the labels of a graph."""
    if data.y is None:
        raise InvalidInputError("the data object has no labels 'y'; use -1 for unlabelled nodes")
    if not isinstance(data.y, Tensor):
        raise InvalidInputError(
            f"the labels 'y' of a Data object are a tensor of class numbers, got a {type(data.y).__name__}; "
            "number the classes, or call fit(X, y, edge_index=...) with names"
        )
    known, numbers = torch.empty(0, dtype=torch.long), data.y
    if not data.y.is_floating_point() and data.y.dtype != torch.bool:  # Others are refused below.
        y = data.y.reshape(-1).long()
        known = y[y >= 0].unique()
        numbers = _places(y, known) if known.numel() else y
    labels = parse_labels(numbers, data.get("train_mask"), data.num_nodes, known.numel(), split, warn=False)
    classes: Tensor = known[labels.classes[labels.classes >= 0].unique()]
    if classes.numel() < 2:
        raise InvalidInputError(f"labels of at least two classes are needed, got only {classes.tolist()}")
    return classes


def _places(y: Tensor, classes: Tensor) -> Tensor:
    """Places among classes, -1 for labels of other classes."""
    places = torch.searchsorted(classes, y.clamp(min=0)).clamp(max=classes.numel() - 1)
    return torch.where(classes[places] == y, places, -1)
