r"""A kernel matrix known through the columns of some nodes, its landmarks."""

import copy
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import times
from torch_gckm.gram.factor import Factor, PanelForm, RecomputedFactor, is_stored
from torch_gckm.gram.gram import Gram, Panel
from torch_gckm.gram.landmark_form import Columns, form_with_gradient
from torch_gckm.gram.pivoted_cholesky import WIDE
from torch_gckm.kernels import Kernel, Rows


class LandmarkGram(Gram):
    r"""The matrix :math:`K_{nS} K_{SS}^{-1} K_{Sn}` of landmarks :math:`S`; ``form`` says what is kept of a factor."""

    landmarks: Tensor
    is_centred: bool  # Whether the factor is.

    def __init__(
        self, kernel: Kernel, rows: Rows, landmarks: Tensor, panel: Panel | None = None, form: PanelForm = "auto"
    ) -> None:
        super().__init__(kernel, rows)
        self.landmarks, self._panel, self._form = landmarks, panel, form
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

    def _refactor(self) -> Panel:
        """The factor of given landmarks."""
        order, rows, over = self.landmarks.numel(), self.rows.detach(), self.partition
        factor = RecomputedFactor(self.kernel, rows, self.landmarks, self._root, self._is_wide)
        stored = is_stored(self._form, rows, order)
        panel = torch.empty(rows.num_rows if stored else 0, order, dtype=rows.dtype, device=rows.device)
        first = torch.empty(rows.num_rows if stored else 0, dtype=torch.float64, device=rows.device)
        residual = self.kernel(rows, diag=True).to(torch.float64, copy=True)
        trace = float(panels.total(residual, over))

        def sums(block: slice) -> Tensor:
            direct = stored and factor.precision == panel.dtype
            values = factor.columns(block, out=panel[block] if direct else None)
            residual[block] -= torch.linalg.vector_norm(values, dim=1).double().square()
            if stored:
                first[block] = values[:, 0]
                if not direct:
                    panel[block] = values
            return values.sum(dim=0).double()

        mean = panels.accumulate((sums(block) for block in rows.blocks(order)), over) / self.num_nodes
        over.fill_(residual.clamp_(min=0.0), self.landmarks, 0.0)
        trace -= float(mean.square().sum()) * self.num_nodes
        error = float(panels.total(residual, over)) / trace if trace > 0 else 0.0
        if stored and self.is_centred:
            panel -= mean.to(panel.dtype)
            panel[:, 0] = first - mean[0]  # The one column that may be almost constant.
        values: Factor = panel if stored else factor.with_mean(mean, self.is_centred)
        return Panel(values, residual, self.landmarks, error, over)

    def _is_one_block(self, rows: Rows) -> bool:
        """Whether the kernel columns of all rows fit into one block, in every process."""
        return self.partition.processes.everywhere(next(rows.blocks(self.landmarks.numel())) == slice(0, rows.num_rows))

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

    is_centred = True

    def matmul(self, v: Tensor) -> Tensor:
        with torch.no_grad():
            weights, marks = self._solve(self._project(v)), self._landmark_rows()
            result = v.new_empty(self.rows.num_rows, v.size(1))
            for block in self.rows.blocks(self.landmarks.numel()):
                columns = self._columns(self.rows.block(block), marks)
                result[block] = columns @ weights.to(columns.dtype)
            return result

    def centred_matmul(self, v: Tensor) -> Tensor:
        panel = self.factor().values
        if not isinstance(panel, Tensor):
            return super().centred_matmul(v)
        with torch.no_grad():
            return panel @ panels.cross(panel, v, self.partition)

    def centred_quadratic(self, h: Tensor) -> Tensor:
        panel = None if self._panel is None else self._panel.values
        if not isinstance(panel, Tensor) or not self.is_constant:
            return super().centred_quadratic(h)
        # The panel is constant: two thin products.
        return panels.cross(panel, h, self.partition).square().sum()

    def eigenvectors(self, count: int) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            panel, over = self.factor().values, self.partition
            if panel.size(1) == 0:
                return torch.empty(0, dtype=panel.dtype), torch.empty(panel.size(0), 0, dtype=panel.dtype)
            product = panels.moments(panel, over=over)[0]

            def leading() -> tuple[Tensor, Tensor]:
                values, vectors = torch.linalg.eigh(product)
                return values[-count:].flip(0), vectors[:, -count:].flip(1)

            values, vectors = over.processes.once(leading)
            keep = values > values.numel() * torch.finfo(panel.dtype).eps * values.clamp(min=0).max()
            values, vectors = values[keep], vectors[:, keep]
            h = _product(panel, (vectors * values.rsqrt()).to(panel.dtype))
            # Once more, so that the columns are orthonormal to the last digit of their type.
            return values.to(panel.dtype), panels.fix_signs(panels.orthonormalize(h, over), over)


class LowRankGram(LandmarkGram):
    r"""For a readout: :math:`F F' + \mathrm{diag}(\delta)`, which keeps the diagonal exact."""

    is_centred = False

    def matmul(self, v: Tensor) -> Tensor:
        with torch.no_grad():
            panel, residual = self.factor().values, self.factor().residual
            if isinstance(panel, Tensor):
                inner = panels.cross(panel, v, self.partition)
            else:
                inner = torch.linalg.solve_triangular(self._root, self._project(v), upper=False).to(v.dtype)
            return _product(panel, inner) + residual.to(v.dtype).unsqueeze(1) * v

    def bilinear(self, u: Tensor, v: Tensor) -> Tensor:
        """See :meth:`Gram.bilinear`; the landmarks are fixed, and the residual diagonal counts as constant."""
        corrected = self.factor().residual.to(u.dtype) * (u * v).sum(dim=1)
        return super().bilinear(u, v) + panels.total(corrected, self.partition)

    def eigenvectors(self, count: int) -> tuple[Tensor, Tensor]:
        gram = CentredLowRankGram(self.kernel, self.rows, self.landmarks, form=self._form)
        return gram.eigenvectors(count)

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
        panel = None if self._panel is None else self._panel.values
        if not isinstance(panel, Tensor):
            return super()._project(v)
        return self._root @ panels.cross(panel, v.to(panel.dtype), self.partition).double()


def _product(panel: Factor, v: Tensor) -> Tensor:
    """``panel @ v``, of a stored panel at once."""
    return panel @ v if isinstance(panel, Tensor) else times(panel, v, v.dtype)


def with_jitter(core: Tensor) -> Tensor:
    """Enough on the diagonal for landmarks that are almost, but not quite, dependent."""
    jitter = 1e-12 * core.detach().diagonal().mean()
    return core + jitter * torch.eye(core.size(0), dtype=core.dtype, device=core.device)
