"""Matrices in other layouts: CSR tensors, SciPy's sparse matrices, NumPy arrays."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import GCKMWarning
from torch_gckm.partition import WHOLE, Partition

_LOST = 1e-3  # The share of a column's spread that rounding may change unnoticed.
SPARSE_BELOW = 0.02  # The share of nonzero features below which sparse products are faster.


def to_csr(x: Tensor) -> Tensor:
    """A matrix of any layout as a CSR tensor."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Sparse (CSR|CSC) tensor support is in beta.*")
        return x if x.layout == torch.sparse_csr else x.to_sparse_csr()


def to_copyable(x: Tensor) -> Tensor:
    """A CSR tensor as a coalesced COO tensor; other ones as they are."""
    return x.to_sparse_coo() if x.layout == torch.sparse_csr else x


def prefers_sparse(x: Tensor, over: Partition = WHOLE) -> bool:
    """Whether a dense matrix has so few nonzero entries that products with it are faster as a sparse one."""
    size = over.all_rows(x.size(0)) * x.size(1)
    if x.layout != torch.strided or x.requires_grad or x.device.type != "cpu" or size < 2**20:
        return False
    return panels.count(x, over) < SPARSE_BELOW * size


def warn_of_lost_digits(
    x: Tensor, dtype: torch.dtype, names: Sequence[str] | None = None, over: Partition = WHOLE
) -> None:
    """Warn if numbers of a column differ by so little that a precision blurs them, as of times in seconds since 1970.

    Sparse matrices are passed over: a column of zeros and such numbers has a large spread.
    """
    is_wider = x.dtype == torch.float64 if x.is_floating_point() else x.element_size() > 2
    if (
        x.layout != torch.strided
        or dtype != torch.float32
        or not is_wider
        or x.size(1) == 0
        or over.all_rows(x.size(0)) < 2
    ):
        return
    wide = x.detach().double()
    most = over.processes.largest(torch.stack([_lost(values, dtype).max() for values in wide.unbind(dim=1)]))
    spreads = panels.column_spread(wide, over)
    for column, values in enumerate(wide.unbind(dim=1)):
        if math.inf > float(most[column]) > _LOST * float(spreads[column]) > 0.0:  # An overflow is an error elsewhere.
            number = over.pick(values, panels.place_of_largest(_lost(values, dtype), over).view(1))
            name = f"{column}" if names is None else f"'{names[column]}'"
            warnings.warn(
                f"the numbers of column {name} differ by too little for single precision, which makes "
                f"{float(number.to(dtype)):.17g} of {float(number):.17g}; subtract a constant from the column",
                GCKMWarning,
                stacklevel=3,
            )
            return


def _lost(values: Tensor, dtype: torch.dtype) -> Tensor:
    """What a precision takes from numbers in double precision."""
    return (values - values.to(dtype)).abs()


def to_scipy(x: Tensor) -> Any:
    """A CSR tensor as SciPy's CSR matrix; they share memory."""
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return scipy.sparse.csr_matrix(parts, shape=tuple(x.shape))


def from_scipy(x: Any) -> Tensor:
    """A sparse matrix of SciPy as a CSR tensor."""
    x = x.tocsr()
    x.sum_duplicates()
    x.sort_indices()
    indices = (torch.from_numpy(x.indptr.astype(np.int64)), torch.from_numpy(x.indices.astype(np.int64)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Sparse CSR tensor support is in beta.*")
        return torch.sparse_csr_tensor(*indices, torch.from_numpy(x.data), size=x.shape, check_invariants=False)


def csr_matrix(index: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    """A CSR tensor from places ``[2, k]`` and values ``[k]``; equal places add up."""
    return to_csr(torch.sparse_coo_tensor(index, values, size, check_invariants=False).coalesce())


def with_short_indices(x: Tensor) -> Tensor:
    """A CSR tensor with indices of 32 bits if they suffice; products would convert them each time."""
    if max(x.values().numel(), *x.shape) >= 2**31 or x.device.type != "cpu":
        return x
    indices = (x.crow_indices().int(), x.col_indices().int())
    return torch.sparse_csr_tensor(*indices, x.values(), size=x.shape, check_invariants=False)


def scale_rows(x: Tensor, factor: Tensor) -> Tensor:
    """A matrix, dense or sparse, with its rows multiplied by ``factor``, ``[n]``."""
    if x.layout == torch.strided:
        return x * factor.unsqueeze(1)
    x = to_csr(x).clone()
    x.values().mul_(torch.repeat_interleave(factor, x.crow_indices().diff()))
    return x


def scale_columns(x: Tensor, factor: Tensor) -> Tensor:
    """A matrix, dense or sparse, with its columns multiplied by ``factor``, ``[d]``."""
    if x.layout == torch.strided:
        return x * factor
    x = to_csr(x).clone()
    x.values().mul_(factor[x.col_indices()])
    return x


def same_values(a: Tensor, b: Tensor) -> bool:
    """Whether two matrices of any layout hold the same numbers in the same type."""
    if a.layout != b.layout or a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    if a.layout == torch.strided:
        return (a.data_ptr() == b.data_ptr() and a.stride() == b.stride()) or torch.equal(a, b)
    pairs = ((x.crow_indices(), x.col_indices(), x.values()) for x in (to_csr(a), to_csr(b)))
    return all(same_values(x, y) for x, y in zip(*pairs, strict=True))
