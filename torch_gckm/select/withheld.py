"""What models predict for labels that were withheld, as far as that means anything.

Leave-out scores are exact only while nothing but the readout has seen the labels. Fine-tuning moves the
embeddings towards them, self-training passes them on to other nodes. So scores are computed for the
state before either: embeddings from kernel PCA, and readouts solved for the given labels only.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import IllPosedError, InvalidInputError
from torch_gckm.graph import PreparedGraph
from torch_gckm.nn import GCKM
from torch_gckm.nn.readout_fit import ReadoutFit
from torch_gckm.readout import Targets, class_similarity
from torch_gckm.select.calibration import calibrate

_REPEATS = 50  # Groups of one label per class.
_MOST_LABELS = 3000  # With more, groups would need too large a matrix, and single labels say enough.


def check_well_posed(fit: ReadoutFit) -> None:
    """Reject a solved readout with some leverage outside (0, 1): its scores of withheld labels mean nothing."""
    leverage = fit.leverage()
    if not panels.holds_everywhere((leverage > 0) & (leverage < 1)):
        extremes = float(panels.smallest(leverage)), float(panels.largest(leverage))
        raise IllPosedError(f"ill-posed: leverages from {extremes[0]:.3g} to {extremes[1]:.3g}")


def groups_to_withhold(classes: Tensor) -> Tensor:
    """Random groups of labels, one of every class that has two; places among the labels, ``[groups, size]``.

    There are no columns if no class has two labels, or if there are so many labels that single ones say enough.
    """
    return one_per_class(classes if classes.numel() <= _MOST_LABELS else classes[:0], _REPEATS)


def one_per_class(classes: Tensor, repeats: int, seed: int = 0) -> Tensor:
    """Random groups with one node of every class that has at least two, ``[repeats, groups' size]``.

    Args:
        classes: The classes of the labelled nodes, ``[n]``.
        repeats: The number of groups.
        seed: The same seed gives the same groups.

    Returns:
        Places among the labelled nodes; no columns if every class has a single one.
    """
    generator = torch.Generator().manual_seed(seed)
    columns = []
    for group in classes.unique().tolist():
        members = panels.rows_where(classes == group)
        if members.numel() > 1:
            columns.append(members[torch.randint(members.numel(), (repeats,), generator=generator)])
    return torch.stack(columns, dim=1) if columns else torch.empty(repeats, 0, dtype=torch.long)


@torch.no_grad()
def withheld_similarity(fit: ReadoutFit, codes: Tensor, groups: Tensor) -> Tensor:
    """A score for every class of every withheld label, the groups one after the other, ``[groups * size, classes]``."""
    withheld = fit.leave_out(fit.labelled[groups])
    return class_similarity(torch.cat(list(withheld)), codes)


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
        drawn: Places in ``nodes``, one per withheld label of a group, ``[g]``.
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
        return float(panels.mean((self.predicted == self.classes).double()))


@torch.no_grad()
def withhold_labels(members: Sequence[GCKM], targets: Targets, names: Sequence[str], *, single: bool) -> Withheld:
    """Withhold the labels of models at step 0, whose readouts are solved for the given labels only.

    Args:
        members: The models.
        targets: The labels that were given.
        names: The names of the classes.
        single: Whether there is one model by itself, whose scores are not divided by their spread.
    """
    nodes, classes = targets.labelled, targets.labels
    kept = targets.counts()[classes] > 1
    if not panels.holds_somewhere(kept):
        raise InvalidInputError("no class has two labels, so none can be withheld")
    groups = groups_to_withhold(classes)
    one_out, group_out, right = [], [], []
    for member in members:
        fit, codes = member.readout.solved_again(targets), member.readout.codes  # One at a time, to save memory.
        check_well_posed(fit)
        alone = class_similarity(fit.leave_one_out(), codes)
        right.append(float(panels.mean((alone.argmax(dim=1) == classes)[kept].double())))
        # With very many labels there are no groups, and single labels say enough.
        grouped = withheld_similarity(fit, codes, groups) if groups.size(1) else alone[kept]
        spread = panels.spread(class_similarity(fit.scores, codes)).clamp(min=1e-12)
        one_out.append(alone[kept] / spread)
        group_out.append(grouped / (1.0 if single else spread))
    drawn = groups.flatten() if groups.size(1) else panels.rows_where(kept)
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
        only_labels=panels.count(~kept),
        names=list(names),
    )


@torch.no_grad()
def at_step_0(model: GCKM, graph: PreparedGraph, targets: Targets) -> GCKM:
    """A copy of a fitted model that is fitted again by kernel PCA, which sees no label, and one solve."""
    duals = {id(part.h) for part in (*model.layers, model.readout)}
    if any(id(parameter) not in duals for parameter in model.parameters()):
        raise InvalidInputError(
            "parameters of kernels or aggregations may have been learned from the labels, "
            "so scores of withheld labels would mean nothing"
        )
    fresh = copy.deepcopy(model).initialize(graph)
    fresh.solve_on(graph, targets)
    return fresh
