r"""Randomly pivoted Cholesky: a low-rank factor of a kernel matrix from some of its columns."""

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError, KernelNotPSDError
from torch_gckm.gram.factor import Factor, RecomputedFactor
from torch_gckm.gram.gram import Panel
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.partition import Partition

WIDE = 0.1  # Below this share of the trace, what one pivot leaves is computed in double precision.


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
    stored: bool = True,
) -> Panel:
    r"""Choose pivots at random, proportionally to the residual diagonal, in blocks.

    A block of at most ``block_size`` proposals is thinned by rejection, so that pivots are distributed as if chosen one
    by one. A wide kernel is almost constant: its first pivot explains nearly all of the trace, so columns are evaluated
    in double precision until that direction is taken out. It stops at ``max_rank``, or from ``min_rank`` on when the
    residual's sum is below ``tol`` times the trace of the centred matrix. ``centred`` subtracts column means from
    :math:`F`. It costs :math:`O(n m d + n m^2)`.

    Without a ``stored`` panel, columns chosen before are evaluated again for every block of pivots: blocks double in
    size up to ``block_size``, so that these are few times as many kernel values as columns.
    """
    size, over = rows.num_nodes, rows.partition
    max_rank = min(max_rank, size)
    generator = np.random.default_rng(seed)
    residual = kernel(rows, diag=True).to("cpu", torch.float64, copy=True)
    trace = float(panels.total(residual, over))
    landmarks = torch.empty(max_rank, dtype=torch.long)
    if not kernel.is_psd:
        _refuse_negative(residual, trace / size, over)
    mean_energy, rank = 0.0, 0
    columns: _Columns = _StoredColumns(kernel, rows, max_rank) if stored else _RecomputedColumns(kernel, rows)
    while rank < max_rank:
        left = float(panels.total(residual, over))
        if not math.isfinite(left):
            _refuse_overflow(kernel, residual, over)
        if left <= 1e-14 * trace or (rank >= min_rank and left <= tol * (trace - mean_energy)):
            break
        count = 1 if rank == 0 else min(block_size, max(8, rank), max_rank - rank)
        proposals = columns.nodes(panels.draw(residual, count, generator, over), rank)
        among, before = columns.among(proposals), over.pick(residual, proposals.numbers)
        places, block = over.processes.once(partial(_accept, among, before, generator.random(count)))
        if places.numel() == 0:  # Their residual was nothing but rounding.
            over.fill_(residual, proposals.numbers, 0.0)
            continue
        pivots = proposals.pick(places)
        chosen = pivots.numbers
        total, squares = columns.append(pivots, block, rank)
        mean_energy += float(total.square().sum()) / size
        if rank == 0:
            floor = columns.choose_precision(residual, squares)
        residual -= squares
        if not kernel.is_psd:
            _refuse_negative(residual, trace / size, over)
        over.fill_(residual, chosen, 0.0)
        residual[residual < floor] = 0.0
        landmarks[rank : rank + len(chosen)] = chosen
        rank += len(chosen)
    values = columns.factor(rank, centred)
    scale = trace - mean_energy
    error = float(panels.total(residual, over)) / scale if scale > 0 else 0.0
    return Panel(values, residual.to(rows.device), landmarks[:rank].to(rows.device), error, over)


class _Nodes(NamedTuple):
    """Some nodes, as all processes know them: what is exchanged for a block of pivots."""

    numbers: Tensor  # [k].
    rows: Rows
    factor: Tensor  # Their rows of the factor so far, [k, rank].
    first: Tensor  # The first of its columns in double precision, [k, 1]; empty without any.

    def pick(self, places: Tensor) -> "_Nodes":
        """Those at some places."""
        at = places.to(self.rows.device)
        return _Nodes(self.numbers[places], self.rows.rows(at), self.factor[at], self.first[at])


class _Columns(ABC):
    """Residual kernel columns, evaluated in blocks of rows."""

    def __init__(self, kernel: Kernel, rows: Rows) -> None:
        self.kernel, self.rows = kernel, rows
        self.is_wide = True  # Not known before the first column.

    @abstractmethod
    def nodes(self, numbers: Tensor, rank: int) -> _Nodes:
        """What must be known of some nodes."""

    def among(self, nodes: _Nodes) -> Tensor:
        """The residual kernel matrix of some nodes, in double precision."""
        part = nodes.factor.double()
        part[:, : nodes.first.size(1)] = nodes.first
        return self.kernel(nodes.rows.to(torch.float64)) - part @ part.t()

    @abstractmethod
    def append(self, pivots: _Nodes, block: Tensor, rank: int) -> tuple[Tensor, Tensor]:
        """Add columns of pivots to the factor; returns their sums and the rows' sums of squares."""

    @abstractmethod
    def factor(self, rank: int, centred: bool) -> Factor:
        """The factor, minus its column means if it is to be ``centred``."""

    def choose_precision(self, diagonal: Tensor, squares: Tensor) -> Tensor:
        """Whether what the first column leaves needs double precision, and what rounding will leave of each row."""
        left, eps, over = diagonal - squares, torch.finfo(self.rows.dtype).eps, self.rows.partition
        share = float(panels.total(left, over)) / float(panels.total(diagonal, over))
        self.is_wide = self.rows.dtype != torch.float64 and share <= WIDE
        return 64 * torch.finfo(torch.float64).eps * diagonal + 16 * eps * (left if self.is_wide else diagonal)


class _StoredColumns(_Columns):
    """Columns that are written to a panel."""

    def __init__(self, kernel: Kernel, rows: Rows, max_rank: int) -> None:
        super().__init__(kernel, rows)
        self.panel = torch.empty(rows.num_rows, max_rank, dtype=rows.dtype, device=rows.device)
        self.first = torch.empty(rows.num_rows, 1, dtype=torch.float64, device=rows.device)

    def nodes(self, numbers: Tensor, rank: int) -> _Nodes:
        at, over = numbers.to(self.rows.device), self.rows.partition
        factor, first = over.pick(self.panel[:, :rank], at), over.pick(self.first[:, : min(rank, 1)], at)
        return _Nodes(numbers, self.rows.rows(at), factor, first)

    def append(self, pivots: _Nodes, block: Tensor, rank: int) -> tuple[Tensor, Tensor]:
        stop = rank + len(pivots.numbers)
        dtype = torch.float64 if rank == 0 else self.rows.dtype
        inverse = _inverse(_root(block)).to(dtype)
        known, first = pivots.factor.t(), pivots.first.t()
        precise = pivots.rows.to(torch.float64) if self.is_wide else pivots.rows
        squares = torch.empty(self.rows.num_rows, dtype=torch.float64)

        def sums(part: slice) -> Tensor:
            rows, panel = self.rows.block(part), self.panel[part]
            values = self.kernel(rows.to(precise.dtype), precise)
            if rank:
                skip = int(self.is_wide)  # Taken out before precision is given up.
                if skip:
                    values = values.addmm_(self.first[part], first, alpha=-1.0).to(dtype)
                values.addmm_(panel[:, skip:rank], known[skip:], alpha=-1.0)
            added = panel[:, rank:stop] if rank else self.first[part]
            torch.mm(values, inverse, out=added)
            if rank == 0:
                panel[:, :1] = added
            squares[part] = torch.linalg.vector_norm(added, dim=1).double().square().cpu()
            return added.sum(dim=0).double()

        parts = (sums(part) for part in self.rows.blocks(len(pivots.numbers)))
        return panels.accumulate(parts, self.rows.partition), squares

    def factor(self, rank: int, centred: bool) -> Factor:
        over, panel = self.rows.partition, self.panel[:, :rank]
        if centred and rank:  # The mean of the first column before it is rounded.
            panel[:, 1:] -= panels.column_means(panel[:, 1:], over)
            panel[:, :1] = self.first - panels.mean(self.first, over)
        # Unless few columns are used, a copy would need more memory for a while than it saves.
        return panel.contiguous() if 2 * rank < self.panel.size(1) else panel


class _RecomputedColumns(_Columns):
    """Columns of which the pivots and the root of their kernel matrix are kept."""

    def __init__(self, kernel: Kernel, rows: Rows) -> None:
        super().__init__(kernel, rows)
        self.known: RecomputedFactor | None = None
        self.sums: list[Tensor] = []

    def nodes(self, numbers: Tensor, rank: int) -> _Nodes:
        at, known = numbers.to(self.rows.device), self.known
        nothing = torch.empty(len(at), 0, dtype=torch.float64, device=at.device)
        return _Nodes(numbers, self.rows.rows(at), nothing if known is None else known.pick(at, torch.float64), nothing)

    def append(self, pivots: _Nodes, block: Tensor, rank: int) -> tuple[Tensor, Tensor]:
        landmarks, root, known = pivots.numbers.to(self.rows.device), _root(block), self.known
        if known is not None:
            top = torch.nn.functional.pad(known.root, (0, len(landmarks)))
            root = torch.cat([top, torch.cat([pivots.factor, root], dim=1)])
            landmarks = torch.cat([known.landmarks, landmarks])
        self.known = factor = RecomputedFactor(self.kernel, self.rows, landmarks, root, self.is_wide)
        squares = torch.empty(self.rows.num_rows, dtype=torch.float64)

        def sums(part: slice) -> Tensor:
            added = factor.columns(part, start=rank)
            squares[part] = torch.linalg.vector_norm(added, dim=1).double().square().cpu()
            return added.sum(dim=0).double()

        parts = (sums(part) for part in self.rows.blocks(len(landmarks)))
        self.sums.append(panels.accumulate(parts, self.rows.partition))
        return self.sums[-1], squares

    def factor(self, rank: int, centred: bool) -> Factor:
        if self.known is None:
            return torch.empty(self.rows.num_rows, 0, dtype=self.rows.dtype, device=self.rows.device)
        return self.known.with_mean(torch.cat(self.sums) / self.rows.num_nodes, centred)


def _refuse_overflow(kernel: Kernel, residual: Tensor, over: Partition) -> None:
    node = panels.first(~residual.isfinite(), over)
    raise InvalidInputError(
        f"values of the kernel {kernel!r} overflow or are NaN, first those of node {node}; rescale the features"
    )


def _refuse_negative(residual: Tensor, scale: float, over: Partition) -> None:
    node = int(panels.place_of_largest(-residual, over))
    least = over.number_at(residual, node)
    if least < -1e-3 * abs(scale):  # Rounding of single precision stays well above.
        raise KernelNotPSDError(
            f"a low-rank kernel matrix needs a positive semi-definite kernel, but this one leaves node {node} a "
            f"diagonal entry of {least:.3g}; use another kernel, or gram='dense' for the readout"
        )


def _accept(block: Tensor, before: Tensor, chance: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    """Keep a proposal with the share of its residual that those kept before it have left: places, part of the block."""
    left, residual = block.cpu().numpy().copy(), before.numpy()
    kept = []
    for i in range(len(residual)):
        if left[i, i] > max(chance[i], 1e-3) * residual[i]:
            kept.append(i)
            rest = slice(i + 1, None)
            left[rest, rest] -= left[rest, i, None] * (left[i, rest] / left[i, i])
    places = torch.tensor(kept, dtype=torch.long)
    at = places.to(block.device)
    return places, block[at][:, at]


def _root(block: Tensor) -> Tensor:
    """The Cholesky root of a residual kernel matrix."""
    wide = (block + block.t()) / 2
    eye = torch.eye(wide.size(0), dtype=wide.dtype, device=wide.device)
    largest = wide.diagonal().abs().max()
    for jitter in (0.0, 1e-12, 1e-9, 1e-6, 1e-3):  # Rounding may leave the block a little indefinite.
        root, info = torch.linalg.cholesky_ex(wide + jitter * largest * eye)
        if int(info) == 0:
            break
    return root


def _inverse(root: Tensor) -> Tensor:
    """The matrix that turns residual columns into columns of the factor: the inverse transpose of the root."""
    eye = torch.eye(root.size(0), dtype=root.dtype, device=root.device)
    return torch.linalg.solve_triangular(root, eye, upper=False).t()
