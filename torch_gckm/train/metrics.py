"""Scores that say how good a fit is, with and without labels."""

import torch
from torch import Tensor

from torch_gckm import panels


def accuracy(predicted: Tensor, y: Tensor, mask: Tensor | None = None) -> float:
    """The share of nodes in ``mask``, by default of all, whose class is predicted; NaN if there are none."""
    right = predicted == y if mask is None else predicted[mask] == y[mask]
    return float(panels.mean(right.double()))  # The mean of nothing is NaN.


def cosine_score(scores: Tensor, codes: Tensor, mask: Tensor | None = None) -> float:
    r"""How closely scores point at class codes; needs no labels.

    .. math:: \frac{1}{|V|} \sum_{v \in V} \max_s \cos(c_s - \mu, e_v - \mu)

    with :math:`\mu` the mean of the codes. It lies in [-1, 1]; higher is better. A model that puts every node into one
    class can score high, so compare models by it only in company of another criterion.

    Args:
        scores: Scores :math:`e_v`, ``[n, p]``.
        codes: Class codes :math:`c_s`, ``[classes, p]``.
        mask: The nodes :math:`V`, boolean ``[n]``; all by default.
    """
    scores = scores.double() if mask is None else scores[mask].double()
    if scores.size(0) == 0:
        return float("nan")
    codes = codes.double()
    centre = codes.mean(dim=0)
    directions = torch.nn.functional.normalize(codes - centre, dim=1)
    points = torch.nn.functional.normalize(scores - centre, dim=1)
    return float(panels.mean((points @ directions.t()).max(dim=1).values))


def combined_score(val_accuracy: float, num_val: int, cosine: float, num_unlabelled: int) -> float:
    """The paper's combination: validation accuracy and cosine score, weighted by their numbers of nodes."""
    parts = [(num_val, val_accuracy), (num_unlabelled, cosine)]
    return sum(count * score for count, score in parts if count) / (num_val + num_unlabelled)


def effective_classes(predicted: Tensor) -> float:
    r"""The effective number of classes that occur, :math:`e^{\textrm{entropy}}`; near 1 for a collapsed model."""
    share = panels.counts(predicted).double() / max(predicted.numel(), 1)
    return float((-torch.special.xlogy(share, share).sum()).exp())
