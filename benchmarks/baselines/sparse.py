"""Sparse features and graphs for networks, with the transposes that torch would make anew in every step."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout
from torch_geometric.data import Data
from torch_geometric.nn import Linear
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, scatter


class _Product(torch.autograd.Function):
    """A sparse matrix times a dense one; gradients flow to the latter."""

    @staticmethod
    def forward(ctx: Any, matrix: SparseMatrix, x: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix.plain @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix.transposed @ grad


class SparseMatrix:
    """A sparse matrix and its transpose.

    Args:
        matrix: A matrix of any layout.
    """

    def __init__(self, matrix: Tensor) -> None:
        matrix = matrix.to_sparse_coo().coalesce()
        index, shape = matrix.indices(), (matrix.size(0), matrix.size(1))
        self.values, self._order = matrix.values(), (index[1] * shape[0] + index[0]).argsort()
        parts = ((index, shape), (index.flip(0)[:, self._order], shape[::-1]))
        self._layouts = [(torch._convert_indices_from_coo_to_csr(i[0], s[0]), i[1], s) for i, s in parts]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self._layouts[0][2]

    def with_values(self, values: Tensor) -> SparseMatrix:
        """A matrix with entries at the same places."""
        other = SparseMatrix.__new__(SparseMatrix)
        other.values, other._order, other._layouts = values, self._order, self._layouts
        return other

    def drop(self, share: float, training: bool) -> SparseMatrix:
        """The matrix with some of its entries set to zero."""
        return self.with_values(dropout(self.values, share)) if training and share > 0 else self

    @cached_property
    def plain(self) -> Tensor:
        """As a matrix of torch."""
        return self._csr(0, self.values)

    @cached_property
    def transposed(self) -> Tensor:
        """Its transpose, which only gradients need."""
        return self._csr(1, self.values[self._order])

    def _csr(self, layout: int, values: Tensor) -> Tensor:
        start, columns, shape = self._layouts[layout]
        return torch.sparse_csr_tensor(start, columns, values, shape, check_invariants=False)

    def __matmul__(self, x: Tensor) -> Tensor:
        result: Tensor = _Product.apply(self, x)
        return result


class SparseLinear(Linear):
    """PyG's linear layer for sparse features."""

    def forward(self, x: Tensor | SparseMatrix) -> Tensor:
        if isinstance(x, Tensor):
            return super().forward(x)
        result = x @ self.weight.t()
        return result if self.bias is None else result + self.bias


def features(data: Data, unit_rows: bool) -> SparseMatrix:
    """The features of a graph; those of a node may be divided by their sum, as PyG's ``NormalizeFeatures`` does."""
    x = data.x.to_dense()
    return SparseMatrix(x / x.sum(dim=1, keepdim=True).clamp(min=1e-12) if unit_rows else x)


def adjacency(data: Data, kind: str) -> SparseMatrix:
    """A normalised adjacency matrix.

    Args:
        data: The graph.
        kind: ``"gcn"``: symmetric, with self-loops; ``"symmetric"``: without them; ``"mean"``: over neighbours.
    """
    count, index, weight = data.num_nodes, data.edge_index, data.edge_weight
    if kind == "mean":
        weight = torch.ones(index.size(1)) if weight is None else weight
        weight = weight / scatter(weight, index[1], dim_size=count, reduce="sum")[index[1]]
    else:
        if kind == "gcn":
            index, weight = add_remaining_self_loops(index, weight, 1.0, count)
        index, weight = gcn_norm(index, weight, count, add_self_loops=False)
    return SparseMatrix(torch.sparse_coo_tensor(index.flip(0), weight, (count, count), check_invariants=False))
