r"""Randomly pivoted Cholesky: a low-rank factor of a kernel matrix from some of its columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torch_gckm.kernels import Kernel, Rows

_WIDE = 0.1  # Below this share of the trace, what one pivot leaves is computed in double precision.


@dataclass
class Factor:
    r"""A factor :math:`K \approx F F'` and what it leaves of the diagonal.

    Attributes:
        landmarks: The pivots, node indices ``[m]``, in the order of the columns of :math:`F`.
        panel: :math:`F`, or :math:`F` minus its column means, ``[n, m]``.
        residual: :math:`\mathrm{diag}(K) - \mathrm{rowsum}(F^2)`, ``[n]``, in double precision.
        error: The sum of the residual, relative to the trace of the centred matrix.
    """

    landmarks: Tensor
    panel: Tensor
    residual: Tensor
    error: float


def pivoted_cholesky(
    kernel: Kernel,
    rows: Rows,
    *,
    max_rank: int,
    min_rank: int,
    tol: float,
    block_size: int,
    seed: int,
    centred: bool,
) -> Factor:
    r"""Choose pivots at random, proportionally to the residual diagonal, in blocks.

    Accelerated randomly pivoted Cholesky: a block of proposals is thinned by
    rejection, so that the pivots are distributed as if chosen one by one.
    It asks for ``m`` kernel columns and costs :math:`O(n m d + n m^2)`.

    A wide kernel is almost constant: its first pivot explains nearly all of
    the trace, and what centring leaves is small. The columns are then evaluated
    in double precision until that first direction is taken out.

    Args:
        kernel: The kernel function.
        rows: The features of the ``n`` nodes.
        max_rank: Stop at this rank.
        min_rank: Do not stop before this rank, unless nothing is left.
        tol: Stop when the residual's sum is below ``tol`` times the trace of the centred matrix.
        block_size: The largest number of proposals at a time.
        seed: The same seed gives the same pivots.
        centred: Return :math:`F` minus its column means.
    """
    size = rows.num_rows
    max_rank = min(max_rank, size)
    generator = np.random.default_rng(seed)
    residual = kernel(rows, diag=True).double().cpu()
    diagonal, trace = residual.clone(), float(residual.sum())
    floor = torch.zeros_like(residual)
    panel = torch.empty(size, max_rank, dtype=rows.dtype, device=rows.device)
    landmarks = torch.empty(max_rank, dtype=torch.long)
    first: Tensor | None = None
    precise: Rows | None = None
    mean_energy, rank = 0.0, 0
    while rank < max_rank:
        left = float(residual.sum())
        if left <= 1e-14 * trace or (rank >= min_rank and left <= tol * (trace - mean_energy)):
            break
        count = 1 if rank == 0 else min(block_size, max(8, rank), max_rank - rank)
        proposals = _propose(residual, count, generator)
        chosen = proposals if rank == 0 else _accept(kernel, rows, panel[:, :rank], residual, proposals, generator)
        if chosen.numel() == 0:  # Their residual was nothing but rounding.
            residual[proposals] = 0.0
            continue
        if rank == 0:
            precise = rows.to(torch.float64)
            column = kernel(precise, precise.rows(chosen.to(rows.device))).squeeze(1)
            first = column / column[chosen].sqrt()
            block = first.unsqueeze(1).clone()
            left_of_it = diagonal - first.cpu().square()
            if rows.dtype == torch.float64 or float(left_of_it.sum()) > _WIDE * trace:
                precise = None
            # What rounding leaves of a row that is explained completely.
            rounded = diagonal if precise is None else left_of_it
            floor = 64 * torch.finfo(torch.float64).eps * diagonal + 16 * torch.finfo(rows.dtype).eps * rounded
        else:
            assert first is not None
            if precise is None:
                block = kernel(rows, rows.rows(chosen.to(rows.device)))
                block.addmm_(panel[:, :rank], panel[chosen, :rank].t(), alpha=-1.0)
            else:
                block = kernel(precise, precise.rows(chosen.to(rows.device)))
                block = block.addr_(first, first[chosen], alpha=-1.0).to(rows.dtype)
                block.addmm_(panel[:, 1:rank], panel[chosen, 1:rank].t(), alpha=-1.0)
            block = block @ _inverse_root(block[chosen]).to(block.dtype)
        stop = rank + block.size(1)
        panel[:, rank:stop] = block
        landmarks[rank:stop] = chosen
        mean_energy += float(block.sum(dim=0).double().square().sum()) / size
        residual -= block.square_().sum(dim=1).double().cpu()
        residual[chosen] = 0.0
        residual[residual < floor] = 0.0
        rank = stop
    if centred and rank:
        assert first is not None
        panel[:, 0] = (first - first.mean()).to(panel.dtype)
        panel[:, 1:rank] -= panel[:, 1:rank].mean(dim=0)
    scale = trace - mean_energy
    error = float(residual.sum()) / scale if scale > 0 else 0.0
    if rank < max_rank:
        panel = panel[:, :rank].contiguous()
    return Factor(landmarks[:rank].to(rows.device), panel, residual.to(rows.device), error)


def _propose(residual: Tensor, count: int, generator: np.random.Generator) -> Tensor:
    """Nodes drawn with replacement, proportionally to the residual."""
    cumulative = residual.numpy().cumsum()
    drawn = np.searchsorted(cumulative, generator.random(count) * cumulative[-1], side="right")
    return torch.from_numpy(np.minimum(drawn, residual.numel() - 1))


def _accept(
    kernel: Kernel, rows: Rows, panel: Tensor, residual: Tensor, proposals: Tensor, generator: np.random.Generator
) -> Tensor:
    """Keep a proposal with the share of its residual that the proposals kept before it have left."""
    at = proposals.to(rows.device)
    part = panel[at].double()
    left = (kernel(rows.rows(at).to(torch.float64)) - part @ part.t()).cpu().numpy()
    before = residual[proposals].numpy()
    chance = generator.random(len(before))
    kept = []
    for i in range(len(before)):
        if left[i, i] > max(chance[i] * before[i], 1e-3 * before[i]):
            kept.append(i)
            left -= np.outer(left[:, i], left[i] / left[i, i])
    return proposals[torch.tensor(kept, dtype=torch.long)]


def _inverse_root(block: Tensor) -> Tensor:
    """The matrix that turns residual columns into columns of the factor: the inverse transpose of a Cholesky root."""
    wide = block.double()
    wide = (wide + wide.t()) / 2
    eye = torch.eye(wide.size(0), dtype=wide.dtype, device=wide.device)
    largest = wide.diagonal().abs().max()
    for jitter in (0.0, 1e-12, 1e-9, 1e-6, 1e-3):  # Rounding may leave the block a little indefinite.
        root, info = torch.linalg.cholesky_ex(wide + jitter * largest * eye)
        if int(info) == 0:
            break
    return torch.linalg.solve_triangular(root, eye, upper=False).t()
