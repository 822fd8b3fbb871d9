"""From a graph with a few labels to classes, with no other choice to make."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.gram import GramLike
from torch_gckm.nn import GCKM
from torch_gckm.nn.labels import parse_labels, pick_mask
from torch_gckm.select import GCKMEnsemble, SearchResult, Space, search
from torch_gckm.select.criteria import Criterion
from torch_gckm.select.result import MEMBERS
from torch_gckm.train import Trainer

try:
    from sklearn.base import BaseEstimator
except ImportError as error:
    raise ImportError("estimators need scikit-learn; install it with: pip install 'torch_gckm[sklearn]'") from error


class GCKMClassifier(BaseEstimator):  # type: ignore[misc]
    """Classifies the nodes of a graph from a handful of labels.

    It searches for settings by what withheld labels say, so it needs no validation set, and combines
    the best ones.

    .. code-block:: python

        classifier = GCKMClassifier(budget=60).fit(data)   # x, edge_index, y and train_mask
        classifier.predict()                               # the class of every node
        classifier.predict_proba()                         # calibrated
        classifier.suggest(10)                             # the nodes to label next

    Args:
        search: ``"auto"`` searches the default space, a :class:`~torch_gckm.select.Space` another one;
            ``None`` fits one model with default settings.
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

    Attributes:
        classes_: The classes that occur among the labels, in increasing order.
        model_: The fitted ensemble.
        result_: All settings that were tried, ranked; ``None`` without a search.
    """

    classes_: Tensor
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

    def fit(self, data: Data, split: int | None = None) -> GCKMClassifier:
        """Search, fit and combine.

        Args:
            data: Features ``x``, edges, labels ``y`` (-1: unknown) and ``train_mask`` (without one, every
                known label is used).
            split: The column to use of masks ``[n, splits]``.
        """
        if not (self.search is None or self.search == "auto" or isinstance(self.search, Space)):
            raise InvalidInputError(f"'search' must be \"auto\", a Space or None, got {self.search!r}")
        if data.y is None:
            raise InvalidInputError("the data object has no labels 'y'; use -1 for unlabelled nodes")
        most = int(data.y.max()) + 1
        labels = parse_labels(data.y, data.get("train_mask"), data.num_nodes, most, split, warn=False)
        self.classes_ = labels.classes[labels.classes >= 0].unique()
        if self.classes_.numel() < 2:
            raise InvalidInputError(f"labels of at least two classes are needed, got only {self.classes_.tolist()}")
        graph = copy.copy(data)
        graph.y = self._places(data.y.reshape(-1).long())
        self.result_ = None
        if self.search is None:
            model = GCKM(data.num_features, out_channels=self.classes_.numel(), gram=self.gram).to(data.x.device)
            Trainer(model, steps=0, progress=False).fit(graph, split=split)
            self.model_ = GCKMEnsemble([model])
            return self
        self.result_ = search(
            graph,
            None if self.search == "auto" else self.search,
            self.budget,
            self.criterion,
            self.random_state,
            max_settings=self.max_settings,
            num_classes=self.classes_.numel(),
            split=split,
            gram=self.gram,
            workers=self.workers,
            progress=self.progress,
        )
        self.model_ = self.result_.ensemble(self.members, self_training=self.self_training)
        return self

    def predict(self, data: Data | None = None) -> Tensor:
        """Classes ``[n]`` of the fitted graph, or of any other."""
        places = self._fitted().predict(data)
        return self.classes_[places]

    def predict_proba(self, data: Data | None = None) -> Tensor:
        """Calibrated probabilities of :attr:`classes_`, ``[n, num_classes]``."""
        return self._fitted().predict_proba(data)

    def score(self, data: Data, mask: Tensor | str = "test_mask", split: int | None = None) -> float:
        """The accuracy on some nodes of a graph, by default its ``test_mask``."""
        chosen = data[mask] if isinstance(mask, str) else mask
        where = pick_mask(chosen, data.num_nodes, split, "mask") > 0
        return float((self.predict(data)[where] == data.y.reshape(-1)[where]).double().mean())

    def suggest(self, count: int = 10) -> Tensor:
        """The unlabelled nodes of the fitted graph whose labels would tell most, ``[count]``."""
        return self._fitted().suggest(count)

    def _places(self, y: Tensor) -> Tensor:
        """Places of classes in :attr:`classes_`, -1 for those without a label."""
        places = torch.searchsorted(self.classes_, y.clamp(min=0)).clamp(max=self.classes_.numel() - 1)
        return torch.where(self.classes_[places] == y, places, -1)

    def _fitted(self) -> GCKMEnsemble:
        if not hasattr(self, "model_"):
            raise NotFittedError("the classifier is not fitted; call fit(data) first")
        return self.model_
