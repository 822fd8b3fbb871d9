r"""The factor of a low-rank kernel matrix that is not stored: its rows are computed from kernel columns when needed."""

from typing import Literal, Self, Union

import torch
from torch import Tensor

from torch_gckm.blocks import RowBlocks, times_upper
from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.memory import available_bytes, require_memory

PanelForm = Literal["auto", "stored", "recomputed"]
FORMS: tuple[PanelForm, ...] = ("auto", "stored", "recomputed")
_STORED_BELOW = 0.5  # The share of the free memory up to which a panel is stored: what uses it needs memory, too.
_NUMBERS = 4  # Double-precision numbers per row that a recomputed panel needs beside it.


def is_stored(form: PanelForm, rows: Rows, rank: int, block_size: int = 0) -> bool:
    """Whether to store a panel of so many columns, with temporary blocks of columns; all processes agree.

    It raises if neither the panel nor what replaces it fits into memory.
    """
    size, what = (rank + 3 * block_size) * rows.num_rows * rows.dtype.itemsize, f"a kernel matrix of rank {rank}"
    if form == "auto":
        processes = rows.partition.processes  # Those of one machine share its memory.
        fits = size <= _STORED_BELOW * available_bytes(rows.device) / processes.on_this_machine
        form = "stored" if processes.everywhere(fits) else "recomputed"
    if form == "stored":
        require_memory(size, what, rows.device, "use LowRank(panel='recomputed'), a lower 'max_rank' or fewer nodes")
    else:
        require_memory(8 * _NUMBERS * rows.num_rows, what, rows.device)
    return form == "stored"


def check_form(form: str) -> None:
    """Raise unless it is the name of a form."""
    if form not in FORMS:
        raise InvalidInputError(f"'panel' must be 'auto', 'stored' or 'recomputed', got {form!r}")


class RecomputedFactor(RowBlocks):
    r"""The factor :math:`F = K_{nS} L^{-\top}` with :math:`K_{SS} = L L'`, minus its column means if it is centred.

    It holds the features of the rows and of the landmarks, and two matrices of order ``m``. A pass over all rows costs
    :math:`O(n m d + n m^2)`, a product with ``c`` columns :math:`O(n m (d + c))`.

    Args:
        kernel: The kernel function.
        rows: The features of the rows of this process.
        landmarks: The landmarks :math:`S` by their global numbers, ``[m]``.
        root: The root :math:`L`, ``[m, m]``, in double precision.
        is_wide: Compute in double precision, since kernel values hardly differ.
        mean: The column means of the factor, ``[m]``, in double precision, once they are known.
        is_centred: Subtract them.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: Rows,
        landmarks: Tensor,
        root: Tensor,
        is_wide: bool,
        mean: Tensor | None = None,
        is_centred: bool = False,
    ) -> None:
        self.kernel, self.rows, self.landmarks, self.root = kernel, rows, landmarks, root
        self.is_wide, self.mean, self.is_centred = is_wide, mean, is_centred
        self.shape, self.dtype, self.device = (rows.num_rows, landmarks.numel()), rows.dtype, rows.device
        self.precision = torch.float64 if is_wide else rows.dtype
        # Rows of this process, by its own numbers.
        self._own = rows if rows.partition.is_whole else rows.rows(slice(0, rows.num_rows))
        self._marks = rows.rows(landmarks)
        eye = torch.eye(root.size(0), dtype=root.dtype, device=root.device)
        self._inverse = torch.linalg.solve_triangular(root, eye, upper=False).t()

    def __getitem__(self, index: slice | Tensor) -> Tensor:
        values = self.columns(index)
        if self.is_centred and self.mean is not None:
            values -= self.mean.to(values.dtype)
        return values.to(self.dtype)

    def columns(self, index: slice | Tensor, start: int = 0, out: Tensor | None = None) -> Tensor:
        """Some rows of this process, not centred, in the precision of the computation; columns from ``start`` on."""
        columns = self._kernel_columns(index)
        inverse = self._inverse[:, start:].to(columns.dtype)
        if out is None:
            out = columns.new_empty(columns.size(0), inverse.size(1))
        if start:
            return torch.mm(columns, inverse, out=out)
        times_upper(columns, inverse, out=out)
        return out

    def times(self, block: slice, v: Tensor, dtype: torch.dtype) -> Tensor:
        columns = self._kernel_columns(block)
        precision = torch.promote_types(dtype, columns.dtype)
        v = v.double()
        result = columns.to(precision) @ (self._inverse @ v).to(precision)
        return result - (self.mean @ v).to(precision) if self.is_centred and self.mean is not None else result

    def pick(self, index: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Rows by their global numbers, the same on all processes, computed in double precision. R(k d) for ``k``."""
        rows = self.rows.rows(index).to(torch.float64)
        values: Tensor = self.kernel(rows, self._marks.to(torch.float64)) @ self._inverse
        if self.is_centred and self.mean is not None:
            values = values - self.mean
        return values.to(self.dtype if dtype is None else dtype)

    def with_mean(self, mean: Tensor, is_centred: bool) -> Self:
        """The same factor with its column means."""
        return type(self)(self.kernel, self.rows, self.landmarks, self.root, self.is_wide, mean, is_centred)

    def _kernel_columns(self, index: slice | Tensor) -> Tensor:
        rows = self._own.block(index) if isinstance(index, slice) else self._own.rows(index)
        columns: Tensor = self.kernel(rows.to(self.precision), self._marks.to(self.precision))
        return columns


Factor = Union[Tensor, RecomputedFactor]
