"""LU factors of a linear system, unless it is singular, and differentiable solves with them."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torch_gckm.norms import one_norm_estimate


def lu_unless_singular(system: Tensor, smallest_rcond: float) -> tuple[Tensor, Tensor] | None:
    """Factors and pivots, or ``None`` if the estimated condition number exceeds ``1 / smallest_rcond``."""
    factors, pivots, info = torch.linalg.lu_factor_ex(system)
    if int(info) != 0:
        return None
    inverse_norm = one_norm_estimate(
        lambda x: torch.linalg.lu_solve(factors, pivots, x.unsqueeze(1)).squeeze(1),
        lambda x: torch.linalg.lu_solve(factors, pivots, x.unsqueeze(1), adjoint=True).squeeze(1),
        like=system,
    )
    condition = float(inverse_norm * torch.linalg.matrix_norm(system, ord=1))
    return (factors, pivots) if condition * smallest_rcond < 1.0 else None


def solve_with_factors(system: Tensor, factors: tuple[Tensor, Tensor], right: Tensor) -> Tensor:
    """Solve ``system @ x = right`` with factors made before; gradients flow to ``system`` and ``right``."""
    solution: Tensor = _Solve.apply(system, *factors, right)
    return solution


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
