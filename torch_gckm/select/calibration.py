"""Probabilities that mean what they say."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

from torch_gckm import panels


@dataclass(frozen=True)
class Calibration:
    """How the scores of an ensemble's members are combined and turned into probabilities.

    Attributes:
        spread: What the scores of each member are divided by.
        temperature: What their mean is multiplied by before a softmax.
    """

    spread: list[float]
    temperature: float


def calibrate(similarity: Tensor, classes: Tensor) -> tuple[float, float]:
    r"""The temperature that makes softmax probabilities fit the classes best, and the log-loss it leaves.

    Targets are smoothed by one part in the number of nodes, so that a handful of nodes that are
    all right does not make for infinite confidence.

    Args:
        similarity: A score for every class, ``[n, num_classes]``, of nodes whose labels it has not seen.
        classes: Their classes, ``[n]``.

    Returns:
        The factor to multiply scores by before a softmax, and the mean log-loss; NaN without nodes.
    """
    count = similarity.size(0)
    if count == 0:
        return float("nan"), float("nan")
    values = similarity.detach().double().cpu().numpy()
    values = values - values.mean(axis=1, keepdims=True)
    spread = float(values.std()) or 1.0
    values = values / spread
    smoothing = 1.0 / (count + 1)
    true = values[np.arange(count), classes.cpu().numpy()]

    def loss(log_factor: float) -> float:
        scaled = np.exp(log_factor) * values
        largest = scaled.max(axis=1)
        normaliser = largest + np.log(np.exp(scaled - largest[:, None]).sum(axis=1))
        # The rows of `values` have mean zero, so smoothing only shrinks the true class's share.
        return float((normaliser - (1.0 - smoothing) * np.exp(log_factor) * true).mean())

    best = minimize_scalar(loss, bounds=(-6.0, 6.0), method="bounded", options={"xatol": 1e-3})
    return float(np.exp(best.x)) / spread, float(best.fun)


def temperature_of(scores: Tensor, certainty: float) -> float:
    """The factor of scores for which a softmax has this mean of the largest probability."""
    scores = scores.double() - scores.double().amax(dim=1, keepdim=True)

    def excess(log_factor: float) -> float:
        sure = (scores * math.exp(log_factor)).softmax(dim=1).amax(dim=1)
        return float(panels.mean(sure)) - certainty

    low, high = -12.0, 12.0
    if excess(low) >= 0.0:
        return math.exp(low)
    return math.exp(high if excess(high) <= 0.0 else brentq(excess, low, high, xtol=1e-4))
