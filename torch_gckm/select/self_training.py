r"""Further labels: the classes of nodes that a model is sure of.

A class gets further labels of a total weight in proportion to its expected number of unlabelled nodes, the
sum of their probabilities of it. So a class that a model is hardly ever sure of limits the weight of all
others, and there are no further labels at all if it is never sure of one: they would drown it. The
total weight is fixed besides, so that further labels matter less the more labels are given.
"""

from __future__ import annotations

import math

import torch
from scipy.optimize import brentq
from torch import Tensor

from torch_gckm.nn.labels import Labels


def with_sure_nodes(labels: Labels, probabilities: Tensor, confidence: float, strength: float) -> Labels:
    """The labels and further ones of unlabelled nodes; the labels themselves if there are none to add.

    Args:
        labels: The given labels.
        probabilities: Calibrated class probabilities, ``[n, num_classes]``.
        confidence: The probability from which a class counts as sure.
        strength: The total weight of further labels, in labels of weight 1 a class; no single one weighs more than 1.
    """
    unlabelled = labels.classes < 0
    surest, classes = probabilities.max(dim=1)
    present = torch.bincount(labels.classes[~unlabelled], minlength=probabilities.size(1)) > 0
    sure = unlabelled & (surest > confidence) & present[classes]
    counts = torch.bincount(classes[sure], minlength=probabilities.size(1)).to(probabilities)
    expected = probabilities[unlabelled].sum(dim=0)
    if not bool((counts[present] > 0).all()):
        return labels
    most = float((counts[present] / expected[present]).min())
    wanted = strength * float(present.sum() / expected[present].sum())
    weights = (min(most, wanted) * expected / counts).to(labels.weight)
    return Labels(
        torch.where(sure, weights[classes], labels.weight),
        torch.where(sure, classes, labels.classes),
    )


def temperature_of(scores: Tensor, certainty: float) -> float:
    """The factor of scores for which a softmax has this mean of the largest probability.

    Args:
        scores: Class scores, ``[n, num_classes]``.
        certainty: The mean, above one over the number of classes.
    """
    scores = scores.double() - scores.double().amax(dim=1, keepdim=True)

    def excess(log_factor: float) -> float:
        return float((scores * math.exp(log_factor)).softmax(dim=1).amax(dim=1).mean()) - certainty

    low, high = -12.0, 12.0
    if excess(low) >= 0.0:
        return math.exp(low)
    return math.exp(high if excess(high) <= 0.0 else brentq(excess, low, high, xtol=1e-4))
