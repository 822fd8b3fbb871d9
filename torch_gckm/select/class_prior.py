r"""Shares of the classes that are known beforehand, such as from a census or from earlier years.

Probabilities of all nodes, :math:`P = \textrm{softmax}(S + 1 b')`, have the mean :math:`\pi` for exactly one offset
:math:`b` of the scores, up to a constant: the one that minimises the convex function
:math:`\frac1n \sum_i \log \sum_c e^{S_{ic} + b_c} - \pi' b`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.partition import WHOLE, Partition

ClassPrior = Sequence[float] | Mapping[Any, float] | Tensor | None


def checked_prior(shares: ClassPrior, names: Sequence[Any]) -> Tensor | None:
    """Shares of classes with these names as a tensor that adds up to one, ``[num_classes]``."""
    if shares is None:
        return None
    if isinstance(shares, Mapping):
        if {str(name) for name in shares} != {str(name) for name in names}:
            raise InvalidInputError(f"'class_prior' names {list(shares)}, but the classes are {list(names)}")
        by_name = {str(name): share for name, share in shares.items()}
        shares = [by_name[str(name)] for name in names]
    prior = torch.as_tensor(shares, dtype=torch.float64)
    if prior.shape != (len(names),):
        raise InvalidInputError(f"'class_prior' has {prior.numel()} shares for {len(names)} classes, {list(names)}")
    if not bool((prior > 0).all() and prior.isfinite().all()):
        raise InvalidInputError(f"shares in 'class_prior' must be positive, got {prior.tolist()}")
    if abs(float(prior.sum()) - 1.0) > 0.01:
        raise InvalidInputError(f"shares in 'class_prior' must add up to 1, got {float(prior.sum()):.4g}")
    return prior / prior.sum()


def offset_for(scores: Tensor, prior: Tensor, over: Partition = WHOLE) -> Tensor:
    """What to add to scores ``[n, num_classes]`` for probabilities whose mean is the prior, ``[num_classes]``."""
    scores, prior = scores.double(), prior.double().cpu()

    def loss(offset: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        moved = scores + torch.from_numpy(offset).to(scores)
        mean = panels.mean(moved.logsumexp(dim=1), over)
        excess = panels.column_means(moved.softmax(dim=1), over).cpu() - prior
        return float(mean) - float(prior @ torch.from_numpy(offset)), excess.numpy()

    found = minimize(loss, np.zeros(prior.numel()), jac=True, method="BFGS", options={"gtol": 1e-7}).x
    return torch.from_numpy(found - found.mean())
