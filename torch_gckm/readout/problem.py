r"""The readout's linear system: its data, what a solution knows, and what follows from one."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import blocks, filled
from torch_gckm.errors import DegreeError, InvalidInputError
from torch_gckm.gram import Gram
from torch_gckm.kernels import Rows
from torch_gckm.partition import WHOLE, Partition

ALL = slice(None)


@dataclass(frozen=True)
class ReadoutProblem:
    r"""The data of the semi-supervised readout: label weights :math:`l`, class codes :math:`C` and hyperparameters.

    The weights, ``[n]``, are zero for unlabelled nodes, whose rows of the codes, ``[n, p]``, do not matter.
    """

    weight: Tensor
    codes: Tensor
    eta: float
    lambda1: float
    lambda2: float

    def r(self, degrees: Tensor) -> Tensor:
        r""":math:`r_i = v_i / \lambda_1 - l_i / \lambda_2` with :math:`v_i` the inverse degree, ``[n]``."""
        return 1.0 / (self.lambda1 * degrees) - self.weight.to(degrees) / self.lambda2

    def labels(self, dtype: torch.dtype, rows: slice | Tensor = ALL) -> Tensor:
        r"""The label term :math:`S = L C / \lambda_2`, ``[n, p]``, or some of its rows."""
        return self.weight[rows].to(dtype).unsqueeze(1) * self.codes[rows].to(dtype) / self.lambda2


class ReadoutSolution(ABC):
    """The solution of the readout's linear system, differentiable in the features."""

    problem: ReadoutProblem
    scores: Tensor  # E, [n, p].
    bias: Tensor  # b, [p].
    r: Tensor  # The diagonal of R, [n].
    degrees: Tensor  # The kernel degrees K 1, [n].
    partition: Partition = WHOLE  # Which rows these are; nodes are named by their global numbers.

    def alpha(self, rows: slice = ALL) -> Tensor:
        r"""Some rows of :math:`a = R H = R E + S`, ``[n, p]``."""
        return self.r[rows].unsqueeze(1) * self.scores[rows] + self.problem.labels(self.r.dtype, rows)

    def duals(self, rows: slice = ALL) -> Tensor:
        r"""Some rows of :math:`H = R^{-1} a`, ``[n, p]``."""
        return self.alpha(rows) / self.r[rows].unsqueeze(1)

    def product(self, rows: slice = ALL) -> Tensor:
        r"""Some rows of :math:`K a`, ``[n, p]``, which the scores :math:`E = K a / \eta + 1 b'` contain."""
        return self.problem.eta * (self.scores[rows] - self.bias)

    @abstractmethod
    def scores_for(self, codes: Tensor) -> Tensor:
        r"""The scores :math:`G L C / \lambda_2` that the labelled nodes would cause with other codes, ``[n, q]``."""

    @abstractmethod
    def columns(self, index: Tensor) -> Callable[[Tensor], Tensor]:
        r"""Columns :math:`G_{:B}` of the symmetric map :math:`E = G S` from labels to scores, some rows at a time.

        It reuses the factorisation of the solve: one right-hand side per node of :math:`B`, here; what is returned
        makes ``[r, b]`` of ``r`` rows.
        """

    @abstractmethod
    def answer(self, index: Tensor, labels: Tensor) -> Tensor:
        r"""The scores :math:`G_{:B} S_B` that label terms ``[b, q]`` of some nodes cause at all nodes, ``[n, q]``."""

    def response(self, index: Tensor) -> Tensor:
        r"""The block :math:`G_{BB}`, ``[b, b]``; see :meth:`columns`."""
        return self.columns(index)(index)

    def leverage(self, index: Tensor) -> Tensor:
        r"""The diagonal of :meth:`response`, ``[b]``."""
        return self.response(index).diagonal()


def check_degrees(degrees: Tensor, over: Partition = WHOLE) -> None:
    """Refuse nodes whose kernel degree is not positive, naming the first."""
    bad = ~(degrees > 0)
    if panels.holds_somewhere(bad, over):
        node, count = panels.first(bad, over), panels.count(bad, over)
        raise DegreeError(
            f"node {node} has the kernel degree {over.number_at(degrees, node):.3g} ({count} nodes are not "
            "positive); the readout weighs nodes by 1/degree: use a kernel with positive values, such as RBF"
        )


def dual_objective(
    gram: Gram, rows: Rows, problem: ReadoutProblem, duals: Tensor, solution: ReadoutSolution | None = None
) -> Tensor:
    r"""The readout's objective with constant duals :math:`H`, differentiable in the features.

    .. math::
        -\frac{1}{2 \eta} \mathrm{Tr}(H' R K R H) + \frac12 \mathrm{Tr}(H' R H)
        - \frac{1}{\lambda_2} \mathrm{Tr}(H' L C)

    Gradients flow to ``rows``, the features of ``gram``, through :math:`K` and through the degrees in :math:`R`. If the
    duals, ``[n, p]``, solve the problem, the ``solution`` knows what would be computed again.
    """
    over, undefined = gram.partition, torch.empty(duals.size(0), dtype=torch.bool, device=duals.device)
    for block in blocks(*duals.shape):
        undefined[block] = ~duals[block].isfinite().all(dim=1)
    if panels.holds_somewhere(undefined, over):
        raise InvalidInputError(
            f"the dual variables of node {panels.first(undefined, over)} are not defined because r is zero there; "
            "change lambda1 or lambda2 slightly to fine-tune"
        )
    is_tracked = torch.is_grad_enabled()
    with torch.no_grad():
        if solution is not None:
            degrees, r = solution.degrees.to(duals), solution.r.to(duals)
        else:
            degrees = gram.degrees()
            r = problem.r(degrees)
            product = gram.matmul(r.unsqueeze(1) * duals)
        slope_r = torch.empty_like(r)

        def part(rows: slice) -> Tensor:
            """What some rows add to the objective."""
            h, scale = duals[rows], r[rows]
            if solution is not None:
                own, alpha = solution.product(rows).to(duals), solution.alpha(rows).to(duals)
            else:
                own, alpha = product[rows], scale.unsqueeze(1) * h
            sq_norm = h.square().sum(dim=1)
            slope_r[rows] = sq_norm / 2 - (h * own).sum(dim=1) / problem.eta
            quadratic = (scale * sq_norm).sum() / 2 - (alpha * own).sum() / (2 * problem.eta)
            return quadratic - (problem.labels(duals.dtype, rows) * h).sum()

        value = panels.accumulate((part(rows) for rows in blocks(*duals.shape)), over)
        if not is_tracked:
            return value
        slope_degree = -slope_r / (problem.lambda1 * degrees.square())
        alpha = r.unsqueeze(1) * duals if solution is None else filled(solution.alpha, duals, duals.dtype)
    # One bilinear form in K carries the whole gradient: -a'(dK)a/(2 eta) and the slope times d(K1).
    left = torch.cat([alpha / (-2 * problem.eta), slope_degree.unsqueeze(1)], dim=1)
    right = torch.cat([alpha, torch.ones_like(slope_degree).unsqueeze(1)], dim=1)
    carrier = gram.tracking(rows).bilinear(left, right)
    return value + (carrier - carrier.detach())
