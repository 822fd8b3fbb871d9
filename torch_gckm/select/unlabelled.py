"""What an ensemble makes of unlabelled nodes: classes that it is sure of serve as further labels.

A class gets further labels of a total weight in proportion to its expected number of unlabelled nodes, the sum of their
probabilities of it. So a class that a model is hardly ever sure of limits the weight of all others, and there are no
further labels at all if it is never sure of one: they would drown it. The total weight is fixed besides, so that
further labels matter less the more labels are given.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels import Features
from torch_gckm.nn import GCKM
from torch_gckm.partition import Partition
from torch_gckm.readout import Targets
from torch_gckm.select.calibration import calibrate, temperature_of
from torch_gckm.select.trial import FIT_ERRORS, describe_error, quiet
from torch_gckm.select.withheld import check_well_posed
from torch_gckm.train.metrics import accuracy

_CLEARLY = 2.0  # Standard errors of the share that a guess gets right.


def with_sure_nodes(labels: Targets, probabilities: Tensor, confidence: float, strength: float) -> Targets:
    """The labels and further ones of unlabelled nodes; the labels themselves if there are none to add.

    A class counts as sure from a probability of ``confidence`` on, ``[n, num_classes]``.
    The total weight of further labels is ``strength`` labels of weight 1 per class; no single one weighs more than 1.
    """
    unlabelled = ~labels.is_labelled
    surest, classes = probabilities.max(dim=1)
    present = labels.counts() > 0
    sure = unlabelled & (surest > confidence) & present[classes]
    counts = panels.counts(classes[sure], probabilities.size(1), labels.partition).to(probabilities)
    expected = panels.column_sums(probabilities[unlabelled], labels.partition)
    if not bool((counts[present] > 0).all()):
        return labels
    most = float((counts[present] / expected[present]).min())
    wanted = strength * float(present.sum() / expected[present].sum())
    weights = (min(most, wanted) * expected / counts).to(labels.weight)
    return replace(
        labels,
        weight=torch.where(sure, weights[classes], labels.weight),
        classes=torch.where(sure, classes, labels.classes),
    )


def is_better_than_chance(scores: Tensor, classes: Tensor, targets: Targets) -> bool:
    """Whether withheld labels are predicted clearly better than by a guess; also if none can be withheld."""
    if classes.numel() == 0:
        return True
    counts = targets.counts()
    right, chance = accuracy(scores.argmax(dim=1), classes), 1.0 / panels.count(counts)
    error = math.sqrt(chance * (1.0 - chance) / int(counts[counts > 1].sum()))
    return targets.partition.processes.everywhere(right >= chance + _CLEARLY * error)


def sureness(scores: Tensor, votes: Tensor, withheld: Tensor, classes: Tensor, over: Partition) -> float:
    """The factor of scores by which sure nodes are told: that of withheld labels, or else of the members' votes.

    Without labels to withhold, the mean certainty is the share of members that agree with the ensemble, as if there
    were one more, which agrees by chance.

    Args:
        scores: Scores of unlabelled nodes, ``[n, num_classes]``.
        votes: The classes that members predict for them, ``[members, n]``.
        withheld: Scores of withheld labels, ``[g, num_classes]``.
        classes: Their classes, ``[g]``.
        over: Which nodes these are.
    """
    if classes.numel():
        return calibrate(withheld, classes)[0]
    count, chance = votes.size(0), 1.0 / scores.size(1)
    if count == 1:
        return 1.0
    agreement = float(panels.mean((votes == scores.argmax(dim=1)).double(), over))
    return temperature_of(scores, max(chance, (agreement * count + chance) / (count + 1)), over)


def solve_for_more(model: GCKM, targets: Targets, given: Targets) -> None:
    """Solve a readout for more labels, or for the given ones if that does not work out."""
    with quiet():
        try:
            with targets.partition.agreed():
                model.readout.solve_again(targets)
                check_well_posed(model.readout.fit)
        except FIT_ERRORS as error:
            describe_error(error)
            model.readout.solve_again(given)


def embedding_of(model: GCKM) -> Tensor:
    """The embedding of a fitted model's nodes; of features, which may be wide and sparse, their main directions."""
    return model.embed() if model.layers else main_directions(model.readout.fit.rows().view("h"))


@torch.no_grad()
def main_directions(features: Features, most: int = 64, seed: int = 0) -> Tensor:
    """Features, or if there are more than so many columns, centred ones along about their main directions, ``[n, s]``.

    By one step of subspace iteration from random directions, a block of rows at a time.
    """
    if features.num_columns <= most:
        return features.dense()
    features.partition.refuse("main directions of features are")
    mean, blocks = features.mean().unsqueeze(0), list(features.blocks(features.num_columns))

    def parts() -> Iterator[tuple[slice, Tensor]]:
        return ((block, features.rows(block).dense() - mean) for block in blocks)

    start = panels.random_normal(features.num_columns, most, seed).to(mean)
    back = panels.accumulate(part.t() @ (part @ start) for _, part in parts())
    basis = torch.linalg.qr(back)[0]
    result = mean.new_empty(features.num_rows, most)
    for block, part in parts():
        result[block] = part @ basis
    return result


def check_count(count: int, candidates: int) -> None:
    """Refuse to suggest no node, or more than there are without a label."""
    if not 0 < count <= candidates:
        raise InvalidInputError(f"can suggest 1 to {candidates} unlabelled nodes, not {count}")
