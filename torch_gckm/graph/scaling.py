"""Scaling of the input features."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError, ZeroRowWarning
from torch_gckm.kernels import as_rows
from torch_gckm.layouts import scale_columns, scale_rows, to_csr

Normalize = Literal["l2", "columns"] | None


class Scaling(torch.nn.Module):
    """Scales the rows of a feature matrix to unit length (``"l2"``), or its ``"columns"`` to unit spread.

    The factors of the columns, ``[d]``, are known once a graph is fitted.
    """

    scale: Tensor

    def __init__(self, normalize: Normalize = None, scale: Tensor | None = None) -> None:
        super().__init__()
        if normalize not in (None, "l2", "columns"):
            raise InvalidInputError(f"'normalize' must be None, 'l2' or 'columns', got {normalize!r}")
        self.normalize = normalize
        self.register_buffer("scale", torch.empty(0) if scale is None else scale)

    def fitted_to(self, x: Tensor) -> Scaling:
        """The scaling that suits these features; another object, unless there is nothing to learn."""
        return Scaling(self.normalize, _inverse_spread(x.detach())) if self.normalize == "columns" else self

    def forward(self, x: Tensor) -> Tensor:
        """The scaled features, dense or sparse as they are."""
        if self.normalize is None:
            return x
        if self.normalize == "columns":
            if x.size(1) != self.scale.numel():
                raise InvalidInputError(f"'x' must have the {self.scale.numel()} columns that the model was fitted on")
            return scale_columns(x, self.scale.to(x))
        norm = as_rows(x).view("h").sq_norm().sqrt()
        zero = norm == 0
        if panels.holds_somewhere(zero):
            warnings.warn(
                f"{panels.count(zero)} rows of x are zero and stay so under normalize='l2' "
                f"(first: row {panels.first(zero)})",
                ZeroRowWarning,
                stacklevel=2,
            )
        return scale_rows(x, norm.masked_fill(zero, 1.0).reciprocal())

    def extra_repr(self) -> str:
        return f"normalize={self.normalize!r}"

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        loaded = state_dict.get(prefix + "scale")
        if loaded is not None:
            self.scale = self.scale.new_empty(loaded.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _inverse_spread(x: Tensor) -> Tensor:
    """One over the standard deviation of every column, 1 for constant ones."""
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    if x.layout == torch.strided:
        spread = panels.column_spread(x)
    else:
        csr, count = to_csr(x), x.size(0)
        moments = [
            panels.sums_by(csr.col_indices(), csr.values().double() ** power, x.size(1)) / count for power in (1, 2)
        ]
        spread = (moments[1] - moments[0].square()).clamp(min=0.0).sqrt().to(x.dtype)
    floor = 1e-6 * float(spread.max()) if spread.numel() else 0.0
    return torch.where(spread > floor, spread, 1.0).reciprocal()
