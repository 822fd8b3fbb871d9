"""Rows as they are stored: a strided matrix, sparse factors, or several matrices by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import row_dots
from torch_gckm.errors import InvalidInputError, ViewError
from torch_gckm.kernels.features import Features, FeaturesLike, Index, Origin, Rows
from torch_gckm.layouts import from_scipy, to_csr, to_scipy
from torch_gckm.partition import WHOLE, Partition

Step = Callable[[Any], Any]
Smooth = Callable[[Step, Any], Any]


class DenseFeatures(Features):
    """Features held as a strided matrix."""

    def __init__(
        self,
        x: Tensor,
        origin: Origin | None = None,
        offset: tuple[Tensor | None] | None = None,
        partition: Partition | None = None,  # All rows; torch.compile takes no object as a default here.
    ) -> None:
        if x.dim() != 2:
            raise InvalidInputError(f"features must be a matrix [num_nodes, channels], got shape {tuple(x.shape)}")
        self.partition = partition or WHOLE
        self.origin = Origin(x, self.partition.numbers(x.size(0))) if origin is None else origin
        self.x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
        self.num_rows, self.num_columns, self.row_entries = x.size(0), x.size(1), max(1, x.size(1))
        self.dtype, self.device = self.x.dtype, self.x.device
        self._offset = offset
        self._sq_norm: tuple[int, Tensor] | None = None
        if not self.partition.is_whole:
            self.offset()  # Now, when all processes are here.

    requires_grad = property(lambda self: self.x.requires_grad)

    def dot(self, other: Features) -> Tensor:
        return self.x @ self.comparable(other).t()

    def sq_distance(self, other: Features) -> Tensor:
        return _SquaredDistance.apply(self.x, self.comparable(other), self.sq_norm(), other.sq_norm())

    def sq_norm(self) -> Tensor:
        if self.requires_grad or torch.compiler.is_compiling():  # Nothing to keep.
            return row_dots(self.x, self.x)
        if self.x.is_inference():
            return torch.linalg.vector_norm(self.x, dim=1).square()
        if self._sq_norm is None or self._sq_norm[0] != self.x._version:
            self._sq_norm = (self.x._version, torch.linalg.vector_norm(self.x, dim=1).square())
        return self._sq_norm[1]

    def rows(self, index: Index) -> DenseFeatures:
        x = self.x[index] if isinstance(index, slice) else self.partition.pick(self.x, index)
        picked = DenseFeatures(x, self.origin_of(index), (self.offset(),))
        if isinstance(index, slice) and not self.requires_grad and not self.x.is_inference():
            picked._sq_norm = (picked.x._version, self.sq_norm()[index])  # Blocks come again and again.
        return picked

    def row_sum(self) -> Tensor:
        return self.x.sum(dim=0)

    def offset(self) -> Tensor | None:
        if self._offset is None:
            x, over = self.x.detach(), self.partition
            mean = panels.column_means(x, over)
            step = max(1, self.num_nodes // 1000)
            sample = x[-over.start % step :: step]
            variance = panels.mean((sample - mean).square().sum(dim=1), over)
            # Compiled code cannot ask, and moving them is never wrong.
            far = torch.compiler.is_compiling() or bool(mean.square().sum() > 4.0 * variance)
            self._offset = (mean if far else None,)
        return self._offset[0]

    def shifted(self, offset: Tensor) -> DenseFeatures:
        return DenseFeatures(self.x - offset, self.origin, (None,))

    def to(self, dtype: torch.dtype) -> DenseFeatures:
        if dtype == self.x.dtype:
            return self
        offset = self.offset()
        offset = None if offset is None else offset.to(dtype)
        return DenseFeatures(self.x.to(dtype), self.origin, (offset,), self.partition)

    def detach(self) -> DenseFeatures:
        if not self.requires_grad:
            return self  # A kernel matrix that was made of them knows them again.
        return DenseFeatures(self.x.detach(), self.origin, self._offset, self.partition)

    def fresh_leaves(self) -> DenseFeatures:
        x = self.x.detach().requires_grad_(self.requires_grad)
        return DenseFeatures(x, self.origin, self._offset, self.partition)

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


def _one_step(step: Step, x: Any) -> Any:
    return step(x)


class SparseFeatures(Features):
    r"""Rows of :math:`p(A) X` with sparse :math:`A` and :math:`X`, as for a bag of words and its neighbours'.

    Inner products with a few rows :math:`Y` take sparse products, :math:`p(A) (X Y')`; the product :math:`p(A) X`,
    still sparse, is only needed for norms and single rows. The polynomial ``smooth(step, z)`` gets the product with
    :math:`A` as its ``step``; by default it is that product. On the CPU; no gradient flows to the features.
    """

    block_entries = 2**26  # Seen whole, the two sparse factors do much less work than their product does.
    requires_grad = False

    def __init__(
        self,
        matrix: Tensor,
        operator: Tensor | None = None,
        smooth: Smooth = _one_step,
        origin: Origin | None = None,
        partition: Partition = WHOLE,
    ) -> None:
        if matrix.requires_grad:
            raise InvalidInputError("gradients to sparse features are not supported; pass x.to_dense()")
        self.matrix, self.operator, self.smooth = matrix, operator, smooth
        self.num_rows, self.num_columns = matrix.shape
        self.dtype, self.device = matrix.dtype, matrix.device
        self.origin = Origin(object(), partition.numbers(self.num_rows)) if origin is None else origin
        self.partition = partition
        self._product: Tensor | None = matrix if operator is None else None
        self._sq_norm: Tensor | None = None
        self._cast: SparseFeatures | None = None

    @property
    def product(self) -> Tensor:
        """The rows themselves, a CSR tensor."""
        if self._product is None:
            assert self.operator is not None
            left = to_scipy(self.operator)
            self._product = from_scipy(self.smooth(lambda z: left @ z, to_scipy(self.matrix)))
        return self._product

    def dot(self, other: Features) -> Tensor:
        result = self.matrix @ self.comparable(other).t().contiguous()
        operator = self.operator
        return result if operator is None else self.smooth(lambda z: operator @ z, result)

    def sq_norm(self) -> Tensor:
        if self._sq_norm is None:
            product = self.product
            counts = product.crow_indices().diff()
            self._sq_norm = torch.segment_reduce(product.values().square(), "sum", lengths=counts, initial=0)
        return self._sq_norm

    def rows(self, index: Index) -> Features:
        origin, rows = self.origin_of(index), to_scipy(self.product)
        if isinstance(index, slice):  # A block of many rows stays sparse; a few rows are what others are compared with.
            return SparseFeatures(from_scipy(rows[index]), origin=origin)
        if self.partition.is_whole:
            return DenseFeatures(torch.from_numpy(rows[index.numpy()].toarray()), origin)
        places, own = self.partition.own(index, self.num_rows)
        picked = torch.zeros(index.numel(), self.num_columns, dtype=self.dtype)
        picked[places] = torch.from_numpy(rows[own.numpy()].toarray())
        return DenseFeatures(self.partition.processes.sum(picked), origin)

    def row_sum(self) -> Tensor:
        return torch.from_numpy(np.asarray(to_scipy(self.product).sum(axis=0)).reshape(-1)).to(self.dtype)

    def to(self, dtype: torch.dtype) -> SparseFeatures:
        if dtype == self.dtype:
            return self
        if self._cast is None or self._cast.dtype != dtype:
            operator = None if self.operator is None else self.operator.to(dtype)
            self._cast = SparseFeatures(self.matrix.to(dtype), operator, self.smooth, self.origin, self.partition)
            if torch.finfo(dtype).bits < torch.finfo(self.dtype).bits:
                self._cast._product = self.product.to(dtype)  # The costly part; to be more exact, it is done again.
        return self._cast

    def detach(self) -> SparseFeatures:
        return self

    fresh_leaves = detach

    def inputs(self) -> list[Tensor]:
        return []

    def dense(self) -> Tensor:
        return self.product.to_dense()

    def stored(self) -> Tensor:
        return self.product


class Views(Rows):
    """Several named feature matrices of the same nodes."""

    def __init__(self, views: Mapping[str, Tensor | Features]) -> None:
        if not views:
            raise InvalidInputError("at least one view is needed")
        self.views = {name: x if isinstance(x, Features) else features_of(x) for name, x in views.items()}
        counts = {name: x.num_rows for name, x in self.views.items()}
        if len(set(counts.values())) > 1:
            raise InvalidInputError(f"views must have the same number of rows, got {counts}")
        first = next(iter(self.views.values()))
        self.num_rows, self.dtype, self.device = first.num_rows, first.dtype, first.device
        self.partition = first.partition
        self.block_entries = max((x.block_entries for x in self.views.values() if x.block_entries), default=None)
        self.row_entries = max(x.row_entries for x in self.views.values())

    requires_grad = property(lambda self: any(x.requires_grad for x in self.views.values()))

    def rows(self, index: Index) -> Views:
        return Views({name: x.rows(index) for name, x in self.views.items()})

    def to(self, dtype: torch.dtype) -> Views:
        return Views({name: x.to(dtype) for name, x in self.views.items()})

    def detach(self) -> Views:
        return Views({name: x.detach() for name, x in self.views.items()})

    def fresh_leaves(self) -> Views:
        return Views({name: x.fresh_leaves() for name, x in self.views.items()})

    def inputs(self) -> list[Tensor]:
        return [tensor for x in self.views.values() for tensor in x.inputs()]

    def same_as(self, other: Rows) -> bool:
        return isinstance(other, Views) and self.views == other.views  # Features are compared by identity.

    def view(self, name: str) -> Features:
        if name not in self.views:
            raise ViewError(f"the kernel reads the view '{name}', but the features only have {sorted(self.views)}")
        return self.views[name]


def features_of(x: Tensor, partition: Partition = WHOLE) -> Features:
    """A feature matrix as features, in the form that suits its layout."""
    is_dense = x.layout == torch.strided
    return DenseFeatures(x, partition=partition) if is_dense else SparseFeatures(to_csr(x), partition=partition)


def as_rows(x: FeaturesLike, partition: Partition = WHOLE) -> Rows:
    """Wrap a tensor (the view ``"h"``) or a mapping of named views; features pass through."""
    if isinstance(x, Rows):
        return x
    if isinstance(x, Tensor):
        return features_of(x, partition)
    return Views({name: features_of(v, partition) if isinstance(v, Tensor) else v for name, v in x.items()})
