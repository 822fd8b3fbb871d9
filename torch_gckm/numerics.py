"""Small numerical tools that several packages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torch_gckm.errors import InvalidInputError

LinearMap = Callable[[Tensor], Tensor]
_BLOCK = 8192  # Rows to take to double precision at a time.


def one_norm_estimate(
    matvec: LinearMap, rmatvec: LinearMap, like: Tensor, start: Tensor | None = None, max_iter: int = 5
) -> Tensor:
    r"""Estimate :math:`\|A\|_1 = \max_j \sum_i |A_{ij}|` from a few products with :math:`A` and :math:`A'`.

    Hager's method: a lower bound, in practice within a few per cent of the norm.

    Args:
        matvec: Maps a vector :math:`x` to :math:`A x`.
        rmatvec: Maps a vector :math:`x` to :math:`A' x`.
        like: Any tensor whose number of rows is the order of :math:`A`; gives dtype and device.
        start: The column to look at first; by default the mean of all. Where columns cancel
            each other, their mean is rounding noise and would make the estimate a matter of chance.
        max_iter: Upper bound on the number of product pairs.
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
        norm = y.abs().sum()
        if norm <= estimate:
            break
        estimate = norm
        z = rmatvec(torch.where(y >= 0, 1.0, -1.0).to(y.dtype))
        peak = z.abs().argmax()
        if z[peak].abs() <= z.dot(x):
            break
        x = torch.zeros_like(x)
        x[peak] = 1.0
    return estimate


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Sequence[Tensor | None], *inputs: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *(None if g is None else grad.to(g) * g for g in ctx.gradients)


def with_gradient(value: Tensor, inputs: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
    """A number that was computed without autograd, as a function of ``inputs`` with these known gradients."""
    result: Tensor = _WithGradient.apply(value, gradients, *inputs)
    return result


def row_dots(a: Tensor, b: Tensor) -> Tensor:
    """The inner products of equal rows, ``[n]``; unlike ``(a * b).sum(1)``, without a temporary matrix."""
    return torch.bmm(a.unsqueeze(1), b.unsqueeze(2)).view(-1)


def double_gram(x: Tensor) -> Tensor:
    """``x' x`` in double precision, without a copy of ``x``."""
    total = torch.zeros(x.size(1), x.size(1), dtype=torch.float64, device=x.device)
    for block in x.split(_BLOCK):
        wide = block.double()
        total += wide.t() @ wide
    return total


def orthonormalize(x: Tensor) -> Tensor:
    r"""The closest orthonormal matrix, :math:`X (X'X)^{-1/2}`; it flips or mixes no columns."""
    values, vectors = torch.linalg.eigh(double_gram(x))
    rotation = (vectors * values.rsqrt()) @ vectors.t()
    return torch.cat([(block.double() @ rotation).to(x.dtype) for block in x.split(_BLOCK)])


def fix_signs(vectors: Tensor) -> Tensor:
    """Flip columns so that the entry of largest magnitude is positive."""
    peak = vectors.abs().argmax(dim=0, keepdim=True)
    return vectors * torch.where(vectors.gather(0, peak) < 0, -1.0, 1.0).to(vectors.dtype)


def check_finite(x: Tensor, name: str = "x") -> None:
    """Raise if ``x`` holds NaN or infinity, naming how many entries and the first row."""
    if x.layout == torch.sparse_coo:
        x = x.coalesce()
    values = x.values() if x.layout != torch.strided else x
    # A sum is finite only if no entry is NaN; it may overflow, so a bad sum is looked at again.
    if bool(values.sum().isfinite()):
        return
    bad = ~values.isfinite()
    count = int(bad.sum())
    if count:
        where = ""
        if x.layout == torch.strided:
            where = f", first in row {int(bad.view(x.size(0), -1).any(dim=1).nonzero()[0])}"
        raise InvalidInputError(
            f"'{name}' has {count} entries that are NaN or infinite{where}; fill or drop them before fitting"
        )
