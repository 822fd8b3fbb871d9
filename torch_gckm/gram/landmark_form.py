r"""The gradient of a bilinear form in a kernel matrix that is known through landmarks."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torch_gckm import panels
from torch_gckm.kernels import Kernel, Rows


class Columns(NamedTuple):
    """Kernel columns of some rows, differentiable in leaves of their own."""

    rows: Rows
    landmarks: Rows
    values: Tensor

    @classmethod
    def of(cls, kernel: Kernel, rows: Rows, landmarks: Rows) -> Self:
        """Evaluate the columns."""
        rows = rows.fresh_leaves()
        with torch.enable_grad():
            return cls(rows, landmarks, kernel(rows, landmarks))


def form_with_gradient(
    value: Tensor,
    kernel: Kernel,
    rows: Rows,
    landmarks: Tensor,
    sides: tuple[Tensor, Tensor],
    weights: tuple[Tensor, Tensor],
    known: Columns | None = None,
) -> Tensor:
    r"""Give a value of :math:`\mathrm{Tr}(u' K_{nS} K_{SS}^{-1} K_{Sn} v)` its gradient.

    It is that of :math:`u \cdot K_{nS} W_v + v \cdot K_{nS} W_u - W_u \cdot K_{SS} W_v` with constant ``weights``
    :math:`W_u = K_{SS}^{-1} K_{Sn} u` and :math:`W_v`, ``[m, c]``, and ``sides`` :math:`u` and :math:`v`, ``[n, c]``,
    one tensor twice for a quadratic form. Columns :math:`K_{nS}` that are not ``known`` exist a block at a time.
    """
    weights_u, weights_v = (w.to(rows.dtype) for w in weights)
    u, v = sides
    slopes = [(u, weights_u + weights_v)] if u is v else [(u, weights_v), (v, weights_u)]
    slopes = [(side, slope) for side, slope in slopes if side.requires_grad]
    parameters = [p for p in kernel.parameters() if p.requires_grad]
    outer = [*rows.inputs(), *(side for side, _ in slopes)]
    if not (outer or parameters):
        return value
    marks = rows.rows(landmarks).fresh_leaves() if known is None else known.landmarks
    shared = [*marks.inputs(), *parameters]
    with torch.enable_grad():
        core = kernel(marks)
    of_core = _gradients(core, shared, -(weights_u @ weights_v.t()))
    total = [torch.zeros_like(t) for t in outer]
    count = len(rows.inputs())

    def of_blocks() -> Iterator[list[Tensor]]:
        """Write the gradients that belong to rows; yield those that all rows share."""
        for block in rows.blocks(landmarks.numel()):
            columns = known or Columns.of(kernel, rows.block(block), marks)
            u, v = (side[block].detach().to(rows.dtype) for side in sides)
            slope_of_columns = torch.addmm(u @ weights_v.t(), v, weights_u.t())
            gradients = _gradients(columns.values, [*columns.rows.inputs(), *shared], slope_of_columns)
            for place, gradient in zip(total[:count], gradients[:count], strict=True):
                place[block] = gradient
            for place, (_, slope) in zip(total[count:], slopes, strict=True):
                place[block] = columns.values.detach() @ slope
            yield gradients[count:]

    of_rows = panels.accumulate_each(of_blocks(), rows.partition)
    shared_total = [own + rest for own, rest in zip(of_core, of_rows, strict=True)]
    for place, gradient in zip(total[:count], shared_total, strict=False):
        rows.partition.add_(place, landmarks, gradient)
    return with_gradient(value, [*outer, *parameters], [*total, *shared_total[count:]])


def _gradients(values: Tensor, inputs: Sequence[Tensor], slope: Tensor) -> list[Tensor]:
    """The gradients of ``(values * slope).sum()``, zeros where the values do not depend on an input."""
    if not inputs or not values.requires_grad:
        return [torch.zeros_like(t) for t in inputs]
    return list(torch.autograd.grad(values, inputs, slope, allow_unused=True, materialize_grads=True))


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
    return _WithGradient.apply(value, gradients, *inputs)
