"""Sparse features seen through an aggregation, without ever being densified."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels.dense import DenseFeatures
from torch_gckm.kernels.features import Features
from torch_gckm.kernels.origin import Index, Origin

SPARSE_BELOW = 0.02  # The share of nonzero features below which sparse products are faster.
_BLOCK_ENTRIES = 2**26  # Seen whole, the two sparse factors do much less work than their product does.


def to_csr(x: Tensor) -> Tensor:
    """A matrix of any layout as a CSR tensor."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Sparse (CSR|CSC) tensor support is in beta.*")
        return x if x.layout == torch.sparse_csr else x.to_sparse_csr()


def prefers_sparse(x: Tensor) -> bool:
    """Whether a dense matrix has so few nonzero entries that products with it are faster as a sparse one."""
    if x.requires_grad or x.device.type != "cpu" or x.numel() < 2**20:
        return False
    return int(torch.count_nonzero(x)) < SPARSE_BELOW * x.numel()


def _to_scipy(x: Tensor) -> Any:
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return csr_matrix(parts, shape=tuple(x.shape))


def _from_scipy(x: Any) -> Tensor:
    x.sort_indices()
    indices = (torch.from_numpy(x.indptr.astype(np.int64)), torch.from_numpy(x.indices.astype(np.int64)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Sparse CSR tensor support is in beta.*")
        return torch.sparse_csr_tensor(*indices, torch.from_numpy(x.data), size=x.shape, check_invariants=False)


class SparseFeatures(Features):
    r"""Rows of :math:`A^h X` with sparse :math:`A` and :math:`X`, as for a bag of words and its neighbours'.

    Inner products with a few rows :math:`Y` take two sparse products,
    :math:`A (X Y')`; the product :math:`A X`, still sparse, is only needed for norms and single rows.
    On the CPU; no gradient flows to the features.

    Args:
        matrix: :math:`X`, a CSR tensor ``[n, d]``.
        operator: :math:`A`, a CSR tensor ``[n, n]``; none for the rows of :math:`X` themselves.
        hops: The power :math:`h`.
    """

    def __init__(
        self, matrix: Tensor, operator: Tensor | None = None, hops: int = 1, origin: Origin | None = None
    ) -> None:
        if matrix.requires_grad:
            raise InvalidInputError("gradients to sparse features are not supported; pass x.to_dense()")
        self.matrix, self.operator, self.hops = matrix, operator, hops
        self.origin = Origin(object(), range(matrix.size(0))) if origin is None else origin
        self._product: Tensor | None = matrix if operator is None else None
        self._sq_norm: Tensor | None = None
        self._cast: SparseFeatures | None = None

    num_rows = property(lambda self: self.matrix.size(0))
    num_columns = property(lambda self: self.matrix.size(1))
    dtype = property(lambda self: self.matrix.dtype)
    device = property(lambda self: self.matrix.device)
    requires_grad = property(lambda self: False)
    block_entries = property(lambda self: _BLOCK_ENTRIES)

    @property
    def product(self) -> Tensor:
        """The rows themselves, a CSR tensor."""
        if self._product is None:
            assert self.operator is not None
            left, right = _to_scipy(self.operator), _to_scipy(self.matrix)
            for _ in range(self.hops):
                right = left @ right
            self._product = _from_scipy(right)
        return self._product

    def dot(self, other: Features) -> Tensor:
        rows = other.dense()
        if rows.size(1) != self.num_columns:
            raise InvalidInputError(f"features have {self.num_columns} columns, but {rows.size(1)} were expected")
        result = self.matrix @ rows.t().contiguous()
        if self.operator is not None:
            for _ in range(self.hops):
                result = self.operator @ result
        return result

    def sq_norm(self) -> Tensor:
        if self._sq_norm is None:
            product = self.product
            counts = product.crow_indices().diff()
            self._sq_norm = torch.segment_reduce(product.values().square(), "sum", lengths=counts, initial=0)
        return self._sq_norm

    def rows(self, index: Index) -> Features:
        origin = self.origin.pick(index)
        picked = _to_scipy(self.product)[index if isinstance(index, slice) else index.numpy()]
        if isinstance(index, slice):  # A block of many rows stays sparse; a few rows are what others are compared with.
            return SparseFeatures(_from_scipy(picked), origin=origin)
        return DenseFeatures(torch.from_numpy(picked.toarray()), origin)

    def mean(self) -> Tensor:
        return torch.from_numpy(np.asarray(_to_scipy(self.product).mean(axis=0)).reshape(-1)).to(self.dtype)

    def to(self, dtype: torch.dtype) -> SparseFeatures:
        if dtype == self.dtype:
            return self
        if self._cast is None or self._cast.dtype != dtype:
            operator = None if self.operator is None else self.operator.to(dtype)
            self._cast = SparseFeatures(self.matrix.to(dtype), operator, self.hops, self.origin)
            if torch.finfo(dtype).bits < torch.finfo(self.dtype).bits:
                self._cast._product = self.product.to(dtype)  # The costly part; to be more exact, it is done again.
        return self._cast

    def detach(self) -> SparseFeatures:
        return self

    def leaves(self) -> SparseFeatures:
        return self

    def inputs(self) -> list[Tensor]:
        return []

    def dense(self) -> Tensor:
        return self.product.to_dense()

    def stored(self) -> Tensor:
        return self.product
