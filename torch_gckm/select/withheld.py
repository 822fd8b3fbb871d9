"""What models predict for labels that were withheld, and the probabilities that fit these.

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

_MOST_LABELS = 3000  # With more, groups would need too large a matrix, and single labels say enough.
_MOST_NUMBERS = 5000  # Scores of withheld labels that a trial keeps.


def check_well_posed(fit: ReadoutFit) -> None:
    """Reject a solved readout with some leverage outside (0, 1): its scores of withheld labels mean nothing."""
    leverage = fit.leverage()
    if not panels.holds_everywhere((leverage > 0) & (leverage < 1)):
        low, high = float(panels.smallest(leverage)), float(panels.largest(leverage))
        raise IllPosedError(f"ill-posed: leverages from {low:.3g} to {high:.3g}")


def groups_to_withhold(classes: Tensor, repeats: int = 50, seed: int = 0) -> Tensor:
    """Random groups of labels, one of every class that has two; places among the labels, ``[repeats, size]``.

    There are no columns if no class has two labels, or if there are so many labels that single ones say enough.
    """
    classes = classes if classes.numel() <= _MOST_LABELS else classes[:0]
    generator = torch.Generator().manual_seed(seed)
    chance = torch.rand(repeats, classes.numel(), generator=generator)  # Of labels, so that classes may be renumbered.
    columns = []
    for group in classes.unique().tolist():
        members = panels.rows_where(classes == group)
        if members.numel() > 1:
            columns.append(members[chance[:, members].argmax(dim=1)])
    return torch.stack(columns, dim=1) if columns else torch.empty(repeats, 0, dtype=torch.long)


@torch.no_grad()
def withheld_similarity(fit: ReadoutFit, codes: Tensor, groups: Tensor) -> Tensor:
    """A score for every class of every withheld label, the groups one after the other, ``[groups * size, classes]``."""
    return class_similarity(torch.cat(list(fit.leave_out(fit.labelled[groups]))), codes)


def labels_in(groups: Tensor) -> Tensor:
    """The labels that are in some group, in increasing order."""
    return groups.unique()


def means_of_groups(similarity: Tensor, groups: Tensor) -> Tensor:
    """The mean scores of every label that is in some group, from those of the groups one after the other."""
    labels = labels_in(groups.to(similarity.device))
    places = torch.searchsorted(labels, groups.flatten().to(similarity.device))
    share = torch.nn.functional.one_hot(places, labels.numel()).to(similarity)
    return panels.cross(share / panels.column_sums(share), similarity)


def scores_to_keep(similarity: Tensor, groups: Tensor) -> list[list[float]] | None:
    """The same for a file: divided by their spread, and rounded; ``None`` without any, or if there are many."""
    if not 0 < labels_in(groups).numel() * similarity.size(1) <= _MOST_NUMBERS:
        return None
    mean = means_of_groups(similarity, groups)
    rows: list[list[float]] = (mean / panels.spread(mean).clamp(min=1e-12)).tolist()
    return [[round(value, 4) for value in row] for row in rows]


@dataclass(frozen=True)
class Withheld:
    """Scores and probabilities of labelled nodes whose own labels were withheld.

    Single labels are withheld for :attr:`predicted`; one label of every class at a time, in 50 random groups, for
    the probabilities, by the factor that fits them best; see :mod:`torch_gckm.select.calibration` for what
    :class:`~torch_gckm.select.GCKMEnsemble` makes of it.
    """

    nodes: Tensor  #: The labelled nodes whose class has another label, [b]; a class's only label cannot be withheld.
    classes: Tensor  #: Their classes, [b].
    predicted: Tensor  #: The classes predicted for them, [b].
    member_scores: list[float]  #: The share of them that each model alone is right about.
    drawn: Tensor  #: Places in `nodes`, one per withheld label of a group, [g].
    probabilities: Tensor  #: Calibrated probabilities of these, [g, num_classes].
    uncalibrated: Tensor | None  #: For a single model, what its own `predict_proba` would say, [g, num_classes].
    only_labels: int  #: How many labels are left out because they are the only ones of their class.
    names: list[str]  #: The names of the classes.

    @property
    def accuracy(self) -> float:
        """The share of withheld labels that is predicted."""
        return float(panels.mean((self.predicted == self.classes).double()))


@torch.no_grad()
def withhold_labels(members: Sequence[GCKM], targets: Targets, names: Sequence[str], *, single: bool) -> Withheld:
    """Withhold the labels of models at step 0, whose readouts are solved for the given labels only.

    A ``single`` model is one by itself, whose scores are not divided by their spread.
    """
    nodes, classes = targets.labelled, targets.labels
    kept = targets.counts()[classes] > 1
    if not panels.holds_somewhere(kept):
        raise InvalidInputError("no class has two labels, so none can be withheld")
    groups = groups_to_withhold(classes)
    one_out, group_out, right = [], [], []
    for member in members:
        fit, codes = member.readout.solved_again(targets), member.readout.known_codes  # One at a time, to save memory.
        check_well_posed(fit)
        alone = class_similarity(fit.leave_one_out(), codes)
        right.append(float(panels.mean((alone.argmax(dim=1) == classes)[kept].double())))
        # With very many labels there are no groups, and single labels say enough.
        grouped = withheld_similarity(fit, codes, groups) if groups.size(1) else alone[kept]
        spread = panels.spread(class_similarity(fit.scores, codes), targets.partition).clamp(min=1e-12)
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
