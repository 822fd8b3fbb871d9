"""The seam between kernels and data: rows seen through inner products.

A kernel never touches a feature matrix. It asks a :class:`Features` object for
inner products and squared norms, so any storage that can answer those serves
every kernel. :class:`Views` bundles several of them under names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Union

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError, ViewError
from torch_gckm.kernels.origin import Index, Origin
from torch_gckm.numerics import row_dots

DEFAULT_VIEW = "h"
_BLOCK_ENTRIES = 2**21  # Arrays of this size stay in the allocator's hands; larger ones are mapped anew each time.
FeaturesLike = Union[Tensor, "Rows", Mapping[str, Union[Tensor, "Features"]]]


class Rows(ABC):
    """Something with ``num_rows`` rows: one feature matrix, or several views of the same nodes."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """The number of rows."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The floating-point type of kernel values."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the rows live."""

    @property
    @abstractmethod
    def requires_grad(self) -> bool:
        """Whether gradients flow to these rows."""

    @abstractmethod
    def rows(self, index: Index) -> Rows:
        """The rows ``index``, a slice or a tensor of row numbers."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> Rows:
        """The same rows in another floating-point type, differentiably."""

    @abstractmethod
    def detach(self) -> Rows:
        """The same rows, cut from the autograd graph."""

    @abstractmethod
    def leaves(self) -> Rows:
        """The same rows as a new start for gradients, where gradients flow to them."""

    @abstractmethod
    def inputs(self) -> list[Tensor]:
        """The matrices that gradients flow to."""

    @abstractmethod
    def view(self, name: str) -> Features:
        """The features called ``name``."""

    @property
    def block_entries(self) -> int:
        """How many kernel values to evaluate at a time."""
        return _BLOCK_ENTRIES

    @property
    def row_entries(self) -> int:
        """How many numbers hold a row."""
        return 1

    def blocks(self, width: int) -> Iterator[slice]:
        """Slices that cover all rows, such that ``width`` values a row make an array of moderate size."""
        step = max(1, self.block_entries // max(width, self.row_entries))
        for start in range(0, self.num_rows, step):
            yield slice(start, min(start + step, self.num_rows))

    def block(self, block: slice) -> Rows:
        """The rows of one slice; these rows themselves if it covers them all."""
        return self if block == slice(0, self.num_rows) else self.rows(block)

    def tensors(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The named views as plain tensors, to be stored."""
        return {name: self.view(name).stored() for name in names}


class Features(Rows):
    """One feature matrix :math:`[n, d]`, seen through inner products."""

    @property
    @abstractmethod
    def num_columns(self) -> int:
        """The number of feature columns."""

    @abstractmethod
    def dot(self, other: Features) -> Tensor:
        """Inner products with the rows of ``other``, ``[n, m]``, freshly allocated."""

    @abstractmethod
    def sq_norm(self) -> Tensor:
        """Squared Euclidean norms of the rows, ``[n]``."""

    def sq_distance(self, other: Features) -> Tensor:
        """Squared Euclidean distances to the rows of ``other``, ``[n, m]``, up to rounding; freshly allocated."""
        return self.dot(other).mul_(-2.0).add_(self.sq_norm().unsqueeze(1)).add_(other.sq_norm())

    @abstractmethod
    def rows(self, index: Index) -> Features: ...

    @abstractmethod
    def to(self, dtype: torch.dtype) -> Features: ...

    @abstractmethod
    def detach(self) -> Features: ...

    @abstractmethod
    def leaves(self) -> Features: ...

    @abstractmethod
    def mean(self) -> Tensor:
        """The mean row, ``[d]``."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The rows as a plain matrix, for kernels that need the entries."""

    def stored(self) -> Tensor:
        """The rows as a tensor that :func:`as_rows` turns into such features again."""
        return self.dense()

    def offset(self) -> Tensor | None:
        """A row to measure distances from where the features lie far from the origin, else ``None``."""
        return None

    def shifted(self, offset: Tensor) -> Features | None:
        """The rows minus ``offset``, or ``None`` if the form of storage does not allow it."""
        return None

    origin: Origin
    """Where these rows come from; rows of one matrix know each other again."""

    def shared_entries(self, other: Features) -> tuple[Tensor, Tensor] | None:
        """Positions ``(i, j)`` known to hold the same row in ``self`` and ``other``, or ``None``."""
        return self.origin.shared(other.origin)

    def view(self, name: str) -> Features:
        if name != DEFAULT_VIEW:
            raise ViewError(f"the kernel reads the view '{name}', but the features are a single matrix (view 'h')")
        return self


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
            return row_dots(self.x, self.x)
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
        return self.x.mean(dim=0)

    def offset(self) -> Tensor | None:
        if self._offset is None:
            x = self.x.detach()
            mean = x.mean(dim=0)
            sample = x[:: max(1, x.size(0) // 1000)]
            # Compiled code cannot ask, and moving them is never wrong.
            far = torch.compiler.is_compiling() or bool(
                mean.square().sum() > 4.0 * (sample - mean).square().sum(dim=1).mean()
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
        return DenseFeatures(self.x.detach(), self.origin, self._offset)

    def leaves(self) -> DenseFeatures:
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


class Views(Rows):
    """Several named feature matrices of the same nodes.

    Args:
        views: Name to features; all with the same number of rows.
    """

    def __init__(self, views: Mapping[str, Tensor | Features]) -> None:
        if not views:
            raise InvalidInputError("at least one view is needed")
        self.views = {name: x if isinstance(x, Features) else features_of(x) for name, x in views.items()}
        counts = {name: x.num_rows for name, x in self.views.items()}
        if len(set(counts.values())) > 1:
            raise InvalidInputError(f"views must have the same number of rows, got {counts}")

    _first = property(lambda self: next(iter(self.views.values())))
    num_rows = property(lambda self: self._first.num_rows)
    dtype = property(lambda self: self._first.dtype)
    device = property(lambda self: self._first.device)
    requires_grad = property(lambda self: any(x.requires_grad for x in self.views.values()))
    block_entries = property(lambda self: max(x.block_entries for x in self.views.values()))
    row_entries = property(lambda self: max(x.row_entries for x in self.views.values()))

    def rows(self, index: Index) -> Views:
        return Views({name: x.rows(index) for name, x in self.views.items()})

    def to(self, dtype: torch.dtype) -> Views:
        return Views({name: x.to(dtype) for name, x in self.views.items()})

    def detach(self) -> Views:
        return Views({name: x.detach() for name, x in self.views.items()})

    def leaves(self) -> Views:
        return Views({name: x.leaves() for name, x in self.views.items()})

    def inputs(self) -> list[Tensor]:
        return [tensor for x in self.views.values() for tensor in x.inputs()]

    def view(self, name: str) -> Features:
        if name not in self.views:
            raise ViewError(f"the kernel reads the view '{name}', but the features only have {sorted(self.views)}")
        return self.views[name]


def features_of(x: Tensor) -> Features:
    """A feature matrix as features, in the form that suits its layout."""
    if x.layout == torch.strided:
        return DenseFeatures(x)
    from torch_gckm.kernels.sparse import SparseFeatures, to_csr  # It builds on this module.

    return SparseFeatures(to_csr(x))


def as_rows(x: FeaturesLike) -> Rows:
    """Wrap a tensor (the view ``"h"``) or a mapping of named views; features pass through."""
    if isinstance(x, Rows):
        return x
    return features_of(x) if isinstance(x, Tensor) else Views(x)
