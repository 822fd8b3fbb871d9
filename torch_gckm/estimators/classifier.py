"""From a graph with a few labels to classes, with no other choice to make."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from torch_gckm.errors import InvalidInputError
from torch_gckm.estimators.inputs import NumberedLabels, choose_split
from torch_gckm.estimators.scores import score_nodes, score_rows
from torch_gckm.estimators.searched import SearchedEstimator, timed
from torch_gckm.estimators.several import has_several_labels, score_several
from torch_gckm.estimators.tables import check_index, without_blanks
from torch_gckm.files import PathLike, load_tensors
from torch_gckm.gram import GramLike
from torch_gckm.nn.settings import FORMAT as MODEL_FORMAT
from torch_gckm.readout import labels_of
from torch_gckm.select import Space, ValueEnsemble
from torch_gckm.select.class_prior import ClassPrior, checked_prior
from torch_gckm.select.criteria import Criterion
from torch_gckm.select.ensemble_files import ensemble_from
from torch_gckm.select.inductive_ensemble import FORMAT as ENSEMBLE_FORMAT
from torch_gckm.select.result import MEMBERS
from torch_gckm.select.several_labels import label_probabilities, label_scales, labels_as_values
from torch_gckm.select.studies import StorageLike
from torch_gckm.select.suggestions import Reason, explain

FORMAT = "classifier 3"
Names = Sequence[str] | None


class GCKMClassifier(ClassifierMixin, SearchedEstimator):  # type: ignore[misc]
    """Classifies the nodes of a graph, or the rows of a matrix, from a few labels.

    It tries settings that did well on other graphs and combines those that predict withheld labels best, so it needs
    no validation set.

    .. code-block:: python

        classifier = GCKMClassifier(budget=10).fit(data)   # x, edge_index, y and train_mask
        classifier.predict()                               # the class of every node
        classifier.predict_proba()                         # calibrated
        classifier.predict_set(coverage=0.9)               # the classes that cannot be excluded
        classifier.suggest(10)                             # the nodes to label next

    It also takes arrays, as scikit-learn does: ``fit(X, y)`` joins every row to its nearest others, ``fit(X, y,
    edge_index=edges)`` takes a graph of the rows; in ``y``, -1, NaN, None and empty text mean unlabelled. Columns of a
    ``DataFrame`` are encoded, and known by their names: words, dates, blanks, other units.
    ``predict(X)`` treats each row separately. One that equals a fitted row is that node. Any other becomes a node that
    receives from the nearest fitted rows, but they do not receive from it: so fitted rows keep their classes, and the
    prediction for a row does not depend on the others. After a fit to arrays predictions are arrays, else tensors.

    Several labels per node, ``y`` of shape ``[n, L]`` with 0, 1 and -1 (unknown), are predicted as such a matrix.

    Args:
        search: ``"auto"`` tries settings that did well on other graphs, ``None`` only the first of them, twice as many
            as are combined; a :class:`~torch_gckm.select.Space` has random ones.
        budget: The time of the whole fit in seconds, as good as it can be told; ``None`` for no limit. The search ends
            so early that the models can be combined; every call has its own, see :mod:`torch_gckm.select.time_limit`.
        max_settings: The number of settings to try. With ``"auto"``, random ones follow those that did well on other
            graphs if there are not as many; by default there are no random ones.
        criterion: How to rank settings, see :mod:`torch_gckm.select.criteria`.
        members: How many of the best settings are combined.
        self_training: Whether they also learn from the classes of nodes that they are sure of.
        class_prior: The shares of the classes among all nodes, if they are known: a mapping ``{class: share}``, or
            shares in the order of :attr:`classes_`. Probabilities of all nodes then have these shares on average.
        gram: How to represent kernel matrices.
        random_state: The seed of the search, as scikit-learn takes it.
        workers: How many settings to fit at a time; by default as many as there are cores, on small graphs.
        progress: Show what is being done, and the time left.
        n_neighbors: How many nearest rows a row is joined to where no edges are given; at most a quarter of all rows.
        checkpoint: A file to keep the settings in that were tried; a later fit, with a budget of its own, continues it.
        storage, study: Where to share the search with other processes, see :func:`~torch_gckm.select.search`.
        directed: Keep directions of edges, and search among ways to use them. By default all edges count in both
            directions, and a warning says if some were given in one only; so they do in graphs to predict for. A pair
            that occurs twice counts once, with the mean of its weights.

    Attributes:
        classes_: The classes that occur among the labels, in increasing order.
        model_: The fitted ensemble.
        result_: All settings that were tried, ranked; ``None`` if the classifier was read from a file.
        graph_: The fitted graph; its ``y`` are places in :attr:`classes_`, its masks those of the split.
        labels_: The labels that were given, and the nodes to choose and judge by.
        class_names_: The names of the class numbers of a graph, if they were given.
        node_names_: The names of the nodes, if they were given.
        directed_: Whether directions of edges are kept.
        unseen_: How labels that were withheld from the choice of settings, too, are predicted; ``None`` without any.
        scales_: With several labels per node, what turns scores into probabilities, ``[2, L]``; else ``None``.
        seconds_: How long the parts of the fit took.
        n_features_in_, feature_names_in_: The number of features, or of a table's columns, and their names if given.
        encoding_, structural_: How a table was encoded, else ``None``; whether features were made of the edges.
        from_rows_: Whether the fit was to arrays.
        edges_given_: Whether it was given edges.
    """

    scales_: Tensor | None

    def __init__(
        self,
        search: Literal["auto"] | Space | None = "auto",
        budget: float | None = 10.0,
        max_settings: int | None = None,
        criterion: Criterion = "auto",
        members: int = MEMBERS,
        self_training: bool = True,
        class_prior: ClassPrior = None,
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
        self.search, self.budget, self.max_settings, self.criterion = search, budget, max_settings, criterion
        self.members, self.self_training, self.class_prior = members, self_training, class_prior
        self.gram, self.random_state = gram, random_state
        self.workers, self.progress, self.n_neighbors, self.checkpoint = workers, progress, n_neighbors, checkpoint
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
        class_names: Sequence[str] | None = None,
        node_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> Self:
        """Search, fit and combine.

        Args:
            X: A ``Data`` object: features ``x``, edges, labels ``y`` (-1: unknown) and ``train_mask`` (without one,
                every known label is used). Or features ``[n, d]``: pandas, NumPy, SciPy sparse or torch.
            y: The labels of the rows of a matrix, of any kind; unknown: -1, NaN, ``None`` or empty.
            edge_index: The edges of the rows of a matrix, ``[2, E]``; by default to nearest rows.
            edge_weight: The weights of these edges, ``[E]``.
            split: The column to use of masks ``[n, splits]``.
            class_names: The names of the class numbers of a ``Data`` object, which are predicted instead of them.
            node_names: The names of the nodes, to be kept in :attr:`node_names_`.
            feature_names: The names of the features of a ``Data`` object, to be kept in ``feature_names_in_``, as
                those of a table are.
        """
        self._check_options()
        from_rows, several = not isinstance(X, Data | HeteroData), has_several_labels(X, y)
        check_index(X, y)
        graph, y = self._take(X, edge_index, y if several else without_blanks(y), edge_weight)
        if several:
            return self._fit_several(graph, y, split, class_names, (node_names, feature_names))
        numbered = NumberedLabels.of_rows(y) if from_rows else NumberedLabels.of_graph(graph, split, class_names)
        numbered.apply_to(graph, split)
        prior = checked_prior(self.class_prior, numbered.classes.tolist())
        result = self._fit_model(graph, len(numbered.classes), self_training=self.self_training, class_prior=prior)
        self.classes_, self.scales_ = numbered.classes, None
        self.labels_ = replace(result.evaluator.labels, test=numbered.test_nodes(graph))
        self.class_names_ = None if class_names is None or from_rows else list(class_names)
        self._keep_names(node_names, feature_names, from_rows)
        self.unseen_ = result.unseen(self.members)
        if self.unseen_ is not None:
            self.unseen_.warn(stacklevel=3)  # Beyond `all_or_nothing`.
        return self

    def _fit_several(
        self, graph: Data, y: Any, split: int | None, class_names: Names, names: tuple[Names, Names]
    ) -> Self:
        """The same with several labels per node: real targets 0 and 1, and probabilities from withheld ones."""
        if self.class_prior is not None:
            raise InvalidInputError("'class_prior' is about one class per node; there are several labels per node")
        from_rows = y is not None
        graph.y = labels_as_values(torch.as_tensor(y) if from_rows else labels_of(graph))
        choose_split(graph, split)
        columns = graph.y.size(1)
        if class_names is not None and len(class_names) != columns:
            raise InvalidInputError(f"'class_names' has {len(class_names)} names for {columns} labels")
        self.labels_ = self._fit_model(graph, None).evaluator.labels
        assert isinstance(self.model_, ValueEnsemble)
        self.scales_ = label_scales(self.model_.left_out(), self.model_.known())
        self.class_names_ = self.unseen_ = None
        self.classes_ = np.arange(columns) if class_names is None else np.array(class_names)
        self._keep_names(*names, from_rows)
        return self

    def predict(self, X: Any = None, *, edge_index: Any = None, edge_weight: Any = None, new_edges: Any = None) -> Any:
        """Classes ``[n]`` of the fitted graph, of another, or of rows.

        Args:
            X: A ``Data`` object with the complete new graph, or features; by default the fitted graph.
            edge_index: If given, the edges of a whole new graph, whose features are ``X``.
            edge_weight: The weights of ``edge_index`` or ``new_edges``, ``[E]``.
            new_edges: If given, ``X`` are ``m`` new rows, and this the edges ``[2, E]`` that join them to the ``n``
                fitted nodes, which are 0 to ``n - 1``, or to each other: they are ``n`` to ``n + m - 1``. They
                receive from fitted nodes, which stay as they are.
        """
        values = self._ask(X, edge_index, edge_weight, new_edges)
        if self.scales_ is not None:
            return self._answer((values > 0.5).long())
        places = values.argmax(dim=1)
        if isinstance(self.classes_, np.ndarray):
            return self.classes_[places.cpu().numpy()]
        return self.classes_.to(places.device)[places]

    def predict_proba(
        self, X: Any = None, *, edge_index: Any = None, edge_weight: Any = None, new_edges: Any = None
    ) -> Any:
        """Calibrated probabilities of :attr:`classes_`, ``[n, num_classes]``; see :meth:`predict`."""
        return self._answer(self._ask(X, edge_index, edge_weight, new_edges))

    def predict_set(
        self, coverage: float = 0.9, *, per_class: bool = False, randomize: bool = False, seed: int = 0
    ) -> Any:
        """The :attr:`classes_` that cannot be excluded for the nodes of the fitted graph, boolean ``[n, num_classes]``.

        About ``coverage`` of the sets hold the class of their node; not guaranteed, as the labels have chosen the
        settings. See :meth:`GCKMEnsemble.predict_set <torch_gckm.select.GCKMEnsemble.predict_set>`.
        """
        return self._answer(self._ensemble().predict_set(coverage, per_class=per_class, randomize=randomize, seed=seed))

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
        """The accuracy on some nodes of a graph, by default its ``test_mask``, or on the rows with a label.

        Args:
            X: A ``Data`` object, or features.
            y: The labels of rows, -1: unknown.
            sample_weight: Weights of the rows.
            edge_index: See :meth:`predict`.
            edge_weight: See :meth:`predict`.
            mask: The nodes of a ``Data`` object, or the name of its mask.
            split: The column to use of masks ``[n, splits]``.
        """
        if self.scales_ is not None:
            return score_several(self, X, y, sample_weight, (edge_index, edge_weight), mask, split)
        if isinstance(X, Data):
            return score_nodes(self, X, y, sample_weight, mask, split)
        return score_rows(self, X, y, sample_weight, (edge_index, edge_weight))

    def suggest(self, count: int = 10) -> Any:
        """The unlabelled nodes of the fitted graph whose labels would tell most, ``[count]``."""
        return self._answer(self._ensemble().suggest(count))

    def explain_suggestions(self, nodes: Any) -> list[Reason]:
        """What is predicted for some nodes of the fitted graph, and between which classes the model is unsure."""
        return explain(self._ensemble().predict_proba(), nodes, self.classes_.tolist())

    def save(self, path: PathLike, *, inductive: bool = False) -> None:
        """Write the classifier to one file, atomically, with the features and edges of the fitted graph.

        Args:
            path: The file.
            inductive: Write only what other graphs need: neither the fitted graph nor names of its nodes.
        """
        self._require_fit()
        own = {
            "format": FORMAT,
            "classes": self.classes_ if isinstance(self.classes_, Tensor) else self.classes_.tolist(),
            "class_names": self.class_names_,
            "scales": self.scales_,
        }
        self._write(own, path, inductive)

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read a classifier that :meth:`save` wrote; executes no code from the file.

        A file of a ``GCKMEnsemble`` or of a single ``GCKM`` becomes a classifier whose classes are numbers.
        """
        content = load_tensors(path)
        if content.get("format") not in (FORMAT, ENSEMBLE_FORMAT, MODEL_FORMAT):
            raise InvalidInputError(f"'{path}' is not a file of a classifier of this version of torch_gckm")
        loaded = cls()
        loaded._take_content(content, ensemble_from(content, path))
        classes = content.get("classes", torch.arange(loaded.model_.out_channels))
        loaded.classes_ = classes if isinstance(classes, Tensor) else np.array(classes)
        loaded.class_names_, loaded.scales_, loaded.unseen_ = content.get("class_names"), content.get("scales"), None
        return loaded

    def _values(self, graph: Data | None, known: Tensor | None = None) -> Tensor:
        model = self._ensemble() if graph is None else self.model_
        scores = model.scores(graph) if known is None else model.scores(graph, known)
        return model.probabilities(scores) if self.scales_ is None else label_probabilities(scores, self.scales_)
