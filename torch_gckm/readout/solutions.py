"""The readout's linear system, solved by an exact kernel matrix or by the factor of a low-rank one."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.autograd.function import once_differentiable

from torch_gckm import panels
from torch_gckm.blocks import Matrix, blocks, times
from torch_gckm.errors import GCKMWarning, SingularReadoutError
from torch_gckm.gram import Gram, Panel
from torch_gckm.partition import Partition
from torch_gckm.readout.problem import ALL, ReadoutProblem, ReadoutSolution, check_degrees

_SMALLEST_RCOND_EXACT = 1e-13
_SMALLEST_RCOND_LOW_RANK = 1e-14
_DEGREE_FLOOR = 1e-6
_DOUBLE_BELOW = 1e10
_ROWS = 8192  # Labelled nodes at a time: after self-training they may be most of the graph.


def solve(gram: Gram, problem: ReadoutProblem) -> ReadoutSolution:
    """Solve, differentiably: by the factor of a low-rank matrix, or with every entry of an exact one."""
    panel = gram.panel()
    return ExactSolution(gram.matrix(), problem) if panel is None else LowRankSolution(panel, problem)


class ExactSolution(ReadoutSolution):
    r"""LU of the bordered system in the unknowns :math:`a / \eta` and :math:`b`, where :math:`a = R H`.

    .. math::
        \begin{bmatrix} \eta I - R K & -r \\ 1' & 0 \end{bmatrix}
        \begin{bmatrix} a / \eta \\ b' \end{bmatrix} =
        \begin{bmatrix} S \\ 0 \end{bmatrix}, \qquad
        E = \begin{bmatrix} K & 1 \end{bmatrix}
        \begin{bmatrix} a / \eta \\ b' \end{bmatrix}, \qquad S = L C / \lambda_2

    It is the paper's bordered system with its rows scaled by :math:`-R`, so that :math:`r_i = 0` is no exception. The
    factors serve the scores, the leave-out blocks and the backward pass.
    """

    def __init__(self, matrix: Tensor, problem: ReadoutProblem) -> None:
        self.degrees = matrix.sum(dim=1)
        check_degrees(self.degrees)
        self.problem = problem
        self.r = problem.r(self.degrees)
        self._bordered = torch.nn.functional.pad(matrix, (0, 1, 0, 1), value=1.0)
        del matrix  # The bordered copy replaces it: n x n arrays are what memory goes to.
        system = torch.cat([-self.r, self.r.new_ones(1)]).unsqueeze(1) * self._bordered
        system.diagonal()[:-1].add_(problem.eta)
        system[-1, -1] = 0.0
        factors = lu_unless_singular(system.detach(), _SMALLEST_RCOND_EXACT)
        if factors is None:
            raise SingularReadoutError(_describe_singularity(self._bordered.detach()[:-1, :-1], problem))
        self._factors = factors
        # Without gradients the factors are all that is needed: an n x n array less to keep.
        self._system = system if system.requires_grad else self._factors[0]
        self._alpha, self.bias, self.scores = self._apply(problem.labels(system.dtype))

    def alpha(self, rows: slice = ALL) -> Tensor:
        return self._alpha[rows]

    def scores_for(self, codes: Tensor) -> Tensor:
        return self._apply(replace(self.problem, codes=codes).labels(self.r.dtype))[2]

    def columns(self, index: Tensor) -> Callable[[Tensor], Tensor]:
        return self.answer(index, torch.eye(index.size(0), dtype=self.r.dtype, device=index.device)).__getitem__

    def answer(self, index: Tensor, labels: Tensor) -> Tensor:
        everywhere = torch.zeros(self.r.size(0), labels.size(1), dtype=self.r.dtype, device=self.r.device)
        return self._apply(everywhere.index_copy(0, index, labels.to(self.r.dtype)))[2]

    def _apply(self, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        right = torch.nn.functional.pad(labels, (0, 0, 0, 1))
        solution: Tensor = solve_with_factors(self._system, self._factors, right)
        return solution[:-1] * self.problem.eta, solution[-1], (self._bordered @ solution)[:-1]


def _describe_singularity(matrix: Tensor, problem: ReadoutProblem) -> str:
    scale = matrix.diagonal().abs().sqrt()
    linked = matrix.abs() > 1e-12 * scale.unsqueeze(1) * scale
    _, component = connected_components(csr_matrix(linked.cpu().numpy()), directed=False)
    labelled = set(component[(problem.weight > 0).cpu().numpy()].tolist())
    lonely, nodes = np.unique(component, return_index=True)
    unlabelled = [int(node) for group, node in zip(lonely, nodes, strict=True) if group not in labelled]
    advice = "widen the kernel's bandwidth, label one of these nodes, or move eta * lambda1 away from 1"
    if len(unlabelled) >= 2:
        return (
            f"the readout has no unique solution: {len(unlabelled)} groups of nodes are joined to no labelled node by "
            f"the kernel (for example nodes {unlabelled[0]} and {unlabelled[1]}); {advice}"
        )
    return (
        f"the readout's linear system is singular at eta = {problem.eta:g}, lambda1 = {problem.lambda1:g}, "
        f"lambda2 = {problem.lambda2:g}; change one of them, or the kernel's bandwidth"
    )


class LowRankSolution(ReadoutSolution):
    r"""The Woodbury form of the readout for :math:`K = F F' + \mathrm{diag}(\delta)`.

    With :math:`f = F F'1`, degrees :math:`d = f + \delta`, :math:`t = 1 / (1 - r \delta / \eta)`,
    :math:`\tilde r = t r`, :math:`\hat F = [F, 1]` and :math:`J = \mathrm{diag}(\eta, \dots, \eta, 0)`:

    .. math::
        M = J - \hat F' \mathrm{diag}(\tilde r) \hat F, \qquad
        w = M^{-1} \hat F' (t \circ S), \qquad
        E = t \circ (\hat F w + \delta \circ S / \eta)

    One system of order :math:`m + 1`, in double precision.
    """

    def __init__(self, panel: Panel, problem: ReadoutProblem) -> None:
        eta, lambda1 = problem.eta, problem.lambda1
        self.problem = problem
        self._pick = panel.pick
        self._panel, residual, low = panel.values, panel.residual.double(), panel.row_sums
        self.partition = over = panel.partition
        self.degrees = degrees = low + residual
        check_degrees(degrees, over)
        self.r = problem.r(degrees)
        weight = problem.weight.double()
        # For unlabelled nodes t is a quotient of small differences; this form has none.
        thin = low < _DEGREE_FLOOR * degrees
        if abs(eta * lambda1 - 1.0) < _DEGREE_FLOOR and panels.holds_somewhere(thin, over):
            node = panels.first(thin, over)
            what = f"the kernel joins {panels.count(thin, over)} nodes to no other (first: node {node})"
            hint = "their scores are not determined: widen the bandwidth or raise the rank"
            warnings.warn(f"{what}; {hint}", GCKMWarning, stacklevel=2)
        low = torch.maximum(low, _DEGREE_FLOOR * degrees)
        free = 1.0 / (lambda1 * low + (lambda1 - 1.0 / eta) * residual)
        labelled = weight > 0
        self._t = torch.where(labelled, 1.0 / (1.0 - self.r * residual / eta), lambda1 * (low + residual) * free)
        self._rt = torch.where(labelled, self._t * self.r, free)
        self._residual = residual

        product = _weighted_gram(self._panel, self._rt, over)
        diagonal = torch.full_like(product[0], eta)
        diagonal[-1] = 0.0
        self._system = torch.diag(diagonal) - product
        system = self._system.detach()
        factors = over.processes.once(lambda: lu_unless_singular(system, _SMALLEST_RCOND_LOW_RANK) or ())
        if not factors:
            raise SingularReadoutError(
                f"the readout's linear system is singular at eta = {eta:g}, lambda1 = {lambda1:g}, lambda2 = "
                f"{problem.lambda2:g}: groups of nodes may be joined to no label by the kernel; widen its bandwidth, "
                "or move eta * lambda1 away from 1"
            )
        self._factors = (factors[0], factors[1])
        self.bias, self.scores = self._apply(problem)

    def scores_for(self, codes: Tensor) -> Tensor:
        return self._apply(replace(self.problem, codes=codes))[1]

    def _apply(self, problem: ReadoutProblem) -> tuple[Tensor, Tensor]:
        over, precision = self.partition, torch.float64

        def weighted(rows: Tensor) -> Tensor:
            return self._t[rows].unsqueeze(1) * problem.labels(precision, rows)

        parts = panels.rows_where(self.problem.weight > 0).split(_ROWS)  # Those of this process.
        right = panels.accumulate((panels.cross(_wide(self._panel[rows]), weighted(rows)) for rows in parts), over)
        solution = solve_with_factors(self._system, self._factors, right)

        def scores(hidden: Tensor, rows: slice) -> Tensor:
            own = self._residual[rows].unsqueeze(1) * problem.labels(precision, rows) / problem.eta
            return self._t[rows].unsqueeze(1) * (hidden + solution[-1] + own)

        if isinstance(self._panel, Tensor) and self._panel.requires_grad:
            return solution[-1], scores(self._panel.double() @ solution[:-1], ALL)
        # A block of rows at a time: numbers for every node and class are large.
        found = times(self._panel, solution[:-1], _block_precision(self._panel, over))
        for block in blocks(*found.shape):
            found[block] = scores(found[block], block)
        return solution[-1], found

    def columns(self, index: Tensor) -> Callable[[Tensor], Tensor]:
        solved = solve_with_factors(self._system, self._factors, self._rows(index).t())
        own = self._own(index)

        def part(nodes: Tensor) -> Tensor:
            return self._rows(nodes) @ solved + torch.where(nodes.unsqueeze(1) == index, own, 0.0)

        return part

    def answer(self, index: Tensor, labels: Tensor) -> Tensor:
        right = self._rows(index).t() @ labels.double()
        solution = solve_with_factors(self._system, self._factors, right)
        hidden = times(self._panel, solution[:-1], torch.float64) + solution[-1]
        own = self._own(index).unsqueeze(1) * labels.double()
        return (self._t.unsqueeze(1) * hidden).index_add(0, index, own)

    def leverage(self, index: Tensor) -> Tensor:
        places, own = self.partition.own(index, self._t.size(0))  # Each process for its own nodes.
        parts = []
        for part in own.split(_ROWS):
            rows = self._t[part].unsqueeze(1) * _wide(self._panel[part])
            parts.append((rows * solve_with_factors(self._system, self._factors, rows.t()).t()).sum(dim=1))
        found = torch.cat(parts) + self._t[own] * self._residual[own] / self.problem.eta
        return self.partition.processes.sum(found.new_zeros(index.numel()).index_copy(0, places, found))

    def _rows(self, index: Tensor) -> Tensor:
        """Rows of the panel with a column of ones, times ``t``."""
        rows = _wide(self._pick(index))
        return self.partition.pick(self._t, index).unsqueeze(1) * rows

    def _own(self, index: Tensor) -> Tensor:
        """What the residual adds to the diagonal of the map."""
        return self.partition.pick(self._t * self._residual, index) / self.problem.eta


def _wide(rows: Tensor) -> Tensor:
    """Rows of a panel in double precision, with a column of ones."""
    return torch.nn.functional.pad(rows.double(), (0, 1), value=1.0)


def _weighted_gram(panel: Matrix, weight: Tensor, over: Partition) -> Tensor:
    r""":math:`\hat F' \mathrm{diag}(w) \hat F` with a column of ones added to the panel, in double precision."""
    if isinstance(panel, Tensor) and panel.requires_grad:
        wide = _wide(panel)
        return panels.cross(wide, weight.unsqueeze(1) * wide, over)
    order, dtype = panel.size(1), _block_precision(panel, over)
    result = torch.empty(order + 1, order + 1, dtype=torch.float64, device=panel.device)
    result[:-1, :-1], sums = panels.moments(panel, weight, dtype, over)
    result[-1, :-1] = result[:-1, -1] = sums
    result[-1, -1] = panels.total(weight, over)
    return result


def _block_precision(panel: Matrix, over: Partition) -> torch.dtype:
    """Sums of a few thousand single-precision products are exact enough where double ones would take minutes."""
    return torch.float64 if over.all_rows(panel.size(0)) * panel.size(1) ** 2 < _DOUBLE_BELOW else panel.dtype


def lu_unless_singular(system: Tensor, smallest_rcond: float) -> tuple[Tensor, Tensor] | None:
    """Factors and pivots, or ``None`` if the estimated condition number exceeds ``1 / smallest_rcond``."""
    factors, pivots, info = torch.linalg.lu_factor_ex(system)
    if int(info) != 0:
        return None
    inverse_norm = panels.one_norm_estimate(
        lambda x: torch.linalg.lu_solve(factors, pivots, x.unsqueeze(1)).squeeze(1),
        lambda x: torch.linalg.lu_solve(factors, pivots, x.unsqueeze(1), adjoint=True).squeeze(1),
        start=torch.full_like(system[0], 1.0 / system.size(0)),
    )
    condition = float(inverse_norm * torch.linalg.matrix_norm(system, ord=1))
    return (factors, pivots) if condition * smallest_rcond < 1.0 else None


def solve_with_factors(system: Tensor, factors: tuple[Tensor, Tensor], right: Tensor) -> Tensor:
    """Solve ``system @ x = right`` with factors made before; gradients flow to ``system`` and ``right``."""
    return cast(Tensor, _Solve.apply(system, *factors, right))


class _Solve(torch.autograd.Function):
    """Solve with a given LU factorisation; the backward pass solves with its transpose."""

    @staticmethod
    def forward(ctx: Any, system: Tensor, factors: Tensor, pivots: Tensor, right: Tensor) -> Tensor:
        solution = torch.linalg.lu_solve(factors, pivots, right)
        ctx.save_for_backward(factors, pivots, solution)
        return solution

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, Tensor]:
        factors, pivots, solution = ctx.saved_tensors
        right = torch.linalg.lu_solve(factors, pivots, grad, adjoint=True)
        system = -right @ solution.t() if ctx.needs_input_grad[0] else None
        return system, None, None, right
