"""Features as a strided matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels.features import Features
from torch_gckm.kernels.origin import Index, Origin


class DenseFeatures(Features):
    """Features held as a strided matrix."""

    def __init__(self, x: Tensor, origin: Origin | None = None, offset: tuple[Tensor | None] | None = None) -> None:
        if x.dim() != 2:
            raise InvalidInputError(f"features must be a matrix [num_nodes, channels], got shape {tuple(x.shape)}")
        self.origin = Origin(x, range(x.size(0))) if origin is None else origin
        self.x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
        self._offset = offset
        self._sq_norm: tuple[int, Tensor] | None = None

    num_rows = property(lambda self: self.x.size(0))
    num_columns = property(lambda self: self.x.size(1))
    row_entries = property(lambda self: max(1, self.x.size(1)))
    dtype = property(lambda self: self.x.dtype)
    device = property(lambda self: self.x.device)
    requires_grad = property(lambda self: self.x.requires_grad)

    def dot(self, other: Features) -> Tensor:
        return self.x @ self._comparable(other).t()

    def sq_distance(self, other: Features) -> Tensor:
        result: Tensor = _SquaredDistance.apply(self.x, self._comparable(other), self.sq_norm(), other.sq_norm())
        return result

    def _comparable(self, other: Features) -> Tensor:
        rows = other.dense()
        if rows.size(1) != self.x.size(1):
            raise InvalidInputError(f"features have {self.x.size(1)} columns, but {rows.size(1)} were expected")
        return rows

    def sq_norm(self) -> Tensor:
        if self.requires_grad or torch.compiler.is_compiling():  # Nothing to keep.
            return panels.row_dots(self.x, self.x)
        if self.x.is_inference():
            return torch.linalg.vector_norm(self.x, dim=1).square()
        if self._sq_norm is None or self._sq_norm[0] != self.x._version:
            self._sq_norm = (self.x._version, torch.linalg.vector_norm(self.x, dim=1).square())
        return self._sq_norm[1]

    def rows(self, index: Index) -> DenseFeatures:
        picked = DenseFeatures(self.x[index], self.origin.pick(index), (self.offset(),))
        if isinstance(index, slice) and not self.requires_grad and not self.x.is_inference():
            picked._sq_norm = (picked.x._version, self.sq_norm()[index])  # Blocks come again and again.
        return picked

    def mean(self) -> Tensor:
        return panels.column_means(self.x)

    def offset(self) -> Tensor | None:
        if self._offset is None:
            x = self.x.detach()
            mean = panels.column_means(x)
            sample = x[:: max(1, x.size(0) // 1000)]
            # Compiled code cannot ask, and moving them is never wrong.
            far = torch.compiler.is_compiling() or bool(
                mean.square().sum() > 4.0 * panels.mean((sample - mean).square().sum(dim=1))
            )
            self._offset = (mean if far else None,)
        return self._offset[0]

    def shifted(self, offset: Tensor) -> DenseFeatures:
        return DenseFeatures(self.x - offset, self.origin)

    def to(self, dtype: torch.dtype) -> DenseFeatures:
        if dtype == self.x.dtype:
            return self
        offset = self.offset()
        return DenseFeatures(self.x.to(dtype), self.origin, (None if offset is None else offset.to(dtype),))

    def detach(self) -> DenseFeatures:
        if not self.requires_grad:
            return self  # A kernel matrix that was made of them knows them again.
        return DenseFeatures(self.x.detach(), self.origin, self._offset) if self.requires_grad else self

    def fresh_leaves(self) -> DenseFeatures:
        return DenseFeatures(self.x.detach().requires_grad_(self.requires_grad), self.origin, self._offset)

    def inputs(self) -> list[Tensor]:
        return [self.x] if self.requires_grad else []

    def dense(self) -> Tensor:
        return self.x


class _SquaredDistance(torch.autograd.Function):
    """Squared distances; the gradient passes over the matrix of distances as few times as it can."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, sq_norm_a: Tensor, sq_norm_b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.addmm(sq_norm_b, a, b.t(), alpha=-2.0).add_(sq_norm_a.unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        a, b = ctx.saved_tensors
        grad_a = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_a = 2.0 * torch.addmm(grad.sum(dim=1, keepdim=True) * a, grad, b, alpha=-1.0)
        if ctx.needs_input_grad[1]:
            grad_b = 2.0 * torch.addmm(grad.sum(dim=0).unsqueeze(1) * b, grad.t(), a, alpha=-1.0)
        return grad_a, grad_b, None, None
