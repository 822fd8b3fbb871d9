"""LU factors of a linear system, unless it is singular."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_gckm.numerics import one_norm_estimate


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
