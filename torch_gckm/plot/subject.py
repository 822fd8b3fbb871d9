"""What is drawn: one model, an ensemble, or an estimator that holds one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.nn import GCKM
from torch_gckm.nn.labels import Labels, parse_labels
from torch_gckm.select import GCKMEnsemble


@dataclass(frozen=True)
class Subject:
    """A fitted model with names for its classes.

    Attributes:
        model: The model.
        names: The name of every class.
        graph: The fitted graph, if an estimator keeps it; its ``y`` are numbered as the model does.
    """

    model: GCKM | GCKMEnsemble
    names: list[str]
    graph: Data | None = None

    @classmethod
    def of(cls, model: Any, names: Sequence[str] | None = None) -> Subject:
        """From a ``GCKM``, a ``GCKMEnsemble`` or a ``GCKMClassifier``.

        Args:
            model: The fitted model.
            names: Names of the classes; by default those in the ensemble's notes, else numbers.
        """
        found, classes = getattr(model, "model_", model), getattr(model, "classes_", None)
        if not isinstance(found, GCKM | GCKMEnsemble):
            raise InvalidInputError(
                f"a fitted GCKM, GCKMEnsemble or GCKMClassifier is needed, got {type(model).__name__}"
            )
        if not found.is_fitted:
            raise NotFittedError("the model is not fitted to a graph, so there is nothing to show yet")
        kept = found.notes.get("classes") if isinstance(found, GCKMEnsemble) else None
        numbers = range(found.out_channels) if classes is None else classes.tolist()
        used = [str(name) for name in (names if names is not None else kept or numbers)]
        if len(used) != found.out_channels:
            raise InvalidInputError(f"there are {found.out_channels} classes, but {len(used)} names for them")
        return cls(found, used, getattr(model, "graph_", None))

    @property
    def members(self) -> list[GCKM]:
        """The models of an ensemble, or the one model."""
        return self.model.members if isinstance(self.model, GCKMEnsemble) else [self.model]

    @property
    def labelled(self) -> Tensor:
        """The nodes whose labels were given; further ones of self-training do not count."""
        return self.model.labelled if isinstance(self.model, GCKMEnsemble) else self.model.readout.labelled

    @property
    def label_class(self) -> Tensor:
        """The classes of the labelled nodes."""
        return self.members[0].readout.label_class[self.labelled]

    def predict(self) -> Tensor:
        """The class of every node."""
        return self.model.predict()

    def data(self, data: Data | None) -> Data:
        """The fitted graph, which a model does not keep and must be given."""
        data = data if self.graph is None else self.graph
        if data is None or data.y is None or not self.model.is_fitted_on(data):
            raise InvalidInputError("the graph that the model was fitted on is needed, with its labels")
        return data

    def labels(self, data: Data, split: int | None = None) -> Labels:
        """The labels that the model was given; raises if those of the graph are others."""
        mask = data.get("train_mask")
        labels = parse_labels(data.y, mask, data.num_nodes, self.model.out_channels, split, warn=False)
        nodes = (labels.classes >= 0).nonzero().squeeze(1)
        if not torch.equal(nodes, self.labelled) or not torch.equal(labels.classes[nodes], self.label_class):
            raise InvalidInputError(
                f"the graph has {nodes.numel()} labels that are not the {self.labelled.numel()} that the model was "
                "given; pass the same train_mask, and the same split="
            )
        return labels
