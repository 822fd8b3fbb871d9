"""Scores that say how good a fit is, with and without labels."""

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import blocks
from torch_gckm.partition import WHOLE, Partition


def accuracy(predicted: Tensor, y: Tensor, mask: Tensor | None = None, over: Partition = WHOLE) -> float:
    """The share of nodes in ``mask``, by default of all, whose class is predicted; NaN if there are none.

    For nodes of several processes, ``over`` is ``graph.partition`` of the :class:`~torch_gckm.graph.ShardedGraph`.
    """
    right = predicted == y if mask is None else predicted[mask] == y[mask]
    return float(panels.mean(right.double(), over))  # The mean of nothing is NaN.


def balanced_accuracy(predicted: Tensor, y: Tensor, mask: Tensor | None = None, over: Partition = WHOLE) -> float:
    """The mean over classes of the share of their nodes that is predicted; NaN if there are none.

    Unlike :func:`accuracy` it gains nothing from naming the largest class everywhere. Classes without a node in
    ``mask`` do not count.
    """
    if mask is not None:
        predicted, y = predicted[mask], y[mask]
    counts = panels.counts(y, over=over)
    right = panels.sums_by(y, (predicted == y).double(), counts.numel(), over)
    return float((right / counts)[counts > 0].mean())


def roc_auc(scores: Tensor, y: Tensor, mask: Tensor | None = None) -> float:
    """The area under the ROC curve; the mean over classes, each against all others, if there are more than two.

    It is the chance that a node of a class has a higher score of it than a node of another one; ties count half.
    Classes that no node of ``mask`` has, or all have, do not count; NaN if there are none.

    Args:
        scores: Scores or probabilities, ``[n, num_classes]``; for two classes also those of the second alone, ``[n]``.
        y: Classes, ``[n]``.
        mask: The nodes to look at, by default all.
    """
    scores = torch.stack([-scores, scores], dim=1) if scores.dim() == 1 else scores
    if mask is not None:
        scores, y = scores[mask], y[mask]
    areas = []
    for number in range(1, 2) if scores.size(1) == 2 else range(scores.size(1)):
        own = y == number
        # For two classes their difference, whatever the scores add up to.
        values = scores[:, 1] - scores[:, 0] if scores.size(1) == 2 else scores[:, number]
        inside, outside = panels.count(own), panels.count(~own)
        if inside and outside:
            wins = panels.total(panels.mean_ranks(values.double())[own]) - inside * (inside + 1) / 2
            areas.append(float(wins) / (inside * outside))
    return sum(areas) / len(areas) if areas else float("nan")


def cosine_score(scores: Tensor, codes: Tensor, mask: Tensor | None = None, over: Partition = WHOLE) -> float:
    r"""How closely scores point at class codes; needs no labels.

    .. math:: \frac{1}{|V|} \sum_{v \in V} \max_s \cos(c_s - \mu, e_v - \mu)

    with :math:`\mu` the mean of the codes. It lies in [-1, 1]; higher is better. A model that puts every node into one
    class can score high, so compare models by it only in company of another criterion.

    Args:
        scores: Scores :math:`e_v`, ``[n, p]``.
        codes: Class codes :math:`c_s`, ``[classes, p]``.
        mask: The nodes :math:`V`, boolean ``[n]``; all by default.
        over: See :func:`accuracy`.
    """
    codes = codes.double()
    centre = codes.mean(dim=0)
    directions = torch.nn.functional.normalize(codes - centre, dim=1)
    closest = torch.empty(scores.size(0), dtype=torch.float64, device=scores.device)
    for block in blocks(scores.size(0), scores.size(1)):
        points = torch.nn.functional.normalize(scores[block].double() - centre, dim=1)
        closest[block] = (points @ directions.t()).amax(dim=1)
    return float(panels.mean(closest if mask is None else closest[mask], over))


def combined_score(val_accuracy: float, num_val: int, cosine: float, num_unlabelled: int) -> float:
    """The paper's combination: validation accuracy and cosine score, weighted by their numbers of nodes."""
    parts = [(num_val, val_accuracy), (num_unlabelled, cosine)]
    return sum(count * score for count, score in parts if count) / (num_val + num_unlabelled)


def effective_classes(predicted: Tensor, over: Partition = WHOLE) -> float:
    r"""The effective number of classes that occur, :math:`e^{\textrm{entropy}}`; near 1 for a collapsed model."""
    counts = panels.counts(predicted, over=over).double()
    share = counts / counts.sum().clamp(min=1.0)
    return float((-torch.special.xlogy(share, share).sum()).exp())
