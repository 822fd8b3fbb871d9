r"""A kernel matrix known through the columns of some nodes, its landmarks."""

import copy
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import times_upper
from torch_gckm.gram.gram import Gram, Panel
from torch_gckm.gram.landmark_form import Columns, form_with_gradient
from torch_gckm.gram.pivoted_cholesky import WIDE
from torch_gckm.kernels import Kernel, Rows


class LandmarkGram(Gram):
    r"""The matrix :math:`K_{nS} K_{SS}^{-1} K_{Sn}` of landmarks :math:`S`."""

    landmarks: Tensor

    def __init__(self, kernel: Kernel, rows: Rows, landmarks: Tensor, panel: Panel | None = None) -> None:
        super().__init__(kernel, rows)
        self.landmarks, self._panel = landmarks, panel
        self._error = None if panel is None else panel.error

    def tracking(self, rows: Rows) -> Self:
        gram = copy.copy(self)
        gram.rows = rows
        return gram

    def error(self) -> float:
        if self._error is None:
            self._error = self.factor().error
        return self._error

    def factor(self) -> Panel:
        """The factor :math:`F` and the residual, without gradients."""
        if self._panel is None:
            with torch.no_grad():
                self._panel = self._refactor()
        return self._panel

    def release(self) -> None:
        if self._panel is not None:
            self._error, self._panel = self._panel.error, None

    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:
        """The landmarks are fixed: no factorisation is differentiated; see :func:`form_with_gradient`."""
        rows, known = self._in_precision(self.rows), None
        both = (u if u is v else torch.cat([u, v], dim=1)).detach()
        if torch.is_grad_enabled() and not self.is_constant and self._is_one_block(rows):
            known = Columns.of(self.kernel, rows, rows.rows(self.landmarks).fresh_leaves())
        with torch.no_grad():
            if known is None:
                projected = self._project(both)
            else:
                projected = panels.cross(known.values, both.to(known.values), self.partition)
            weights = self._solve(projected)
            weights_u, weights_v = weights[:, : u.size(1)], weights[:, -v.size(1) :]
            value = (projected[:, : u.size(1)] * weights_v).sum().to(u.dtype)
        if torch.is_grad_enabled():
            value = form_with_gradient(value, self.kernel, rows, self.landmarks, (u, v), (weights_u, weights_v), known)
        return value

    def representer(self, v: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return self.landmarks, self._solve(self._project(v))

    def _finish(self, panel: Tensor, mean: Tensor, first: Tensor) -> None:
        """What is left to do to a new factor, in place: nothing, unless it is to be centred."""

    def _refactor(self) -> Panel:
        """The factor of given landmarks."""
        order, size, over = self.landmarks.numel(), self.rows.num_rows, self.partition
        eye = torch.eye(order, dtype=torch.float64, device=self.landmarks.device)
        inverse = torch.linalg.solve_triangular(self._root, eye, upper=False).t()
        panel = torch.empty(size, order, dtype=self.rows.dtype, device=self.rows.device)
        first = torch.empty(size, dtype=torch.float64, device=self.rows.device)
        residual = self.kernel(self.rows, diag=True).to(torch.float64, copy=True)
        trace = float(panels.total(residual, over))
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
        over.fill_(residual.clamp_(min=0.0), self.landmarks, 0.0)
        mean = panels.column_means(panel, over).double()
        mean[0] = panels.mean(first, over)
        trace -= float(mean.square().sum()) * self.num_nodes
        self._finish(panel, mean, first)
        error = float(panels.total(residual, over)) / trace if trace > 0 else 0.0
        return Panel(panel, residual, self.landmarks, error, over)

    def _is_one_block(self, rows: Rows) -> bool:
        """Whether the kernel columns of all rows fit into one block, in every process."""
        return self.partition.processes.everywhere(len(list(rows.blocks(self.landmarks.numel()))) == 1)

    @cached_property
    def _core(self) -> Tensor:
        """The landmarks' kernel matrix in double precision, ``[m, m]``."""
        with torch.no_grad():
            return self.kernel(self.rows.detach().rows(self.landmarks).to(torch.float64))

    @cached_property
    def _root(self) -> Tensor:
        """Its Cholesky root."""
        return torch.linalg.cholesky(with_jitter(self._core))

    @cached_property
    def _is_wide(self) -> bool:
        """Whether the kernel is almost constant on the landmarks."""
        return float(self._core.mean() / self._core.diagonal().mean()) > 1.0 - WIDE

    def _solve(self, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right.double(), self._root)

    def _project(self, v: Tensor) -> Tensor:
        """``K_nS' v`` in double precision, a block of rows at a time."""
        rows, marks = self.rows.detach(), self._landmark_rows().detach()

        def part(block: slice) -> Tensor:
            columns = self._columns(rows.block(block), marks)
            return (columns.t() @ v[block].to(columns.dtype)).double()

        return panels.accumulate((part(block) for block in rows.blocks(self.landmarks.numel())), self.partition)

    def _landmark_rows(self) -> Rows:
        return self.rows.rows(self.landmarks)

    def _columns(self, rows: Rows, marks: Rows) -> Tensor:
        return self.kernel(self._in_precision(rows), self._in_precision(marks))

    def _in_precision(self, rows: Rows) -> Rows:
        """The rows as they are, or in double precision if the kernel is almost constant on them."""
        return rows.to(torch.float64) if self._is_wide else rows


class CentredLowRankGram(LandmarkGram):
    r"""For a layer: :math:`F F'`, and :math:`F` minus its column means where only the centred matrix is asked for."""

    def matmul(self, v: Tensor) -> Tensor:
        with torch.no_grad():
            weights, marks = self._solve(self._project(v)), self._landmark_rows()
            result = v.new_empty(self.rows.num_rows, v.size(1))
            for block in self.rows.blocks(self.landmarks.numel()):
                columns = self._columns(self.rows.block(block), marks)
                result[block] = columns @ weights.to(columns.dtype)
            return result

    def centred_quadratic(self, h: Tensor) -> Tensor:
        if self._panel is None or not self.is_constant:
            return super().centred_quadratic(h)
        # The panel is constant: two thin products.
        return panels.cross(self._panel.values, h, self.partition).square().sum()

    def eigenvectors(self, count: int) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            panel, over = self.factor().values, self.partition
            if panel.size(1) == 0:
                return panel.new_empty(0), panel
            product = panels.symmetric_product(panel, over=over)
            values, vectors = over.processes.once(lambda: torch.linalg.eigh(product))
            top = slice(max(0, values.numel() - count), None)
            values, vectors = values[top].flip(0), vectors[:, top].flip(1)
            keep = values > values.numel() * torch.finfo(panel.dtype).eps * values.clamp(min=0).max()
            values, vectors = values[keep], vectors[:, keep]
            h = panel @ (vectors * values.rsqrt()).to(panel.dtype)
            # Once more, so that the columns are orthonormal to the last digit of their type.
            return values.to(panel.dtype), panels.fix_signs(panels.orthonormalize(h, over), over)

    def _finish(self, panel: Tensor, mean: Tensor, first: Tensor) -> None:
        panel -= mean.to(panel.dtype)
        panel[:, 0] = first - mean[0]  # The one column that may be almost constant.


class LowRankGram(LandmarkGram):
    r"""For a readout: :math:`F F' + \mathrm{diag}(\delta)`, which keeps the diagonal exact."""

    def matmul(self, v: Tensor) -> Tensor:
        with torch.no_grad():
            panel, residual = self.factor().values, self.factor().residual
            return panel @ panels.cross(panel, v, self.partition) + residual.to(v.dtype).unsqueeze(1) * v

    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:
        """See :meth:`Gram.bilinear`; the landmarks are fixed, and the residual diagonal counts as constant."""
        corrected = self.factor().residual.to(u.dtype) * (u * v).sum(dim=1)
        return super().bilinear(u, v) + panels.total(corrected, self.partition)

    def eigenvectors(self, count: int) -> tuple[Tensor, Tensor]:
        return CentredLowRankGram(self.kernel, self.rows, self.landmarks).eigenvectors(count)

    def constant_degrees(self) -> Tensor:
        """The row sums in double precision, without gradients."""
        return self.factor().row_sums + self.factor().residual

    def panel(self) -> Panel:
        if self.is_constant or not torch.is_grad_enabled():
            return self.factor()
        # Gradients: the same panel as a function of the features, with the landmarks fixed.
        self.partition.refuse("gradients through the solve are", "solve under torch.no_grad()")
        rows = self.rows.to(torch.float64)
        columns = self.kernel(rows, rows.rows(self.landmarks))
        root = torch.linalg.cholesky(with_jitter(columns[self.landmarks]))
        values = torch.linalg.solve_triangular(root, columns.t(), upper=False).t()
        residual = (self.kernel(rows, diag=True) - values.square().sum(dim=1)).clamp(min=0.0)
        return Panel(values, residual.index_fill(0, self.landmarks, 0.0), self.landmarks, self.factor().error)

    def _project(self, v: Tensor) -> Tensor:
        if self._panel is None:
            return super()._project(v)
        panel = self._panel.values
        return self._root @ panels.cross(panel, v.to(panel.dtype), self.partition).double()


def with_jitter(core: Tensor) -> Tensor:
    """Enough on the diagonal for landmarks that are almost, but not quite, dependent."""
    jitter = 1e-12 * core.detach().diagonal().mean()
    return core + jitter * torch.eye(core.size(0), dtype=core.dtype, device=core.device)
