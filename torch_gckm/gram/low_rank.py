r"""A low-rank kernel matrix: linear in the number of nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.gram.gram import Gram, GramFactory, ReadoutProblem
from torch_gckm.gram.landmark_form import Columns, form_with_gradient
from torch_gckm.gram.low_rank_readout import LowRankReadout
from torch_gckm.gram.memory import require_memory
from torch_gckm.gram.pivoted_cholesky import WIDE, Factor, pivoted_cholesky
from torch_gckm.gram.products import symmetric_product, times_upper
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.numerics import fix_signs, orthonormalize


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

    def __init__(self, max_rank: int = 512, tol: float = 0.05, block_size: int = 128, seed: int = 0) -> None:
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
        self._is_wide = False
        self._error: float | None = None

    @property
    def landmarks(self) -> Tensor:
        """The nodes whose columns are used; chosen now if they were not given."""
        if self._landmarks is None:
            self._landmarks = self.factor().landmarks
        return self._landmarks

    def tracking(self, rows: Rows) -> LowRankGram:
        gram = LowRankGram(self.options, self.kernel, rows, self.landmarks, self.centred, self.min_rank)
        gram._factor, gram._root, gram._is_wide = self._factor, self._root, self._is_wide
        return gram

    def describe(self) -> str:
        if self._error is None:
            self._error = self.factor().error
        return f"rank {self.landmarks.numel()} of {self.num_nodes}, error {self._error:.2g}"

    def factor(self) -> Factor:
        """The factor :math:`F` (centred for a layer) and the residual; without gradients."""
        if self._factor is None:
            with torch.no_grad():
                self._factor = self._choose() if self._landmarks is None else self._refactor()
        return self._factor

    def release(self) -> None:
        if self._factor is not None:
            self.describe()  # Landmarks and error outlive the factor.
            self._factor = None

    def matmul(self, v: Tensor) -> Tensor:
        with torch.no_grad():
            if not self.centred:
                panel, residual = self.factor().panel, self.factor().residual
                return panel @ (panel.t() @ v) + residual.to(v.dtype).unsqueeze(1) * v
            return self._times_columns(self.rows, self._solve(self._project(v)), v)

    def centred_quadratic(self, h: Tensor) -> Tensor:
        if self._factor is None or not (self.is_constant and self.centred):
            return super().centred_quadratic(h)
        # The panel is constant and centred: two thin products.
        return (self._factor.panel.t() @ h).square().sum()

    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:
        r"""See :meth:`Gram.bilinear`; the landmarks are fixed, and the residual diagonal counts as constant.

        With :math:`p_u = K_{nS}' u`, :math:`W_u = K_{SS}^{-1} p_u` held constant and the same for
        :math:`v`, the form :math:`p_u \cdot W_v + W_u \cdot p_v - W_u \cdot K_{SS} W_v` has the value and
        the gradient of :math:`\mathrm{Tr}(u' K_{nS} K_{SS}^{-1} K_{Sn} v)`: no factorisation is
        differentiated, and no term costs :math:`n m^2`.
        """
        rows, known = self._in_precision(self.rows), None
        both = (u if u is v else torch.cat([u, v], dim=1)).detach()
        if torch.is_grad_enabled() and not self.is_constant and len(list(rows.blocks(self.landmarks.numel()))) == 1:
            known = Columns.of(self.kernel, rows, rows.rows(self.landmarks).leaves())
        with torch.no_grad():
            projected = self._project(both) if known is None else known.values.t() @ both.to(known.values.dtype)
            weights = self._solve(projected)
            weights_u, weights_v = weights[:, : u.size(1)], weights[:, -v.size(1) :]
            total = (projected[:, : u.size(1)] * weights_v).sum().to(u.dtype)
        if torch.is_grad_enabled():
            total = form_with_gradient(total, self.kernel, rows, self.landmarks, (u, v), (weights_u, weights_v), known)
        if not self.centred:
            total = total + (self.factor().residual.to(u.dtype) * (u * v).sum(dim=1)).sum()
        return total

    def eigenvectors(self, count: int) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            self.min_rank = max(self.min_rank, 2 * count)
            panel = self.factor().panel
            if panel.size(1) == 0:
                return panel.new_empty(0), panel
            values, vectors = torch.linalg.eigh(symmetric_product(panel))
            top = slice(max(0, values.numel() - count), None)
            values, vectors = values[top].flip(0), vectors[:, top].flip(1)
            keep = values > values.numel() * torch.finfo(panel.dtype).eps * values.clamp(min=0).max()
            values, vectors = values[keep], vectors[:, keep]
            h = panel @ (vectors * values.rsqrt()).to(panel.dtype)
            # Once more, so that the columns are orthonormal to the last digit of their type.
            return values.to(panel.dtype), fix_signs(orthonormalize(h))

    def solve_readout(self, problem: ReadoutProblem) -> LowRankReadout:
        self._raise_rank_for_degrees()
        if self.is_constant or not torch.is_grad_enabled():
            factor = self.factor()
            return LowRankReadout(factor.panel, factor.residual, factor.row_sums, problem)
        # Gradients: the same panel as a function of the features, with the landmarks fixed.
        rows = self.rows.to(torch.float64)
        columns = self.kernel(rows, rows.rows(self.landmarks))
        root = torch.linalg.cholesky(_with_jitter(columns[self.landmarks]))
        panel = torch.linalg.solve_triangular(root, columns.t(), upper=False).t()
        residual = (self.kernel(rows, diag=True) - panel.square().sum(dim=1)).clamp(min=0.0)
        residual = residual.index_fill(0, self.landmarks, 0.0)
        return LowRankReadout(panel, residual, panel @ panel.sum(dim=0), problem)

    def representer(self, v: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return self.landmarks, self._solve(self._project(v))

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

    def _raise_rank_for_degrees(self) -> None:
        """Choose more landmarks while the approximation alone makes the degree of a node non-positive."""
        with torch.no_grad():
            while self.landmarks.numel() < self.num_nodes:
                bad = self.factor().row_sums + self.factor().residual <= 0
                if not bool(bad.any()):
                    return
                first = self.rows.detach().rows(bad.nonzero()[0])
                if float(self.kernel(first, self.rows.detach()).sum()) <= 0:
                    return  # It is so exactly, and the readout will say so.
                rank = self.landmarks.numel()
                self.min_rank = 2 * rank
                self._landmarks = self._factor = self._root = self._error = None
                if self.landmarks.numel() <= rank:
                    return  # The matrix has no more: the degree is zero up to rounding.

    def _refactor(self) -> Factor:
        """The factor of given landmarks."""
        order = self.landmarks.numel()
        inverse = torch.linalg.solve_triangular(
            self._cholesky(), torch.eye(order, dtype=torch.float64, device=self.landmarks.device), upper=False
        ).t()
        panel = torch.empty(self.num_nodes, order, dtype=self.rows.dtype, device=self.rows.device)
        first = torch.empty(self.num_nodes, dtype=torch.float64, device=self.rows.device)
        residual = self.diagonal().to(torch.float64, copy=True)
        trace = float(residual.sum())
        marks = self._landmark_rows()
        for block in self.rows.blocks(order):
            columns = self._columns(self.rows.block(block), marks)
            direct = columns.dtype == panel.dtype
            values = panel[block] if direct else torch.empty_like(columns)
            times_upper(columns, inverse.to(columns.dtype), out=values)
            residual[block] -= torch.linalg.vector_norm(values, dim=1).double().square()
            first[block] = values[:, 0]
            if not direct:
                panel[block] = values
        residual = residual.clamp_(min=0.0).index_fill_(0, self.landmarks, 0.0)
        mean = panel.mean(dim=0).double()
        mean[0] = first.mean()
        trace -= float(mean.square().sum()) * self.num_nodes
        if self.centred:
            panel -= mean.to(panel.dtype)
            panel[:, 0] = first - mean[0]  # The one column that may be almost constant.
        return Factor(self.landmarks, panel, residual, float(residual.sum()) / trace if trace > 0 else 0.0)

    def _cholesky(self) -> Tensor:
        """The Cholesky root of the landmarks' kernel matrix, in double precision."""
        if self._root is None:
            with torch.no_grad():
                core = self.kernel(self.rows.detach().rows(self.landmarks).to(torch.float64))
                self._is_wide = float(core.mean() / core.diagonal().mean()) > 1.0 - WIDE
                self._root = torch.linalg.cholesky(_with_jitter(core))
        return self._root

    def _solve(self, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right.double(), self._cholesky())

    def _project(self, v: Tensor) -> Tensor:
        """``K_nS' v`` in double precision, from the panel or a block of rows at a time."""
        if self._factor is not None and not self.centred:
            return self._cholesky() @ (self._factor.panel.t() @ v.to(self._factor.panel.dtype)).double()
        total = torch.zeros(self.landmarks.numel(), v.size(1), dtype=torch.float64, device=v.device)
        rows, marks = self.rows.detach(), self._landmark_rows().detach()
        for block in rows.blocks(self.landmarks.numel()):
            columns = self._columns(rows.block(block), marks)
            total += columns.t() @ v[block].to(columns.dtype)
        return total

    def _times_columns(self, rows: Rows, weights: Tensor, like: Tensor) -> Tensor:
        """The kernel columns of the landmarks at some rows, times ``weights``."""
        result = like.new_empty(rows.num_rows, weights.size(1))
        marks = self._landmark_rows()
        for block in rows.blocks(self.landmarks.numel()):
            columns = self._columns(rows.block(block), marks)
            result[block] = columns @ weights.to(columns.dtype)
        return result

    def _landmark_rows(self) -> Rows:
        return self.rows.rows(self.landmarks)

    def _columns(self, rows: Rows, marks: Rows) -> Tensor:
        return self.kernel(self._in_precision(rows), self._in_precision(marks))

    def _in_precision(self, rows: Rows) -> Rows:
        """The rows as they are, or in double precision if the kernel is almost constant on them."""
        self._cholesky()
        return rows.to(torch.float64) if self._is_wide else rows


def _with_jitter(core: Tensor) -> Tensor:
    """Enough on the diagonal for landmarks that are almost, but not quite, dependent."""
    jitter = 1e-12 * core.detach().diagonal().mean()
    return core + jitter * torch.eye(core.size(0), dtype=core.dtype, device=core.device)
