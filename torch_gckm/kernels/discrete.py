"""Kernels that read entries: categorical codes, precomputed values, any callable."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels.features import Features
from torch_gckm.kernels.kernel import LeafKernel

KernelFunction = Callable[[Tensor, Tensor], Tensor]


class Categorical(LeafKernel):
    r"""The overlap kernel :math:`k(x, y) = \frac{1}{d} \sum_j [x_j = y_j]` on category codes.

    One minus the normalised Hamming distance. Features hold one code a column, so they are compared, never multiplied.
    Aggregation would mix codes: use it with ``aggregation="none"``, or on a view that is not aggregated. It is
    piecewise constant: no gradient flows to the codes.
    """

    def _evaluate(self, a: Features, b: Features) -> Tensor:
        x, y = b.comparable(a).detach(), b.dense().detach()
        return (x.size(1) - torch.cdist(x, y, p=0)).div_(max(x.size(1), 1))  # p=0 counts the codes that differ.

    def _diagonal(self, a: Features) -> Tensor:
        return torch.ones(a.num_rows, dtype=a.dtype, device=a.device)


class Precomputed(LeafKernel):
    """Kernel values given as a symmetric matrix ``[N, N]``; features hold row numbers in one column.

    .. code-block:: python

        conv = GCKMConv(1, 16, kernel=Precomputed(K), aggregation="none")
        conv.initialize(torch.arange(n).unsqueeze(1), edge_index)

    New nodes work as long as ``matrix`` has rows for them.
    """

    is_psd = False  # Not known; kernel PCA checks it.

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        if matrix.dim() != 2 or matrix.size(0) != matrix.size(1):
            raise InvalidInputError(f"a precomputed kernel must be a square matrix, got shape {tuple(matrix.shape)}")
        if not matrix.is_floating_point():
            matrix = matrix.to(torch.get_default_dtype())
        panels.check_finite(matrix, "the precomputed kernel")
        gap = (matrix - matrix.t()).abs()
        if float(gap.max()) > 1e3 * torch.finfo(matrix.dtype).eps * float(matrix.abs().max()):
            row, column = divmod(int(gap.argmax()), matrix.size(0))
            raise InvalidInputError(
                f"a precomputed kernel must be symmetric, but entries ({row}, {column}) and ({column}, {row}) differ "
                f"by {float(gap.max()):.3g}; pass (K + K.T) / 2 if that is what you mean"
            )
        self.register_buffer("matrix", matrix)

    matrix: Tensor

    def _numbers(self, a: Features) -> Tensor:
        x = a.dense()
        if x.size(1) != 1:
            raise InvalidInputError(f"a precomputed kernel reads row numbers from one column, got {x.size(1)} columns")
        numbers = x[:, 0].round().long()
        if x.size(0) and panels.largest((x[:, 0] - numbers).abs()) > 1e-3:
            raise InvalidInputError(
                "a precomputed kernel reads row numbers, but its features are not whole numbers; "
                "row numbers must not be aggregated: use aggregation='none'"
            )
        if x.size(0):
            low, high = int(panels.smallest(numbers)), int(panels.largest(numbers))
            if not 0 <= low <= high < self.matrix.size(0):
                raise InvalidInputError(f"row numbers must lie in [0, {self.matrix.size(0)}), got {low} to {high}")
        return numbers

    def _evaluate(self, a: Features, b: Features) -> Tensor:
        return self.matrix[self._numbers(a)][:, self._numbers(b)].to(a.dtype)

    def _diagonal(self, a: Features) -> Tensor:
        return self.matrix.diagonal()[self._numbers(a)].to(a.dtype)

    def arguments(self) -> dict[str, Any]:
        return {"matrix": self.matrix}

    def key(self) -> tuple[object, ...]:
        return (*super().key(), id(self.matrix), self.matrix._version)

    def extra_repr(self) -> str:
        return f"Precomputed({self.matrix.size(0)} x {self.matrix.size(1)})"


class Custom(LeafKernel):
    """Any function of feature matrices ``[n, d]`` and ``[m, d]`` that returns kernel values ``[n, m]``.

    Layers take the bare function, too: ``GCKMConv(16, 8, kernel=my_function)``. A model with such a kernel can be
    trained but not saved to one file, since loading never executes code; save its ``state_dict`` instead.
    """

    is_psd = False  # Not known; kernel PCA checks it.
    diagonal_block = 64

    def __init__(self, function: KernelFunction) -> None:
        super().__init__()
        self.function = function

    def _evaluate(self, a: Features, b: Features) -> Tensor:
        return self._call(a.dense(), b.dense()).clone()  # Callers work in place; the function may keep it.

    def _diagonal(self, a: Features) -> Tensor:
        # Small blocks on the diagonal: n * 64 values, never n * n.
        blocks = a.dense().split(self.diagonal_block)
        return torch.cat([self._call(block, block).diagonal() for block in blocks])

    def _call(self, a: Tensor, b: Tensor) -> Tensor:
        values = self.function(a, b)
        if not isinstance(values, Tensor) or values.dtype != a.dtype:
            given = values.dtype if isinstance(values, Tensor) else type(values).__name__
            hint = "compute with torch, in the type of the arguments"
            raise InvalidInputError(f"the kernel function returned {given} for rows of {a.dtype}; {hint}")
        if values.shape != (a.size(0), b.size(0)):
            raise InvalidInputError(
                f"the kernel function returned shape {tuple(values.shape)} for {a.size(0)} and {b.size(0)} rows; "
                f"expected {(a.size(0), b.size(0))}"
            )
        return values

    def arguments(self) -> dict[str, Any]:
        return {"function": getattr(self.function, "__qualname__", repr(self.function))}

    def extra_repr(self) -> str:
        return f"Custom({getattr(self.function, '__name__', repr(self.function))})"
