"""The top of the spectrum of a centred kernel matrix."""

import numpy as np
import torch
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import EigenResidualError, KernelNotPSDError

_FULL_BELOW = 400  # Up to this order a full decomposition is quicker than Lanczos.


def top_eigenvectors(matrix: Tensor, count: int, *, check_psd: bool) -> tuple[Tensor, Tensor]:
    """Largest eigenvalues and eigenvectors of a symmetric matrix, centred on both sides.

    Centring is applied to vectors, never to the matrix. Eigenvalues that are
    zero up to rounding are left out; signs are fixed.
    """
    size = matrix.size(0)
    count = min(count, size - 1)
    full = size <= _FULL_BELOW or 3 * count > size or matrix.device.type != "cpu"
    if full:
        values, vectors = _full(matrix, count, check_psd)
    else:
        try:
            values, vectors = _lanczos(matrix, count, check_psd)
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
    centred = panels.centred(panels.centred(matrix).t())
    values, vectors = torch.linalg.eigh(centred)
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
