"""What a fitted layer says about nodes it has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.nn.support import Support


class Extension(torch.nn.Module):
    r"""A function of nodes, made of kernel values with some fitted ones: :math:`f(v) = \sum_s k(v, s) w_s + c`.

    With a low-rank kernel matrix the fitted nodes are its landmarks, so a value costs the same whatever the size
    of the graph that was fitted. It needs nothing else of that graph.
    """

    weights: Tensor
    offset: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.support = Support()
        self.register_buffer("weights", torch.empty(0, 0, dtype=torch.float64))
        self.register_buffer("offset", torch.empty(0, dtype=torch.float64))

    @classmethod
    @torch.no_grad()
    def of(cls, tensors: dict[str, Tensor], weights: Tensor, offset: Tensor) -> Extension:
        """From features of the fitted nodes and their weights.

        Args:
            tensors: The features by view, ``[m, d]`` each.
            weights: The weights :math:`w`, ``[m, c]``.
            offset: The constant :math:`c`, ``[c]``.
        """
        extension = cls()
        extension.support.set(tensors)
        extension.weights, extension.offset = weights.double(), offset.double()
        return extension

    @torch.no_grad()
    def forward(self, kernel: Kernel, rows: Rows, progress: str | None = None) -> Tensor:
        """The values at some rows, ``[n, c]``, a block of them at a time.

        Args:
            kernel: The kernel.
            rows: The features of the nodes.
            progress: The title of a progress bar; ``None`` shows none.
        """
        marks, weights, offset = self.support.rows().to(torch.float64), self.weights.double(), self.offset.double()
        result = torch.empty(rows.num_rows, self.weights.size(1), dtype=rows.dtype, device=rows.device)
        with tqdm(total=rows.num_rows, desc=progress, unit="node", unit_scale=True, disable=progress is None) as bar:
            for block in rows.blocks(max(1, marks.num_rows)):
                part = rows.block(block)
                result[block] = torch.addmm(offset, kernel(part.to(torch.float64), marks), weights)
                bar.update(part.num_rows)
        return result

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        for name in ("weights", "offset"):
            loaded = state_dict.get(prefix + name)
            if loaded is not None:
                setattr(self, name, torch.empty_like(loaded))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        return f"{self.weights.size(0)} nodes, {self.weights.size(1)} values"


def check_known(known: Tensor, fitted: int, num_nodes: int) -> None:
    """Refuse anything but a place of its own for every fitted node."""
    is_index = isinstance(known, Tensor) and not known.is_floating_point() and known.dtype != torch.bool
    if not is_index or known.shape != (fitted,):
        raise InvalidInputError(f"'known' must be integers [{fitted}], the place of each fitted node")
    if not 0 <= int(known.min()) <= int(known.max()) < num_nodes or known.unique().numel() < fitted:
        raise InvalidInputError(f"'known' must name {fitted} different nodes of the {num_nodes} of the new graph")
