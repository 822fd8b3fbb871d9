r"""The readout's linear system with a low-rank kernel matrix."""

import warnings

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import GCKMWarning, SingularReadoutError
from torch_gckm.gram import Panel
from torch_gckm.readout.lu import lu_unless_singular, solve_with_factors
from torch_gckm.readout.problem import ReadoutProblem, ReadoutSolution, check_degrees

_SMALLEST_RCOND = 1e-14
_DEGREE_FLOOR = 1e-6
_DOUBLE_BELOW = 1e10
_ROWS = 8192  # Labelled nodes at a time: after self-training they may be most of the graph.


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
        self._panel, residual, low = panel.values, panel.residual.double(), panel.row_sums
        self.degrees = degrees = low + residual
        check_degrees(degrees)
        self.r = problem.r(degrees)
        weight = problem.weight.double()
        # For unlabelled nodes t is a quotient of small differences; this form has none.
        thin = low < _DEGREE_FLOOR * degrees
        if abs(eta * lambda1 - 1.0) < _DEGREE_FLOOR and panels.holds_somewhere(thin):
            warnings.warn(
                f"the kernel joins {panels.count(thin)} nodes to no other (first: node {panels.first(thin)}); "
                "their scores are not determined: widen the bandwidth or raise the rank",
                GCKMWarning,
                stacklevel=2,
            )
        low = torch.maximum(low, _DEGREE_FLOOR * degrees)
        free = 1.0 / (lambda1 * low + (lambda1 - 1.0 / eta) * residual)
        labelled = weight > 0
        self._t = torch.where(labelled, 1.0 / (1.0 - self.r * residual / eta), lambda1 * (low + residual) * free)
        self._rt = torch.where(labelled, self._t * self.r, free)
        self._residual = residual

        system = -_weighted_gram(self._panel, self._rt)
        order = system.size(0)
        system = system + torch.diag(torch.full((order,), eta, dtype=system.dtype, device=system.device))
        corner = torch.zeros_like(system)
        corner[-1, -1] = eta
        self._system = system - corner
        self._factors = self._factorise(self._system.detach())
        labels = problem.labels(torch.float64)
        weighted = self._t.unsqueeze(1) * labels
        parts = panels.rows_where(labelled).split(_ROWS)
        right = panels.accumulate(panels.cross(self._rows(part), weighted[part]) for part in parts)
        solution = solve_with_factors(self._system, self._factors, right)
        self.bias = solution[-1]
        hidden = _times(self._panel, solution[:-1]) + self.bias
        self.scores = self._t.unsqueeze(1) * (hidden + residual.unsqueeze(1) * labels / eta)
        self.alpha = self.r.unsqueeze(1) * self.scores + labels

    def response(self, index: Tensor) -> Tensor:
        rows = self._t[index].unsqueeze(1) * self._rows(index)
        block = rows @ solve_with_factors(self._system, self._factors, rows.t())
        return block + torch.diag(self._t[index] * self._residual[index] / self.problem.eta)

    def leverage(self, index: Tensor) -> Tensor:
        return torch.cat([self._leverage(part) for part in index.split(_ROWS)])

    def _leverage(self, index: Tensor) -> Tensor:
        rows = self._t[index].unsqueeze(1) * self._rows(index)
        solved = solve_with_factors(self._system, self._factors, rows.t()).t()
        return (rows * solved).sum(dim=1) + self._t[index] * self._residual[index] / self.problem.eta

    def _rows(self, index: Tensor) -> Tensor:
        return torch.nn.functional.pad(self._panel[index].double(), (0, 1), value=1.0)

    def _factorise(self, system: Tensor) -> tuple[Tensor, Tensor]:
        factors = lu_unless_singular(system, _SMALLEST_RCOND)
        if factors is not None:
            return factors
        raise SingularReadoutError(
            f"the readout's linear system is singular at eta = {self.problem.eta:g}, lambda1 = "
            f"{self.problem.lambda1:g}, lambda2 = {self.problem.lambda2:g}: groups of nodes may be joined to no label "
            "by the kernel; widen its bandwidth, or move eta * lambda1 away from 1"
        )


def _weighted_gram(panel: Tensor, weight: Tensor) -> Tensor:
    r""":math:`\hat F' \mathrm{diag}(w) \hat F` with a column of ones added to the panel, in double precision."""
    if panel.requires_grad:
        wide = torch.nn.functional.pad(panel.double(), (0, 1), value=1.0)
        return panels.cross(wide, weight.unsqueeze(1) * wide)
    order, dtype = panel.size(1), _block_precision(panel)
    result = torch.empty(order + 1, order + 1, dtype=torch.float64, device=panel.device)
    result[:-1, :-1] = panels.symmetric_product(panel, weight, dtype)
    result[-1, :-1] = result[:-1, -1] = panels.times_vector(panel, weight, dtype)
    result[-1, -1] = panels.total(weight)
    return result


def _times(panel: Tensor, v: Tensor) -> Tensor:
    """``panel @ v`` to double precision."""
    return panel.double() @ v if panel.requires_grad else panels.times(panel, v, _block_precision(panel))


def _block_precision(panel: Tensor) -> torch.dtype:
    """Sums of a few thousand single-precision products are exact enough where double ones would take minutes."""
    return torch.float64 if panel.size(0) * panel.size(1) ** 2 < _DOUBLE_BELOW else panel.dtype
