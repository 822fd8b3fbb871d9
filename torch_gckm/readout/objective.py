r"""The dual objective of the readout and its gradient."""

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.gram import Gram
from torch_gckm.kernels import Rows
from torch_gckm.readout.problem import ReadoutProblem, ReadoutSolution


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
    undefined = ~duals.isfinite().all(dim=1)
    if panels.holds_somewhere(undefined):
        raise InvalidInputError(
            f"the dual variables of node {panels.first(undefined)} are not defined because r is zero there; "
            "change lambda1 or lambda2 slightly to fine-tune"
        )
    with torch.no_grad():
        if solution is not None:
            degrees, product = solution.degrees.to(duals), solution.product().to(duals)
            r, alpha = solution.r.to(duals), solution.alpha.to(duals)
        else:
            degrees = gram.degrees()
            r = problem.r(degrees)
            alpha = r.unsqueeze(1) * duals
            product = gram.matmul(alpha)
        sq_norm = duals.square().sum(dim=1)
        value = panels.total(r * sq_norm) / 2 - panels.total(problem.labels(duals.dtype) * duals)
        value -= panels.total(alpha * product) / (2 * problem.eta)
        slope_r = sq_norm / 2 - (duals * product).sum(dim=1) / problem.eta
        slope_degree = -slope_r / (problem.lambda1 * degrees.square())
    # One bilinear form in K carries the whole gradient: -a'(dK)a/(2 eta) and the slope times d(K1).
    left = torch.cat([alpha / (-2 * problem.eta), slope_degree.unsqueeze(1)], dim=1)
    right = torch.cat([alpha, torch.ones_like(slope_degree).unsqueeze(1)], dim=1)
    carrier = gram.tracking(rows).bilinear(left, right)
    return value + (carrier - carrier.detach())
