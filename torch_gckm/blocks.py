"""Work on rows a block at a time, and products row by row: nothing here meets with other rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Union

import torch
from torch import Tensor

BLOCK_ENTRIES = 2**21  # Arrays of this size stay in the allocator's hands; larger ones are mapped anew each time.
STRIPE = 256  # Columns of a triangular or symmetric product at a time.


def blocks(num_rows: int, width: int, entries: int | None = None) -> Iterator[slice]:
    """Slices that cover all rows, such that ``width`` numbers per row make an array of moderate size."""
    step = max(1, (BLOCK_ENTRIES if entries is None else entries) // max(width, 1))
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


class RowBlocks(ABC):
    """A matrix whose rows are computed when they are asked for; it never exists as a whole."""

    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device
    requires_grad = False

    def size(self, dim: int) -> int:
        """The number of rows or columns."""
        return self.shape[dim]

    @abstractmethod
    def __getitem__(self, index: slice | Tensor) -> Tensor:
        """Some rows."""

    @abstractmethod
    def times(self, block: slice, v: Tensor, dtype: torch.dtype) -> Tensor:
        """``self[block] @ v``, in products of the given precision or a higher one."""


Matrix = Union[Tensor, RowBlocks]


def row_dots(a: Tensor, b: Tensor) -> Tensor:
    """The inner products of equal rows, ``[n]``; unlike ``(a * b).sum(1)``, without a temporary."""
    return torch.bmm(a.unsqueeze(1), b.unsqueeze(2)).view(-1)


def times(panel: Matrix, v: Tensor, dtype: torch.dtype) -> Tensor:
    """``panel @ v`` in blocks of the given precision, in the type of ``v``."""
    result = v.new_empty(panel.size(0), v.size(1))
    for block in blocks(panel.size(0), panel.size(1)):
        result[block] = times_block(panel, block, v, dtype)
    return result


def filled(make: Callable[[slice], Tensor], like: Tensor, dtype: torch.dtype) -> Tensor:
    """What ``make`` computes of blocks of rows, in the shape of ``like`` and the given type."""
    result = torch.empty_like(like, dtype=dtype)
    for block in blocks(like.size(0), like.size(1)):
        result[block] = make(block)
    return result


def times_block(panel: Matrix, block: slice, v: Tensor, dtype: torch.dtype) -> Tensor:
    """``panel[block] @ v`` in the given precision."""
    return panel.times(block, v, dtype) if isinstance(panel, RowBlocks) else panel[block].to(dtype) @ v.to(dtype)


def times_upper(left: Tensor, upper: Tensor, out: Tensor) -> None:
    """``left @ upper`` for an upper triangular matrix, without the products with its zeros."""
    for stripe in blocks(upper.size(1), 1, STRIPE):
        torch.mm(left[:, : stripe.stop], upper[: stripe.stop, stripe], out=out[:, stripe])
