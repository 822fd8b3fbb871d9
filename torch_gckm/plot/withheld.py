"""What a model says about labels that were withheld from it, as far as that means anything.

Leave-out scores are exact only while nothing but the readout has seen the labels. Fine-tuning moves the
embeddings towards them, self-training passes them on to other nodes. So scores are computed for the
state before either: embeddings from kernel PCA, and readouts solved for the given labels only.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import IllPosedError, InvalidInputError
from torch_gckm.nn import GCKM, SemiSupRKMReadout
from torch_gckm.nn.coding import class_similarity
from torch_gckm.nn.labels import Labels
from torch_gckm.plot.subject import Subject
from torch_gckm.select.trial import quiet
from torch_gckm.select.withheld import groups_to_withhold, withheld_similarity
from torch_gckm.train import History
from torch_gckm.train.metrics import calibrate


@dataclass(frozen=True)
class Withheld:
    """Scores and probabilities of labelled nodes whose own labels were withheld.

    Single labels are withheld for :attr:`predicted`; one label of every class at a time, in 50 random groups, for
    the probabilities, as :class:`~torch_gckm.select.GCKMEnsemble` does to calibrate them.

    Attributes:
        nodes: The labelled nodes whose class has another label, ``[b]``; a class's only label cannot be withheld.
        classes: Their classes, ``[b]``.
        predicted: The classes predicted for them, ``[b]``.
        member_scores: The share of them that each model alone is right about.
        drawn: Places in ``nodes``, one a withheld label of a group, ``[g]``.
        probabilities: Calibrated probabilities of these, ``[g, num_classes]``.
        uncalibrated: For a single model, what its own ``predict_proba`` would say, ``[g, num_classes]``.
        only_labels: How many labels are left out because they are the only ones of their class.
        names: The names of the classes.
    """

    nodes: Tensor
    classes: Tensor
    predicted: Tensor
    member_scores: list[float]
    drawn: Tensor
    probabilities: Tensor
    uncalibrated: Tensor | None
    only_labels: int
    names: list[str]

    @property
    def accuracy(self) -> float:
        """The share of withheld labels that is predicted."""
        return float((self.predicted == self.classes).double().mean())


@torch.no_grad()
def withheld(
    model: Any,
    data: Data | None = None,
    *,
    history: History | None = None,
    names: Sequence[str] | None = None,
    split: int | None = None,
) -> Withheld:
    """Withhold labels of a fitted model, in the state before fine-tuning and self-training.

    An ensemble's readouts are solved again for the given labels. A single model is fitted again as far as step
    0, unless its history says that it is there.

    Args:
        model: A ``GCKM``, ``GCKMEnsemble`` or ``GCKMClassifier``; members of an ensemble are models at step 0.
        data: The graph it was fitted on, with its labels; a ``GCKMClassifier`` keeps it.
        history: The history of the fit, for a single model.
        names: Names of the classes.
        split: The column to use of masks ``[n, splits]``.
    """
    subject = Subject.of(model, names)
    data = subject.data(data)
    labels = subject.labels(data, split)
    nodes = (labels.classes >= 0).nonzero().squeeze(1)
    classes = labels.classes[nodes]
    kept = torch.bincount(classes)[classes] > 1
    if not bool(kept.any()):
        raise InvalidInputError("no class has two labels, so none can be withheld")
    groups = groups_to_withhold(classes)
    single = isinstance(subject.model, GCKM)
    members = [at_step_0(subject.model, data, history, split)] if isinstance(subject.model, GCKM) else subject.members
    one_out, group_out, right = [], [], []
    for member in members:
        readout = _solved_again(member, labels)  # One at a time, to save memory.
        leverage = readout.leverage()
        if not bool(((leverage > 0) & (leverage < 1)).all()):
            raise IllPosedError("the readout is ill-posed, so its scores of withheld labels mean nothing")
        alone = class_similarity(readout.leave_one_out(), readout.codes)
        right.append(float((alone.argmax(dim=1) == classes)[kept].double().mean()))
        # With very many labels there are no groups, and single labels say enough.
        grouped = withheld_similarity(readout, groups) if groups.size(1) else alone[kept]
        spread = class_similarity(readout.scores, readout.codes).std().clamp(min=1e-12)
        one_out.append(alone[kept] / spread)
        group_out.append(grouped / (1.0 if single else spread))
    drawn = groups.flatten() if groups.size(1) else kept.nonzero().squeeze(1)
    mean = torch.stack(group_out).mean(dim=0)
    factor = calibrate(mean, classes[drawn])[0]
    return Withheld(
        nodes=nodes[kept],
        classes=classes[kept],
        predicted=torch.stack(one_out).mean(dim=0).argmax(dim=1),
        member_scores=right,
        drawn=(kept.cumsum(dim=0) - 1)[drawn],
        probabilities=(factor * mean).softmax(dim=1),
        uncalibrated=mean.softmax(dim=1) if single else None,
        only_labels=int((~kept).sum()),
        names=subject.names,
    )


def at_step_0(model: GCKM, data: Data, history: History | None = None, split: int | None = None) -> GCKM:
    """The model, or a copy of it that is fitted again by kernel PCA, which sees no label, and one solve.

    Args:
        model: A fitted model.
        data: The graph it was fitted on, with its labels.
        history: If it says that step 0 was kept, there is nothing to do.
        split: The column to use of masks ``[n, splits]``.
    """
    if history is not None and history.best_step == 0:
        return model
    duals = {id(part.h) for part in (*model.layers, model.readout)}
    if any(id(parameter) not in duals for parameter in model.parameters()):
        raise InvalidInputError(
            "parameters of kernels or aggregations may have been learned from the labels, "
            "so scores of withheld labels would mean nothing"
        )
    with quiet(), torch.no_grad():
        fresh = copy.deepcopy(model).initialize(data, fine_tune=False)
        fresh.solve(data, split=split)
    return fresh


def _solved_again(model: GCKM, labels: Labels) -> SemiSupRKMReadout:
    """A copy of the model's readout, solved for these labels only."""
    readout = copy.deepcopy(model.readout)
    with quiet():
        readout(readout.support.rows(), labels.classes, labels.weight, keep_landmarks=True)
    return readout
