"""The seam between kernels and data: rows seen through inner products."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Self, Union

import torch
from torch import Tensor

from torch_gckm.blocks import blocks
from torch_gckm.errors import InvalidInputError, ViewError
from torch_gckm.partition import WHOLE, Partition

DEFAULT_VIEW = "h"
Index = Union[slice, Tensor]
FeaturesLike = Union[Tensor, "Rows", Mapping[str, Union[Tensor, "Features"]]]


class Origin(NamedTuple):
    """The matrix that rows were taken from, and their numbers in it: rows of one matrix know each other again."""

    matrix: object
    numbers: range | Tensor

    def pick(self, index: Index) -> Origin:
        """The origin of the rows ``index`` of rows with this origin."""
        numbers = self.numbers
        if isinstance(numbers, range):
            if isinstance(index, slice) and index.step in (None, 1):
                return Origin(self.matrix, numbers[index])
            device = None if isinstance(index, slice) else index.device
            numbers = torch.arange(numbers.start, numbers.stop, device=device)
        return Origin(self.matrix, numbers[index])

    def shared(self, other: Origin) -> tuple[Tensor, Tensor] | None:
        """Positions ``(i, j)`` of the same row here and there, or ``None`` if the matrices differ."""
        if self.matrix is not other.matrix:
            return None
        here, there = self.numbers, other.numbers
        if isinstance(here, range) and isinstance(there, range):
            start = max(here.start, there.start)
            both = torch.arange(start, max(start, min(here.stop, there.stop)))
            return both - here.start, both - there.start
        if isinstance(here, range):
            assert isinstance(there, Tensor)
            found = ((there >= here.start) & (there < here.stop)).nonzero().squeeze(1)
            return there[found] - here.start, found
        if isinstance(there, range):
            swapped = other.shared(self)
            return None if swapped is None else swapped[::-1]
        ordered, order = there.sort()
        first = torch.searchsorted(ordered, here)
        count = torch.searchsorted(ordered, here, right=True) - first
        place = torch.repeat_interleave(count)  # A row may occur more than once on either side.
        within = torch.arange(place.numel(), device=here.device) - (count.cumsum(0) - count)[place]
        return place, order[first[place] + within]


class Rows(ABC):
    """Something with ``num_rows`` rows: one feature matrix, or several views of the same nodes.

    Over several processes these are the rows of one of them; ``partition`` says which. Blocks of rows stand for
    themselves, and so do rows that were picked by their global numbers, which all processes have.
    """

    num_rows: int
    partition: Partition = WHOLE
    dtype: torch.dtype  # The floating-point type of kernel values.
    device: torch.device
    block_entries: int | None = None  # How many kernel values to evaluate at a time, if not as many as usual.
    row_entries: int = 1  # How many numbers hold a row.

    @property
    @abstractmethod
    def requires_grad(self) -> bool:
        """Whether gradients flow to these rows."""

    @property
    def num_nodes(self) -> int:
        """The number of rows of all processes."""
        return self.partition.all_rows(self.num_rows)

    @abstractmethod
    def rows(self, index: Index) -> Rows:
        """The rows ``index``, a slice of those of this process or a tensor of global row numbers."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> Self:
        """The same rows in another floating-point type, differentiably."""

    @abstractmethod
    def detach(self) -> Self:
        """The same rows, cut from the autograd graph."""

    @abstractmethod
    def fresh_leaves(self) -> Self:
        """The same rows as a new start for gradients, where gradients flow to them."""

    @abstractmethod
    def inputs(self) -> list[Tensor]:
        """The matrices that gradients flow to."""

    @abstractmethod
    def view(self, name: str) -> Features:
        """The features called ``name``."""

    def blocks(self, width: int) -> Iterator[slice]:
        """Slices that cover all rows, such that ``width`` values per row make an array of moderate size."""
        return blocks(self.num_rows, max(width, self.row_entries), self.block_entries)

    def block(self, block: slice) -> Rows:
        """The rows of one slice; these rows themselves if it covers them all."""
        return self if block == slice(0, self.num_rows) else self.rows(block)

    def same_as(self, other: Rows) -> bool:
        """Whether these are the very same features, which are never written to."""
        return self is other

    def tensors(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The named views as plain tensors, to be stored."""
        return {name: self.view(name).stored() for name in names}


class Features(Rows):
    """One feature matrix ``[n, d]``; any storage that knows inner products and squared norms serves every kernel."""

    num_columns: int
    origin: Origin

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
    def row_sum(self) -> Tensor:
        """The sum of the rows of this process, ``[d]``."""

    def mean(self) -> Tensor:
        """The mean row, ``[d]``."""
        return self.partition.processes.sum(self.row_sum()) / self.num_nodes

    @abstractmethod
    def dense(self) -> Tensor:
        """The rows as a plain matrix, for kernels that need the entries."""

    def comparable(self, other: Features) -> Tensor:
        """The rows of ``other`` as a plain matrix, which must have as many columns."""
        rows = other.dense()
        if rows.size(1) != self.num_columns:
            raise InvalidInputError(f"features have {self.num_columns} columns, but {rows.size(1)} were expected")
        return rows

    def stored(self) -> Tensor:
        """The rows as a tensor that :func:`as_rows` turns into such features again."""
        return self.dense()

    def offset(self) -> Tensor | None:
        """A row to measure distances from where the features lie far from the origin, else ``None``."""
        return None

    def shifted(self, offset: Tensor) -> Features | None:
        """The rows minus ``offset``, or ``None`` if the form of storage does not allow it."""
        return None

    def shared_entries(self, other: Features) -> tuple[Tensor, Tensor] | None:
        """Positions ``(i, j)`` known to hold the same row in ``self`` and ``other``, or ``None``."""
        return self.origin.shared(other.origin)

    def origin_of(self, index: Index) -> Origin:
        """The origin of :meth:`rows`."""
        if isinstance(index, slice) or self.partition.is_whole:
            return self.origin.pick(index)
        return Origin(self.origin.matrix, index)

    def view(self, name: str) -> Features:
        if name != DEFAULT_VIEW:
            raise ViewError(f"the kernel reads the view '{name}', but the features are a single matrix (view 'h')")
        return self
