"""Matrix products with tall panels that do no work twice and make no copy of the panel."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

_BLOCK_ENTRIES = 2**22
_STRIPE = 256


def symmetric_product(panel: Tensor, weight: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    r""":math:`F' \mathrm{diag}(w) F` in double precision, from its lower half.

    Args:
        panel: :math:`F`, ``[n, m]``.
        weight: :math:`w`, ``[n]``, of any sign; ones if omitted.
        dtype: The precision of products within a block of rows, by default the panel's; their sums are double.
    """
    dtype = panel.dtype if dtype is None else dtype
    order = panel.size(1)
    total = torch.zeros(order, order, dtype=torch.float64, device=panel.device)
    part = torch.empty(order, order, dtype=dtype, device=panel.device)
    for block in row_blocks(panel):
        right = panel[block].to(dtype)
        left = right if weight is None else right * weight[block].to(dtype).unsqueeze(1)
        for stripe in _stripes(order):
            torch.mm(left[:, stripe].t(), right[:, : stripe.stop], out=part[stripe, : stripe.stop])
            total[stripe, : stripe.stop] += part[stripe, : stripe.stop]
    return total.tril() + total.tril(-1).t()


def times_upper(left: Tensor, upper: Tensor, out: Tensor) -> None:
    """``left @ upper`` for an upper triangular matrix, without the products with its zeros."""
    for stripe in _stripes(upper.size(1)):
        torch.mm(left[:, : stripe.stop], upper[: stripe.stop, stripe], out=out[:, stripe])


def row_blocks(panel: Tensor) -> Iterator[slice]:
    """Slices of rows of moderate size."""
    step = max(1, _BLOCK_ENTRIES // max(panel.size(1), 1))
    for start in range(0, panel.size(0), step):
        yield slice(start, min(start + step, panel.size(0)))


def _stripes(order: int) -> Iterator[slice]:
    for start in range(0, order, _STRIPE):
        yield slice(start, min(start + _STRIPE, order))
