r"""From scores to probabilities that are about right, for classes :math:`c = 1, \dots, p` with labels.

Probabilities are :math:`\textrm{softmax}(t S)` of class scores :math:`S`. The factor :math:`t` makes their mean
certainty about unlabelled nodes, the mean of the largest probability, equal to an estimate :math:`q` of the accuracy
there. So the factor may follow when self-training changes scores. The estimate relative to chance, :math:`u = (q - 1/p)
/ (1 - 1/p)`, is

.. math::
    u = \frac{n\, u_{\textrm{withheld}} + 30\, \gamma\, a^2}{n + 30}.

- :math:`u_{\textrm{withheld}}` is the mean certainty, relative to chance, with the factor :math:`\gamma t_0`, where
  :math:`t_0` fits the scores of :math:`n` withheld labels best. A label weighs as much as its class is expected among
  unlabelled nodes.
- :math:`\gamma \le 1` is how much smaller the factor is for labels that did not choose the settings, see
  :mod:`torch_gckm.select.unseen`.
- :math:`a` is the share of pairs of members that agree, relative to chance, on average over unlabelled nodes. Members
  make the same mistakes, hence the square.
"""

import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

from torch_gckm import panels
from torch_gckm.partition import WHOLE, Partition

_AGREEMENT = 30.0  # How many withheld labels the agreement of the members counts for.


def calibrate(similarity: Tensor, classes: Tensor, weight: Tensor | None = None) -> tuple[float, float]:
    """The factor of scores whose softmax fits the classes best, and the mean log-loss it leaves; NaN without nodes.

    Scores ``[n, num_classes]`` are of nodes whose labels they have not seen; these may have weights, ``[n]``. Targets
    are smoothed by one part in the number of nodes, so that a few nodes that are all right do not lead to infinite
    confidence.
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
    share = None if weight is None else weight.double().cpu().numpy()

    def loss(log_factor: float) -> float:
        scaled = np.exp(log_factor) * values
        largest = scaled.max(axis=1)
        normaliser = largest + np.log(np.exp(scaled - largest[:, None]).sum(axis=1))
        # The rows of `values` have mean zero, so smoothing only shrinks the true class's share.
        return float(np.average(normaliser - (1.0 - smoothing) * np.exp(log_factor) * true, weights=share))

    best = minimize_scalar(loss, bounds=(-6.0, 6.0), method="bounded", options={"xatol": 1e-3})
    return float(np.exp(best.x)) / spread, float(best.fun)


def temperature_of(scores: Tensor, certainty: float, over: Partition = WHOLE) -> float:
    """The factor of scores for which a softmax has this mean of the largest probability."""
    scores = scores.double() - scores.double().amax(dim=1, keepdim=True)

    def excess(log_factor: float) -> float:
        sure = (scores * math.exp(log_factor)).softmax(dim=1).amax(dim=1)
        return float(panels.mean(sure, over)) - certainty

    low, high = -12.0, 12.0
    if excess(low) >= 0.0:
        return math.exp(low)
    return math.exp(high if excess(high) <= 0.0 else brentq(excess, low, high, xtol=1e-4))


def certainty_of(scores: Tensor, factor: float, over: Partition = WHOLE) -> float:
    """The mean of the largest probability, of scores times a factor."""
    return float(panels.mean((factor * scores).softmax(dim=1).amax(dim=1), over))


def agreement_of(votes: Tensor, over: Partition = WHOLE) -> float:
    """The share of pairs of members that vote alike, the mean over nodes; classes ``[members, n]``."""
    size = votes.size(0)
    alike = [(votes[a] == votes[b]).double() for a in range(size) for b in range(a)]
    return float(panels.mean(panels.accumulate(alike) / len(alike), over))


def expected_accuracy(
    scores: Tensor,
    votes: Tensor,
    withheld: Tensor,
    classes: Tensor,
    num_classes: int,
    gain: float = 1.0,
    over: Partition = WHOLE,
) -> float:
    r"""The estimate :math:`q` of the accuracy on unlabelled nodes; see the formula above.

    Args:
        scores: Class scores of the unlabelled nodes, ``[n, columns]``.
        votes: The classes that members predict for them, ``[members, n]``; a single one agrees with itself, which says
            nothing, and is not counted.
        withheld: Scores of labels that were withheld, a row each, ``[b, columns]``.
        classes: Their classes, ``[b]``.
        num_classes: The number of classes that have labels.
        gain: The factor :math:`\gamma`.
        over: Which nodes these are.
    """
    chance, total, weight = 1.0 / num_classes, 0.0, 0.0

    def beyond(share: float) -> float:
        return max(0.0, (share - chance) / (1.0 - chance))

    if classes.numel():
        start = gain * calibrate(withheld, classes)[0]
        share = panels.column_means((start * scores).softmax(dim=1), over)
        factor = gain * calibrate(withheld, classes, share[classes])[0]
        total, weight = classes.numel() * beyond(certainty_of(scores, factor, over)), float(classes.numel())
    if votes.size(0) > 1:
        total += _AGREEMENT * gain * beyond(agreement_of(votes, over)) ** 2
        weight += _AGREEMENT
    return chance + (1.0 - chance) * total / weight
