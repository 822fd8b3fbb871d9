"""Several labels per node: real targets 0 and 1, one column per label, and probabilities from withheld ones."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidLabelError


def labels_as_values(y: Tensor) -> Tensor:
    """Labels ``[n, L]`` of 0, 1 and -1 (unknown) as real targets, NaN where unknown."""
    if y.dim() != 2 or y.is_complex():
        raise InvalidLabelError(f"several labels per node are a matrix [n, L], got {y.dtype} {tuple(y.shape)}")
    wrong = ((y != 0) & (y != 1) & (y != -1)).any(dim=1)
    if panels.holds_somewhere(wrong):
        node = panels.first(wrong)
        raise InvalidLabelError(f"node {node} has the labels {y[node].tolist()}; labels are 0, 1 and -1 (unknown)")
    return torch.where(y == -1, torch.nan, y.double())


def label_scales(left_out: Tensor, y: Tensor) -> Tensor:
    r"""Slopes and intercepts ``[2, L]`` of :math:`\sigma(a_j e_j + b_j)`, fitted to withheld labels.

    Platt's method: targets are smoothed, so that a few labels that are all right do not make for certainty. A node has
    a label if the probability is above 1/2, so the threshold of its score is :math:`-b_j / a_j`.

    Args:
        left_out: Scores of labelled nodes whose own labels were withheld, ``[b, L]``.
        y: Their labels, ``[b, L]``, NaN where unknown.
    """
    scores, labels = (part.detach().double().cpu().numpy() for part in (left_out, y))
    columns = []
    for place in range(labels.shape[1]):
        known = ~np.isnan(labels[:, place])
        columns.append(_scale(scores[known, place], labels[known, place]))
    return torch.tensor(columns, dtype=torch.float64).t().contiguous()


def _scale(scores: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    positive = float(np.sum(y))
    negative = len(y) - positive
    wanted = np.where(y > 0.5, (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0))
    centre, spread = float(np.mean(scores)), float(np.std(scores)) or 1.0
    standard = (scores - centre) / spread

    def loss(at: NDArray[np.float64]) -> float:
        logits = np.exp(at[0]) * standard + at[1]  # A slope is positive: higher scores, higher probabilities.
        return float(np.mean(np.logaddexp(0.0, logits) - wanted * logits))

    start = np.array([0.0, np.log((positive + 1.0) / (negative + 1.0))])
    found = minimize(loss, start, method="L-BFGS-B", bounds=[(-4.0, 4.0), (-20.0, 20.0)]).x
    slope = float(np.exp(found[0])) / spread
    return slope, float(found[1]) - slope * centre


def label_probabilities(scores: Tensor, scales: Tensor) -> Tensor:
    """Probabilities ``[n, L]`` of labels from scores ``[n, L]``."""
    slope, intercept = scales.to(scores)
    return (slope * scores + intercept).sigmoid()
