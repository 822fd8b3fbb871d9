"""Norms of matrices that are known through products only."""

from collections.abc import Callable

import torch
from torch import Tensor

from torch_gckm import panels

LinearMap = Callable[[Tensor], Tensor]


def one_norm_estimate(
    matvec: LinearMap, rmatvec: LinearMap, like: Tensor, start: Tensor | None = None, max_iter: int = 5
) -> Tensor:
    r"""Estimate :math:`\|A\|_1 = \max_j \sum_i |A_{ij}|` from a few products with :math:`A` and :math:`A'`.

    Hager's method: a lower bound, in practice within a few per cent of the norm. R(4) per product, at most ``max_iter``
    pairs of them. ``like`` has as many rows as :math:`A`, and its dtype and device. The column to ``start`` with is by
    default the mean of all; where columns cancel each other, their mean is rounding noise and would make the estimate a
    matter of chance.
    """
    size = like.size(0)
    if start is None:
        x = like.new_full((size,), 1.0 / size)
    else:
        x = like.new_zeros(size)
        x[start] = 1.0
    estimate = like.new_zeros(())
    for _ in range(max_iter):
        y = matvec(x)
        norm = panels.total(y.abs())
        if norm <= estimate:
            break
        estimate = norm
        z = rmatvec(torch.where(y >= 0, 1.0, -1.0).to(y.dtype))
        peak = panels.place_of_largest(z.abs())
        if z[peak].abs() <= z.dot(x):
            break
        x = torch.zeros_like(x)
        x[peak] = 1.0
    return estimate
