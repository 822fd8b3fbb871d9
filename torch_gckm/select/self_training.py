r"""Further labels: the classes of nodes that a model is sure of.

A class gets further labels of a total weight in proportion to its expected number of unlabelled nodes, the
sum of their probabilities of it. So a class that a model is hardly ever sure of limits the weight of all
others, and there are no further labels at all if it is never sure of one: they would drown it. The
total weight is fixed besides, so that further labels matter less the more labels are given.
"""

from dataclasses import replace

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.readout import Targets


def with_sure_nodes(labels: Targets, probabilities: Tensor, confidence: float, strength: float) -> Targets:
    """The labels and further ones of unlabelled nodes; the labels themselves if there are none to add.

    Args:
        labels: The given labels.
        probabilities: Calibrated class probabilities, ``[n, num_classes]``.
        confidence: The probability from which a class counts as sure.
        strength: The total weight of further labels, in labels of weight 1 per class; no single one weighs more than 1.
    """
    unlabelled = ~labels.is_labelled
    surest, classes = probabilities.max(dim=1)
    present = labels.counts() > 0
    sure = unlabelled & (surest > confidence) & present[classes]
    counts = panels.counts(classes[sure], probabilities.size(1)).to(probabilities)
    expected = panels.column_sums(probabilities[unlabelled])
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
