r"""A low-rank kernel matrix: linear in the number of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_gckm.errors import InvalidInputError
from torch_gckm.gram.gram import Gram, GramFactory, ReadoutProblem
from torch_gckm.gram.low_rank_readout import LowRankReadout
from torch_gckm.gram.memory import require_memory
from torch_gckm.gram.pivoted_cholesky import Factor, pivoted_cholesky
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.numerics import fix_signs

_BLOCK_ENTRIES = 2**24  # Panels are passed through in blocks of so many entries.


class LowRank(GramFactory):
    r"""Represent kernel matrices by some of their columns, :math:`K \approx F F'`, :math:`F` with ``m`` columns.

    The columns are chosen by randomly pivoted Cholesky: it evaluates ``m``
    columns, costs :math:`O(n m d + n m^2)` and knows its error. Nothing of size
    :math:`n \times n` exists.

    Args:
        max_rank: The largest number of columns ``m``; a layer takes at least twice as many as it has channels.
        tol: Stop when what is left of the trace is below this share of the centred matrix's trace.
            (Wide kernels are almost constant: a share of the plain trace would be reached by one column.)
        block_size: The largest number of columns to choose at a time.
        seed: The same seed chooses the same columns.
    """

    def __init__(self, max_rank: int = 512, tol: float = 0.02, block_size: int = 128, seed: int = 0) -> None:
        if max_rank < 1 or block_size < 1 or not 0.0 <= tol < 1.0:
            raise InvalidInputError("LowRank needs positive 'max_rank' and 'block_size', and 'tol' in [0, 1)")
        self.max_rank, self.tol, self.block_size, self.seed = max_rank, tol, block_size, seed

    def __call__(
        self, kernel: Kernel, rows: Rows, *, landmarks: Tensor | None = None, centred: bool = False, min_rank: int = 1
    ) -> LowRankGram:
        return LowRankGram(self, kernel, rows, landmarks, centred, min_rank)

    def config(self) -> dict[str, Any]:
        arguments = {"max_rank": self.max_rank, "tol": self.tol, "block_size": self.block_size, "seed": self.seed}
        return {"kind": "LowRank", "arguments": arguments}

    def __repr__(self) -> str:
        return f"LowRank(max_rank={self.max_rank}, tol={self.tol:g})"


class LowRankGram(Gram):
    r"""The low-rank kernel matrix of some features. Made by :class:`LowRank`.

    For a layer (``centred``) it is :math:`F F'`. For the readout it is
    :math:`F F' + \mathrm{diag}(\delta)`, which keeps the diagonal exact.
    """

    def __init__(
        self,
        options: LowRank,
        kernel: Kernel,
        rows: Rows,
        landmarks: Tensor | None,
        centred: bool,
        min_rank: int,
    ) -> None:
        super().__init__(kernel, rows)
        self.options, self.centred, self.min_rank = options, centred, min_rank
        self._landmarks = landmarks
        self._factor: Factor | None = None
        self._root: Tensor | None = None

    @property
    def landmarks(self) -> Tensor:
        """The nodes whose columns are used; chosen now if they were not given."""
        if self._landmarks is None:
            self._landmarks = self.factor().landmarks
        return self._landmarks

    def tracking(self, rows: Rows) -> LowRankGram:
        gram = LowRankGram(self.options, self.kernel, rows, self.landmarks, self.centred, self.min_rank)
        gram._factor, gram._root = self._factor, self._root
        return gram

    def describe(self) -> str:
        return f"rank {self.landmarks.numel()} of {self.num_nodes}, error {self.factor().error:.2g}"

    def factor(self) -> Factor:
        """The factor :math:`F` (centred for a layer) and the residual; without gradients."""
        if self._factor is None:
            with torch.no_grad():
                self._factor = self._choose() if self._landmarks is None else self._refactor()
        return self._factor

    def matmul(self, v: Tensor) -> Tensor:
        with torch.no_grad():
            if not self.centred:
                panel, residual = self.factor().panel, self.factor().residual
                return panel @ (panel.t() @ v) + residual.to(v.dtype).unsqueeze(1) * v
            weights = self._solve(self._project(v)).to(v.dtype)
            return torch.cat([self._columns(block) @ weights for block in self._blocks()])

    def centred_quadratic(self, h: Tensor) -> Tensor:
        if not (self.is_constant and self.centred):
            return super().centred_quadratic(h)
        # The panel is constant and centred: two thin products.
        return (self.factor().panel.t() @ h).square().sum()

    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:
        r"""See :meth:`Gram.bilinear`; the landmarks are fixed, and the residual diagonal counts as constant.

        With :math:`p_u = K_{nS}' u`, :math:`W_u = K_{SS}^{-1} p_u` held constant and the same for
        :math:`v`, the form :math:`p_u \cdot W_v + W_u \cdot p_v - W_u \cdot K_{SS} W_v` has the value and
        the gradient of :math:`\mathrm{Tr}(u' K_{nS} K_{SS}^{-1} K_{Sn} v)`: no factorisation is
        differentiated, and no term costs :math:`n m^2`.
        """
        blocks = list(self._blocks())
        columns = self._columns(blocks[0]) if len(blocks) == 1 else None
        with torch.no_grad():
            weights_u = self._solve(self._project(u, columns)).to(u.dtype)
            weights_v = weights_u if u is v else self._solve(self._project(v, columns)).to(v.dtype)
        if columns is not None:
            total = _form(columns, u, v, weights_u, weights_v)
        else:  # Computed again in the backward pass, so that never more than one block exists.
            total = torch.zeros((), dtype=u.dtype, device=u.device)
            for block in blocks:
                total = total + checkpoint(
                    self._block_form, block, u, v, weights_u, weights_v, use_reentrant=False, preserve_rng_state=False
                )
        core = self.kernel(self.rows.rows(self.landmarks))
        total = total - (weights_u * (core @ weights_v)).sum()
        if not self.centred:
            total = total + (self.factor().residual.to(u.dtype) * (u * v).sum(dim=1)).sum()
        return total

    def eigenvectors(self, count: int) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            self.min_rank = max(self.min_rank, 2 * count)
            panel = self.factor().panel
            values, vectors = torch.linalg.eigh((panel.t() @ panel).double())
            top = slice(max(0, values.numel() - count), None)
            values, vectors = values[top].flip(0), vectors[:, top].flip(1)
            keep = values > values.numel() * torch.finfo(panel.dtype).eps * values.clamp(min=0).max()
            values, vectors = values[keep], vectors[:, keep]
            h = (panel @ (vectors * values.rsqrt()).to(panel.dtype)).double()
            # Once more, so that the columns are orthonormal to the last digit of their type.
            small, rotation = torch.linalg.eigh(h.t() @ h)
            h = h @ ((rotation * small.rsqrt()) @ rotation.t())
            return values.to(panel.dtype), fix_signs(h).to(panel.dtype)

    def solve_readout(self, problem: ReadoutProblem) -> LowRankReadout:
        if self.is_constant or not torch.is_grad_enabled():
            factor = self.factor()
            return LowRankReadout(factor.panel, factor.residual, problem)
        # Gradients: the same panel as a function of the features, with the landmarks fixed.
        rows = self.rows.to(torch.float64)
        columns = self.kernel(rows, rows.rows(self.landmarks))
        root = torch.linalg.cholesky(_with_jitter(columns[self.landmarks]))
        panel = torch.linalg.solve_triangular(root, columns.t(), upper=False).t()
        residual = (self.kernel(rows, diag=True) - panel.square().sum(dim=1)).clamp(min=0.0)
        residual = residual.index_fill(0, self.landmarks, 0.0)
        return LowRankReadout(panel, residual, problem)

    def cross_matmul(self, new: Rows, v: Tensor) -> Tensor:
        with torch.no_grad():
            weights = self._solve(self._project(v)).to(v.dtype)
            marks = self.rows.rows(self.landmarks)
            step = max(1, _BLOCK_ENTRIES // max(self.landmarks.numel(), 1))
            blocks = (new.rows(slice(start, start + step)) for start in range(0, new.num_rows, step))
            parts = [self.kernel(block, marks) @ weights for block in blocks]
            return torch.cat(parts) if parts else v.new_zeros(0, v.size(1))

    def _choose(self) -> Factor:
        rank = min(self.options.max_rank, self.num_nodes)
        require_memory(
            (rank + 3 * self.options.block_size) * self.num_nodes * self.rows.dtype.itemsize,
            f"a kernel matrix of rank {rank}",
            self.rows.device,
        )
        return pivoted_cholesky(
            self.kernel,
            self.rows.detach(),
            max_rank=max(rank, min(self.min_rank, self.num_nodes)),
            min_rank=min(self.min_rank, self.num_nodes),
            tol=self.options.tol,
            block_size=self.options.block_size,
            seed=self.options.seed,
            centred=self.centred,
        )

    def _refactor(self) -> Factor:
        """The factor of given landmarks."""
        marks = self.landmarks
        inverse = torch.linalg.solve_triangular(
            self._cholesky(), torch.eye(marks.numel(), dtype=torch.float64, device=marks.device), upper=False
        ).t()
        inverse = inverse.to(self.rows.dtype)
        panel = torch.empty(self.num_nodes, marks.numel(), dtype=self.rows.dtype, device=self.rows.device)
        residual = self.diagonal().double()
        trace = float(residual.sum())
        for block in self._blocks():
            torch.mm(self._columns(block), inverse, out=panel[block])
            residual[block] -= panel[block].square().sum(dim=1).double()
        residual = residual.clamp_(min=0.0).index_fill_(0, marks, 0.0)
        mean = panel.mean(dim=0)
        trace -= float(mean.double().square().sum()) * self.num_nodes
        if self.centred:
            panel -= mean
        return Factor(marks, panel, residual, float(residual.sum()) / trace)

    def _cholesky(self) -> Tensor:
        """The Cholesky root of the landmarks' kernel matrix, in double precision."""
        if self._root is None:
            with torch.no_grad():
                core = self.kernel(self.rows.detach().rows(self.landmarks).to(torch.float64))
                self._root = torch.linalg.cholesky(_with_jitter(core))
        return self._root

    def _solve(self, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right.double(), self._cholesky())

    def _project(self, v: Tensor, columns: Tensor | None = None) -> Tensor:
        """``K_nS' v``, from the given columns or in blocks."""
        if columns is not None:
            return columns.t() @ v
        total = torch.zeros(self.landmarks.numel(), v.size(1), dtype=torch.float64, device=v.device)
        for block in self._blocks():
            total += self._columns(block).t() @ v[block]
        return total

    def _columns(self, block: slice) -> Tensor:
        whole = block == slice(0, self.num_nodes)
        return self.kernel(self.rows if whole else self.rows.rows(block), self.rows.rows(self.landmarks))

    def _block_form(self, block: slice, u: Tensor, v: Tensor, weights_u: Tensor, weights_v: Tensor) -> Tensor:
        part = u[block]
        return _form(self._columns(block), part, part if u is v else v[block], weights_u, weights_v)

    def _blocks(self) -> Iterator[slice]:
        step = max(1, _BLOCK_ENTRIES // max(self.landmarks.numel(), 1))
        for start in range(0, self.num_nodes, step):
            yield slice(start, min(start + step, self.num_nodes))


def _form(columns: Tensor, u: Tensor, v: Tensor, weights_u: Tensor, weights_v: Tensor) -> Tensor:
    first = (u * (columns @ weights_v)).sum()
    return 2.0 * first if u is v else first + (v * (columns @ weights_u)).sum()


def _with_jitter(core: Tensor) -> Tensor:
    """Enough on the diagonal for landmarks that are almost, but not quite, dependent."""
    jitter = 1e-12 * core.detach().diagonal().mean()
    return core + jitter * torch.eye(core.size(0), dtype=core.dtype, device=core.device)
