"""What a model makes of a ``Data`` object before the first layer."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.cache import LastCall
from torch_gckm.errors import InvalidInputError, ZeroRowWarning
from torch_gckm.kernels import as_rows, prefers_sparse, to_csr
from torch_gckm.nn.graph import Adjacency, feature_fingerprint, graph_fingerprint, graph_of


class Inputs:
    """Prepared features, edges and the identity of a graph, remembered for the last one.

    Models that prepare their inputs alike may share one.

    Args:
        normalize: ``"l2"`` scales the rows of ``x`` to unit length.
    """

    def __init__(self, normalize: str | None = None) -> None:
        if normalize not in (None, "l2"):
            raise InvalidInputError(f"'normalize' must be None or 'l2', got {normalize!r}")
        self.normalize = normalize
        self._features: LastCall[Tensor] = LastCall()
        self._view: LastCall[Tensor] = LastCall()
        self._identity: LastCall[tuple[int, ...]] = LastCall()

    def of(self, data: Data, dtype: torch.dtype) -> tuple[Tensor, Adjacency | None, Tensor | None]:
        """Features, edges and edge weights."""
        x, edge_index, edge_weight = graph_of(data)
        if x.requires_grad:
            x = self._prepare(x.to(dtype))
        elif x.dtype != dtype or self.normalize is not None:
            raw = x
            x = self._features.get((raw, dtype), lambda: self._prepare(raw.to(dtype)))
        return x, edge_index, edge_weight

    def view(self, data: Data, dtype: torch.dtype) -> Tensor:
        """Features that a kernel reads beside the embedding; a sparse matrix where that is faster."""
        x = self.of(data, dtype)[0]
        if x.requires_grad:
            return x
        return self._view.get((x,), lambda: to_csr(x) if x.layout == torch.strided and prefers_sparse(x) else x)

    def identity(self, data: Data) -> tuple[int, ...]:
        """Numbers that tell this graph, with its weights and features, from any other."""
        x, edge_index, edge_weight = graph_of(data)
        return self._identity.get(
            (x, edge_index, edge_weight),
            lambda: (*graph_fingerprint(edge_index, edge_weight, x.size(0)), feature_fingerprint(x)),
        )

    def _prepare(self, x: Tensor) -> Tensor:
        if self.normalize is None:
            return x
        norm = as_rows(x).view("h").sq_norm().sqrt()
        zero = norm == 0
        if bool(zero.any()):
            warnings.warn(
                f"{int(zero.sum())} rows of x are zero and stay so under normalize='l2' "
                f"(first: row {int(zero.nonzero()[0])})",
                ZeroRowWarning,
                stacklevel=2,
            )
        inverse = norm.masked_fill(zero, 1.0).reciprocal()
        if x.layout == torch.strided:
            return x * inverse.unsqueeze(1)
        x = to_csr(x).clone()
        x.values().mul_(torch.repeat_interleave(inverse, x.crow_indices().diff()))
        return x
