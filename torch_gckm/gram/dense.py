r"""The exact kernel matrix: every entry, in blocks where that saves memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_gckm import panels
from torch_gckm.blocks import blocks
from torch_gckm.errors import EigenResidualError, InvalidInputError, KernelNotPSDError
from torch_gckm.gram.gram import Gram, GramFactory
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.memory import available_bytes, require_memory

_KEEP_FRACTION = 0.25  # A constant matrix is kept between calls if it takes no more of the free memory.
_FULL_BELOW = 400  # Up to this order a full decomposition is quicker than Lanczos.


class Dense(GramFactory):
    r"""Represent kernel matrices exactly, as :math:`n \times n` arrays.

    Eigenvectors and the readout are computed in double precision, the training objective in that of the features.

    Args:
        block_entries: Products and gradients are computed for so many kernel values at a time.
    """

    def __init__(self, block_entries: int = 2**25) -> None:
        if block_entries < 1:
            raise InvalidInputError(f"'block_entries' must be positive, got {block_entries}")
        self.block_entries = block_entries

    def centred(self, kernel: Kernel, rows: Rows, *, min_rank: int = 1, landmarks: Tensor | None = None) -> "DenseGram":
        return DenseGram(kernel, rows, self.block_entries)

    def uncentred(self, kernel: Kernel, rows: Rows, *, landmarks: Tensor | None = None) -> "DenseGram":
        return DenseGram(kernel, rows, self.block_entries)

    def config(self) -> dict[str, Any]:
        return {"kind": "Dense", "arguments": dict(vars(self))}

    def __repr__(self) -> str:
        return "Dense()"


class DenseGram(Gram):
    """The exact kernel matrix of some features. Made by :class:`Dense`."""

    def __init__(self, kernel: Kernel, rows: Rows, block_entries: int) -> None:
        rows.partition.refuse("exact kernel matrices are")
        super().__init__(kernel, rows)
        self.block_entries = block_entries
        self._matrix: Tensor | None = None

    def tracking(self, rows: Rows) -> "DenseGram":
        return DenseGram(self.kernel, rows, self.block_entries)

    def matmul(self, v: Tensor) -> Tensor:
        with torch.no_grad():
            matrix = self._kept_matrix()
            if matrix is not None:
                return matrix @ v
            return torch.cat([self.kernel(self.rows.rows(block), self.rows) @ v for block in self._blocks()])

    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:
        matrix = self._kept_matrix()
        if matrix is None and self._fits_one_block:
            matrix = self.kernel(self.rows)
        if matrix is not None:
            return panels.total(u * (matrix @ v))
        # Blocks are computed again in the backward pass, so that never more than one exists.
        total = torch.zeros((), dtype=u.dtype, device=u.device)
        for block in self._blocks():
            total = total + checkpoint(self._block_bilinear, block, u, v, use_reentrant=False, preserve_rng_state=False)
        return total

    def eigenvectors(self, count: int) -> tuple[Tensor, Tensor]:
        size = self.num_nodes
        # The matrix, one temporary of a kernel's evaluation, and the basis of the Lanczos method.
        require_memory(8 * size * (2 * size + 3 * count), "an exact kernel matrix", self.rows.device)
        with torch.no_grad():
            matrix = self._double_matrix(self.rows.detach())
            values, vectors = top_eigenvectors(matrix, count, check_psd=not self.kernel.is_psd)
        return values.to(self.rows.dtype), vectors.to(self.rows.dtype)

    def representer(self, v: Tensor) -> tuple[None, Tensor]:
        return None, v

    def matrix(self) -> Tensor:
        # With what a readout makes of it: a system, its factors, and as much again for their gradients.
        copies = 4 if self.is_constant or not torch.is_grad_enabled() else 8
        require_memory(8 * copies * self.num_nodes**2, "the exact readout", self.rows.device)
        return self._double_matrix(self.rows)

    def _double_matrix(self, rows: Rows) -> Tensor:
        matrix: Tensor = self.kernel(rows.to(torch.float64))
        if not bool(panels.total(matrix.detach()).isfinite()):
            raise InvalidInputError(f"values of the kernel {self.kernel!r} overflow or are NaN; rescale the features")
        if not self.kernel.is_psd:
            _refuse_asymmetric(matrix.detach())
        return matrix

    @property
    def _fits_one_block(self) -> bool:
        return self.num_nodes**2 <= self.block_entries

    def _blocks(self) -> Iterator[slice]:
        return blocks(self.num_nodes, self.num_nodes, self.block_entries)

    def _block_bilinear(self, block: slice, u: Tensor, v: Tensor) -> Tensor:
        return panels.total(u[block] * (self.kernel(self.rows.rows(block), self.rows) @ v))

    def _kept_matrix(self) -> Tensor | None:
        """The whole matrix, kept between calls: only where it is constant and small enough."""
        if self._matrix is None and self.is_constant:
            num_bytes = self.rows.dtype.itemsize * self.num_nodes**2
            if self._fits_one_block or num_bytes <= _KEEP_FRACTION * available_bytes(self.rows.device):
                with torch.no_grad():
                    self._matrix = self.kernel(self.rows)
        return self._matrix


def _refuse_asymmetric(matrix: Tensor) -> None:
    difference = (matrix - matrix.t()).abs()
    u, v = divmod(int(panels.place_of_largest(difference.flatten())), matrix.size(1))
    if float(difference[u, v]) > 1e-5 * float(panels.largest(matrix.abs())):
        values = f"k({u}, {v}) = {float(matrix[u, v]):.6g}, but k({v}, {u}) = {float(matrix[v, u]):.6g}"
        raise InvalidInputError(f"a kernel must be symmetric; nodes {u} and {v} have {values}")


def top_eigenvectors(matrix: Tensor, count: int, *, check_psd: bool) -> tuple[Tensor, Tensor]:
    """Largest positive eigenvalues, and eigenvectors with fixed signs, of a symmetric matrix centred on both sides."""
    size = matrix.size(0)
    count = min(count, size - 1)
    full = size <= _FULL_BELOW or 3 * count > size or matrix.device.type != "cpu"
    try:
        values, vectors = (_full if full else _lanczos)(matrix, count, check_psd)
    except ArpackError:
        values, vectors = _full(matrix, count, check_psd)
    largest = float(values[0]) if values.numel() else 0.0
    floor = size * torch.finfo(matrix.dtype).eps
    # Rounding is relative to the matrix that is centred, not only to what is left of it.
    positive = values > floor * max(largest, float(panels.largest(matrix.diagonal().abs())))
    values, vectors = values[positive], vectors[:, positive]
    residual = panels.centred(matrix @ panels.centred(vectors)) - vectors * values
    error = float(residual.norm(dim=0).max()) if values.numel() else 0.0
    if not error <= 1e-7 * max(largest, 1e3 * floor * float(panels.largest(matrix.abs()))):
        raise EigenResidualError(
            f"the eigenvectors of the centred kernel matrix have a residual of {error:.3g} (largest eigenvalue "
            f"{largest:.3g}); the kernel's values probably overflow or lose all digits: rescale the features"
        )
    return values, panels.fix_signs(vectors)


def _full(matrix: Tensor, count: int, check_psd: bool) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(panels.centred(panels.centred(matrix).t()))
    if check_psd:
        _refuse_negative(float(values[0]), float(values[-1]))
    first = values.numel() - count
    return values[first:].flip(0), vectors[:, first:].flip(1)


def _lanczos(matrix: Tensor, count: int, check_psd: bool) -> tuple[Tensor, Tensor]:
    size = matrix.size(0)

    def centred_product(x: np.ndarray) -> np.ndarray:
        return panels.centred(matrix @ panels.centred(torch.from_numpy(x.reshape(size)))).numpy()

    operator = LinearOperator((size, size), matvec=centred_product, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)
    values, vectors = eigsh(operator, k=count, which="LA", v0=start)
    if check_psd:
        top = float(values[-1])
        reflected = LinearOperator((size, size), matvec=lambda x: top * x - centred_product(x), dtype=np.float64)
        farthest = eigsh(reflected, k=1, which="LA", v0=start, tol=1e-6, return_eigenvectors=False)
        _refuse_negative(top - float(farthest[0]), top)
    order = np.argsort(values)[::-1].copy()
    return torch.from_numpy(values[order]), torch.from_numpy(vectors[:, order])


def _refuse_negative(smallest: float, largest: float) -> None:
    if smallest < -1e-6 * abs(largest):
        raise KernelNotPSDError(
            f"kernel PCA needs a positive semi-definite kernel, but the centred kernel matrix has the eigenvalue "
            f"{smallest:.3g} (largest: {largest:.3g})"
        )
