"""Scores that say how good a fit is, with and without labels."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor


def accuracy(predicted: Tensor, y: Tensor, mask: Tensor) -> float:
    """The share of nodes in ``mask`` whose class is predicted, NaN for an empty mask."""
    if not bool(mask.any()):
        return float("nan")
    return float((predicted[mask] == y[mask]).double().mean())


def cosine_score(scores: Tensor, codes: Tensor, mask: Tensor | None = None) -> float:
    r"""How closely scores point at class codes; needs no labels.

    .. math::
        \frac{1}{|V|} \sum_{v \in V} \max_s \cos(c_s - \mu, e_v - \mu)

    with :math:`\mu` the mean of the codes. It lies in [-1, 1]; higher is better.
    A model that puts every node into one class can score high, so compare
    models by it only in company of another criterion.

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
    return float((points @ directions.t()).max(dim=1).values.mean())


def combined_score(val_accuracy: float, num_val: int, cosine: float, num_unlabelled: int) -> float:
    """The paper's combination: validation accuracy and cosine score, weighted by their numbers of nodes."""
    parts = [(num_val, val_accuracy), (num_unlabelled, cosine)]
    return sum(count * score for count, score in parts if count) / (num_val + num_unlabelled)


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


def effective_classes(predicted: Tensor) -> float:
    r"""The effective number of classes that occur, :math:`e^{\textrm{entropy}}`.

    Near 1 for a collapsed model, which puts almost every node into one class.
    """
    share = torch.bincount(predicted).double() / max(predicted.numel(), 1)
    entropy = -torch.special.xlogy(share, share).sum()
    return float(entropy.exp())


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
        members = (classes == group).nonzero().squeeze(1)
        if members.numel() > 1:
            columns.append(members[torch.randint(members.numel(), (repeats,), generator=generator)])
    return torch.stack(columns, dim=1) if columns else torch.empty(repeats, 0, dtype=torch.long)
