"""What is drawn: one model, an ensemble, or an estimator that holds one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.nn import GCKM
from torch_gckm.select import GCKMEnsemble
from torch_gckm.train.labelling import Labelling


@dataclass(frozen=True)
class Subject:
    """A fitted model with names for its classes, and what an estimator keeps of its fit."""

    model: GCKM | GCKMEnsemble
    names: list[str]
    graph: Data | None = None  # Its labels are numbered as the model does.
    labels: Labelling | None = None
    nodes: list[str] | None = None  # The names of the nodes.

    @classmethod
    def of(cls, model: Any, names: Sequence[str] | None = None) -> Self:
        """From a ``GCKM``, ``GCKMEnsemble`` or ``GCKMClassifier``; the names default to its classes, else numbers."""
        found, classes = getattr(model, "model_", model), getattr(model, "classes_", None)
        if not isinstance(found, GCKM | GCKMEnsemble):
            kind = type(model).__name__
            raise InvalidInputError(f"a fitted GCKM, GCKMEnsemble or GCKMClassifier is needed, got {kind}")
        if not found.is_fitted:
            raise NotFittedError("the model is not fitted to a graph, so there is nothing to show yet")
        numbers = range(found.out_channels) if classes is None else classes.tolist()
        used = [str(name) for name in (numbers if names is None else names)]
        if len(used) != found.out_channels:
            raise InvalidInputError(f"there are {found.out_channels} classes, but {len(used)} names for them")
        return cls(found, used, *(getattr(model, name, None) for name in ("graph_", "labels_", "node_names_")))

    @property
    def members(self) -> list[GCKM]:
        """The models of an ensemble, or the one model."""
        return self.model.members if isinstance(self.model, GCKMEnsemble) else [self.model]

    @property
    def labelled(self) -> Tensor:
        """The nodes whose labels were given, without further ones of self-training, ``[b]``."""
        return self.model.labelled if isinstance(self.model, GCKMEnsemble) else self.model.readout.labelled

    @property
    def label_class(self) -> Tensor:
        """The classes of the labelled nodes, ``[b]``."""
        return self.members[0].readout.fit.label_class[self.labelled]

    def data(self, data: Data | None) -> Data:
        """The fitted graph, which a model does not keep and must be given."""
        data = data if self.graph is None else self.graph
        if data is None or data.y is None or not self.model.is_fitted_on(data):
            raise InvalidInputError("the graph that the model was fitted on is needed, with its labels")
        return data

    def labelling(self, data: Data, split: int | None = None) -> Labelling:
        """The labels of the graph; raises if they are not those that the model was given."""
        labels = self.labels or Labelling.of(data, self.model.out_channels, split)
        nodes, classes = labels.targets.labelled, labels.targets.labels
        if not torch.equal(nodes, self.labelled) or not torch.equal(classes, self.label_class):
            raise InvalidInputError(
                f"the graph has {nodes.numel()} labels that are not the {self.labelled.numel()} that the model was "
                "given; pass the same train_mask, and the same split="
            )
        return labels
