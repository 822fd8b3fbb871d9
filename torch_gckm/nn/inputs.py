"""What a model makes of a ``Data`` object before the first layer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.cache import LastCall
from torch_gckm.errors import InvalidInputError, ZeroRowWarning
from torch_gckm.kernels import as_rows, prefers_sparse, to_csr
from torch_gckm.nn.graph import Adjacency, feature_fingerprint, graph_fingerprint, graph_of


class Inputs(torch.nn.Module):
    """Prepared features, edges and the identity of a graph, remembered for the last one.

    Models that prepare their inputs alike may share one.

    Args:
        normalize: ``"l2"`` scales the rows of ``x`` to unit length, ``"columns"`` the columns to unit spread
            on the graph that the model is fitted on.
    """

    scale: Tensor

    def __init__(self, normalize: str | None = None) -> None:
        super().__init__()
        if normalize not in (None, "l2", "columns"):
            raise InvalidInputError(f"'normalize' must be None, 'l2' or 'columns', got {normalize!r}")
        self.normalize = normalize
        self.register_buffer("scale", torch.empty(0))
        self._scale: LastCall[Tensor] = LastCall()
        self._features: LastCall[Tensor] = LastCall()
        self._view: LastCall[Tensor] = LastCall()
        self._identity: LastCall[tuple[int, ...]] = LastCall()

    def fit(self, data: Data) -> None:
        """Learn what is to be done to the features of this graph and of others."""
        if self.normalize == "columns":
            x = graph_of(data)[0]
            self.scale = self._scale.get((x,), lambda: _inverse_spread(x.detach()))

    def of(self, data: Data, dtype: torch.dtype) -> tuple[Tensor, Adjacency | None, Tensor | None]:
        """Features, edges and edge weights."""
        x, edge_index, edge_weight = graph_of(data)
        if x.requires_grad:
            x = self._prepare(x.to(dtype))
        elif x.dtype != dtype or self.normalize is not None:
            raw = x
            x = self._features.get((raw, dtype, self.scale), lambda: self._prepare(raw.to(dtype)))
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
        if self.normalize == "columns":
            return self._scale_columns(x)
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

    def extra_repr(self) -> str:
        return f"normalize={self.normalize!r}"

    def _scale_columns(self, x: Tensor) -> Tensor:
        scale = self.scale.to(x.dtype)
        if x.size(1) != scale.numel():
            raise InvalidInputError(f"'x' must have the {scale.numel()} columns that the model was fitted on")
        if x.layout == torch.strided:
            return x * scale
        x = to_csr(x).clone()
        x.values().mul_(scale[x.col_indices()])
        return x

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        loaded = state_dict.get(prefix + "scale")
        if loaded is not None:
            self.scale = self.scale.new_empty(loaded.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _inverse_spread(x: Tensor) -> Tensor:
    """One over the standard deviation of every column, 1 for constant ones."""
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    if x.layout == torch.strided:
        spread = x.std(dim=0, correction=0)
    else:
        csr, count = to_csr(x), x.size(0)
        moments = [
            torch.zeros(x.size(1), dtype=torch.float64).index_add_(0, csr.col_indices(), csr.values().double() ** power)
            for power in (1, 2)
        ]
        spread = (moments[1] / count - (moments[0] / count).square()).clamp(min=0.0).sqrt().to(x.dtype)
    floor = 1e-6 * float(spread.max()) if spread.numel() else 0.0
    return torch.where(spread > floor, spread, 1.0).reciprocal()
