"""The seam between kernels and data: rows seen through inner products.

A kernel never touches a feature matrix. It asks a :class:`Features` object for
inner products and squared norms, so any storage that can answer those serves
every kernel. :class:`Views` bundles several of them under names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Union

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError, ViewError

DEFAULT_VIEW = "h"
Index = Union[slice, Tensor]
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
    def view(self, name: str) -> Features:
        """The features called ``name``."""

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

    @abstractmethod
    def rows(self, index: Index) -> Features: ...

    @abstractmethod
    def to(self, dtype: torch.dtype) -> Features: ...

    @abstractmethod
    def detach(self) -> Features: ...

    @abstractmethod
    def mean(self) -> Tensor:
        """The mean row, ``[d]``."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The rows as a plain matrix, for kernels that need the entries."""

    def stored(self) -> Tensor:
        """The rows as a tensor that :func:`as_rows` turns into such features again."""
        return self.dense()

    def entries_from(self, source: Features) -> tuple[Tensor, Tensor] | None:
        """If these are rows of ``source``, the positions ``(number there, number here)`` of each."""
        return None

    def offset(self) -> Tensor | None:
        """A row to measure distances from where the features lie far from the origin, else ``None``."""
        return None

    def shifted(self, offset: Tensor) -> Features | None:
        """The rows minus ``offset``, or ``None`` if the form of storage does not allow it."""
        return None

    @abstractmethod
    def shared_entries(self, other: Features) -> tuple[Tensor, Tensor] | None:
        """Positions ``(i, j)`` known to hold the same row in ``self`` and ``other``, or ``None``."""

    def view(self, name: str) -> Features:
        if name != DEFAULT_VIEW:
            raise ViewError(f"the kernel reads the view '{name}', but the features are a single matrix (view 'h')")
        return self


class DenseFeatures(Features):
    """Features held as a strided matrix."""

    def __init__(self, x: Tensor, origin: tuple[Features, Index] | None = None) -> None:
        if x.dim() != 2:
            raise InvalidInputError(f"features must be a matrix [num_nodes, channels], got shape {tuple(x.shape)}")
        if not x.is_floating_point():
            x = x.to(torch.get_default_dtype())
        self.x = x
        self._origin = origin
        self._offset: tuple[Tensor | None] | None = None

    num_rows = property(lambda self: self.x.size(0))
    num_columns = property(lambda self: self.x.size(1))
    dtype = property(lambda self: self.x.dtype)
    device = property(lambda self: self.x.device)
    requires_grad = property(lambda self: self.x.requires_grad)

    def dot(self, other: Features) -> Tensor:
        other_rows = other.dense()
        if other_rows.size(1) != self.x.size(1):
            raise InvalidInputError(f"features have {self.x.size(1)} columns, but {other_rows.size(1)} were expected")
        return self.x @ other_rows.t()

    def sq_norm(self) -> Tensor:
        return self.x.square().sum(dim=1)

    def rows(self, index: Index) -> DenseFeatures:
        return DenseFeatures(self.x[index], origin=(self, index))

    def mean(self) -> Tensor:
        return self.x.mean(dim=0)

    def offset(self) -> Tensor | None:
        if self._offset is None:
            x = self.x.detach()
            mean = x.mean(dim=0)
            sample = x[:: max(1, x.size(0) // 1000)]
            far = bool(mean.square().sum() > 4.0 * (sample - mean).square().sum(dim=1).mean())
            self._offset = (mean if far else None,)
        return self._offset[0]

    def shifted(self, offset: Tensor) -> DenseFeatures:
        return DenseFeatures(self.x - offset)

    def to(self, dtype: torch.dtype) -> DenseFeatures:
        return self if dtype == self.x.dtype else DenseFeatures(self.x.to(dtype))

    def detach(self) -> DenseFeatures:
        return DenseFeatures(self.x.detach())

    def dense(self) -> Tensor:
        return self.x

    def shared_entries(self, other: Features) -> tuple[Tensor, Tensor] | None:
        if isinstance(other, DenseFeatures) and other.x is self.x:
            every = torch.arange(self.num_rows, device=self.device)
            return every, every
        found = self.entries_from(other)
        return other.entries_from(self) if found is None else found[::-1]

    def entries_from(self, source: Features) -> tuple[Tensor, Tensor] | None:
        if self._origin is None:
            return None
        parent, index = self._origin
        same = parent is source or (
            isinstance(parent, DenseFeatures) and isinstance(source, DenseFeatures) and parent.x is source.x
        )
        if not same:
            return None
        numbers = torch.arange(parent.num_rows, device=self.device)[index]
        return numbers, torch.arange(self.num_rows, device=self.device)


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

    def rows(self, index: Index) -> Views:
        return Views({name: x.rows(index) for name, x in self.views.items()})

    def to(self, dtype: torch.dtype) -> Views:
        return Views({name: x.to(dtype) for name, x in self.views.items()})

    def detach(self) -> Views:
        return Views({name: x.detach() for name, x in self.views.items()})

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
