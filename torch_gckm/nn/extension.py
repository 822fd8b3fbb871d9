"""What a fitted layer or readout predicts for nodes that it has not seen."""

from collections.abc import Mapping

import torch
from torch import Tensor
from tqdm import tqdm

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.gram import Gram
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.nn.record import Record


class Extension(Record):
    r"""A function of nodes, made of kernel values with some fitted ones: :math:`f(v) = \sum_s k(v, s) w_s + c`.

    With a low-rank kernel matrix the fitted nodes are its landmarks, so a value costs the same whatever the size
    of the graph that was fitted. It needs nothing else of that graph.

    Args:
        views: The features of the fitted nodes by view, ``[m, d]`` each.
        weights: The weights :math:`w`, ``[m, c]``.
        offset: The constant :math:`c`, ``[c]``.
    """

    weights: Tensor
    offset: Tensor

    def __init__(self, views: Mapping[str, Tensor], weights: Tensor, offset: Tensor) -> None:
        super().__init__({"weights": weights.double(), "offset": offset.double()}, views)

    @torch.no_grad()
    def forward(self, kernel: Kernel, rows: Rows, progress: str | None = None) -> Tensor:
        """The values at some rows, ``[n, c]``, a block of them at a time."""
        marks, weights, offset = self.rows().to(torch.float64), self.weights.double(), self.offset.double()
        result = torch.empty(rows.num_rows, weights.size(1), dtype=rows.dtype, device=rows.device)
        with tqdm(total=rows.num_rows, desc=progress, unit="node", unit_scale=True, disable=progress is None) as bar:
            for block in rows.blocks(max(1, marks.num_rows)):
                part = rows.block(block)
                result[block] = torch.addmm(offset, kernel(part.to(torch.float64), marks), weights)
                bar.update(part.num_rows)
        return result


def layer_extension(gram: Gram, rows: Rows, h: Tensor) -> Extension:
    r"""The out-of-sample map of a layer, :math:`\hat H = (K_{new} H_c - \frac1n 1 1' K H_c) (H' K_c H)^{-1}`."""
    centred = panels.centred(h.detach().double())
    product = gram.matmul(centred)
    spectrum = panels.cross(centred, product)
    nodes, weights = gram.representer(centred)
    mean = panels.column_means(product).unsqueeze(0)
    turned, offset = (torch.linalg.solve(spectrum, values, left=False) for values in (weights, mean))
    return Extension(_views(gram, rows, nodes), turned, -offset[0])


def readout_extension(gram: Gram, rows: Rows, alpha: Tensor, bias: Tensor, eta: float) -> Extension:
    r"""The out-of-sample map of a readout, :math:`K_{new} a / \eta + b`."""
    nodes, weights = gram.representer(alpha.double())
    return Extension(_views(gram, rows, nodes), weights / eta, bias)


def _views(gram: Gram, rows: Rows, nodes: Tensor | None) -> dict[str, Tensor]:
    return (rows if nodes is None else rows.rows(nodes)).tensors(gram.kernel.views)


def check_known(known: Tensor, fitted: int, num_nodes: int) -> None:
    """Refuse anything but a place of its own for every fitted node."""
    is_index = isinstance(known, Tensor) and not known.is_floating_point() and known.dtype != torch.bool
    if not is_index or known.shape != (fitted,):
        raise InvalidInputError(f"'known' must be integers [{fitted}], the place of each fitted node")
    low, high = int(panels.smallest(known)), int(panels.largest(known))
    if not 0 <= low <= high < num_nodes or known.unique().numel() < fitted:
        raise InvalidInputError(f"'known' must name {fitted} different nodes of the {num_nodes} of the new graph")
