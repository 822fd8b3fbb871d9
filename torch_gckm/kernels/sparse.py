"""Sparse features seen through an aggregation, without ever being densified."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels.dense import DenseFeatures
from torch_gckm.kernels.features import Features
from torch_gckm.kernels.origin import Index, Origin
from torch_gckm.layouts import from_scipy, to_scipy

_BLOCK_ENTRIES = 2**26  # Seen whole, the two sparse factors do much less work than their product does.


class SparseFeatures(Features):
    r"""Rows of :math:`A^h X` with sparse :math:`A` and :math:`X`, as for a bag of words and its neighbours'.

    Inner products with a few rows :math:`Y` take two sparse products,
    :math:`A (X Y')`; the product :math:`A X`, still sparse, is only needed for norms and single rows.
    On the CPU; no gradient flows to the features.
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
            left, right = to_scipy(self.operator), to_scipy(self.matrix)
            for _ in range(self.hops):
                right = left @ right
            self._product = from_scipy(right)
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
        picked = to_scipy(self.product)[index if isinstance(index, slice) else index.numpy()]
        if isinstance(index, slice):  # A block of many rows stays sparse; a few rows are what others are compared with.
            return SparseFeatures(from_scipy(picked), origin=origin)
        return DenseFeatures(torch.from_numpy(picked.toarray()), origin)

    def mean(self) -> Tensor:
        return torch.from_numpy(np.asarray(to_scipy(self.product).mean(axis=0)).reshape(-1)).to(self.dtype)

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

    def fresh_leaves(self) -> SparseFeatures:
        return self

    def inputs(self) -> list[Tensor]:
        return []

    def dense(self) -> Tensor:
        return self.product.to_dense()

    def stored(self) -> Tensor:
        return self.product
