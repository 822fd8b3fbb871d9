r"""The Stiefel manifold of thin matrices, :math:`X \in \mathbb{R}^{n \times s}` with :math:`X'X = I`."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import row_dots
from torch_gckm.errors import InvalidInputError
from torch_gckm.panels import one_norm_estimate, orthonormalize
from torch_gckm.partition import WHOLE, Partition

__all__ = [
    "SkewFactors", "StiefelParameter", "assert_on_stiefel", "cayley_fixed_point", "cayley_step", "is_on_stiefel",
    "orthogonality_error", "orthonormalize", "random_stiefel"
]  # fmt: skip


class StiefelParameter(torch.nn.Parameter):
    """A Parameter with orthonormal columns, which :class:`~torch_gckm.optim.CayleyAdam` knows by its class.

    .. code-block:: python

        self.basis = StiefelParameter(random_stiefel(100, 4))

    Attributes of a plain Parameter are lost in copies, its class is not; pickles need the method below. Of a module of
    your own, ``load_state_dict(assign=True)`` puts a plain Parameter in its place.
    """

    def __reduce_ex__(self, protocol: Any) -> tuple[type["StiefelParameter"], tuple[Tensor, bool]]:
        return StiefelParameter, (self.data, self.requires_grad)

    def __repr__(self) -> str:  # type: ignore[override]  # As that of Parameter.
        return f"StiefelParameter containing:\n{self.data!r}"


def orthogonality_error(x: Tensor, over: Partition = WHOLE) -> Tensor:
    r"""The largest entry of :math:`|X'X - I|`."""
    gram = panels.double_gram(x.detach(), over)
    return (gram - torch.eye(x.size(1), dtype=gram.dtype, device=x.device)).abs().max()


def is_on_stiefel(x: Tensor, atol: float = 1e-4, over: Partition = WHOLE) -> bool:
    """Whether the columns of ``x`` are orthonormal up to ``atol``."""
    return x.dim() == 2 and over.all_rows(x.size(0)) >= x.size(1) > 0 and bool(orthogonality_error(x, over) <= atol)


def assert_on_stiefel(x: Tensor, atol: float = 1e-4, over: Partition = WHOLE) -> None:
    """Raise unless the columns of ``x`` are orthonormal up to ``atol``."""
    if x.dim() != 2 or not over.all_rows(x.size(0)) >= x.size(1) > 0:
        raise InvalidInputError(f"a Stiefel parameter is a tall matrix [n, s] with n >= s, got shape {tuple(x.shape)}")
    error = float(orthogonality_error(x, over))
    if not error <= atol:
        raise InvalidInputError(f"columns are not orthonormal: |X'X - I| = {error:.3g} exceeds {atol:.3g}")


def random_stiefel(
    num_rows: int,
    num_columns: int,
    *,
    seed: int = 0,
    centred: bool = False,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    over: Partition = WHOLE,
) -> Tensor:
    """A uniformly distributed matrix with orthonormal columns, ``[num_rows, num_columns]``.

    There are at most as many columns as rows, one less if they are ``centred`` to sum to zero. Over several processes,
    these are the rows of this one.
    """
    if not 0 < num_columns <= over.all_rows(num_rows) - centred:
        raise InvalidInputError(f"{num_columns} orthonormal columns do not fit into {over.all_rows(num_rows)} rows")
    x = panels.random_normal(num_rows, num_columns, seed, over)
    if centred:
        x = panels.centred(x, over)
    return orthonormalize(x, over).to(dtype=dtype or torch.get_default_dtype(), device=device)


class SkewFactors:
    r"""The skew-symmetric matrix :math:`W = (P X' - X P') / \rho`, held as its factors of rank :math:`2s`."""

    def __init__(self, p: Tensor, x: Tensor, rho: Tensor, over: Partition = WHOLE) -> None:
        self.p, self.x, self.rho, self.over = p, x, rho, over

    @cached_property
    def products(self) -> tuple[Tensor, Tensor, Tensor]:
        """The inner products ``X'X``, ``X'P`` and ``P'P``, each ``[s, s]``."""
        xx, xp, pp = panels.crosses(((self.x, self.x), (self.x, self.p), (self.p, self.p)), self.over)
        return xx, xp, pp

    def tangent(self) -> Tensor:
        r"""The direction :math:`\rho W X = P X'X - X P'X` at :math:`X`, with orthonormal :math:`X`."""
        return torch.addmm(self.p, self.x, self.products[1].t(), alpha=-1.0)

    def matmul(self, v: Tensor) -> Tensor:
        r""":math:`W v` for a vector or a thin matrix."""
        with_x, with_p = panels.crosses(((self.x, v), (self.p, v)), self.over)
        return (self.p @ with_x - self.x @ with_p) / self.rho

    def one_norm(self) -> Tensor:
        r"""An estimate of :math:`\|W\|_1` from the column of largest norm, whatever the order of the rows."""
        _, xp, pp = self.products
        # The columns are P x_j - X p_j; with X'X = I their norms take two products.
        column_energy = row_dots(self.x, torch.addmm(self.x @ pp, self.p, xp, alpha=-2.0)) + row_dots(self.p, self.p)
        start = self.over.unit(column_energy, panels.place_of_largest(column_energy, self.over))
        return one_norm_estimate(self.matmul, lambda v: -self.matmul(v), start, self.over)


def cayley_step(w: SkewFactors, alpha: Tensor) -> Tensor:
    r"""Move along the Cayley curve :math:`Y = (I + \frac{\alpha}{2} W)^{-1} (I - \frac{\alpha}{2} W) X`.

    With :math:`W = U V'`, :math:`U = [P, X] / \rho` and :math:`V = [X, -P]`, the Woodbury identity leaves one system of
    order :math:`2s`:

    .. math:: Y = X - \alpha U (I + \tfrac{\alpha}{2} V'U)^{-1} V'X

    It costs :math:`O(n s^2)` and is exactly feasible.
    """
    xx, xp, pp = w.products
    inner = torch.cat([torch.cat([xp, xx], dim=1), torch.cat([-pp, -xp.t()], dim=1)]).double()
    scale = (alpha / w.rho).double()
    system = torch.eye(inner.size(0), dtype=inner.dtype, device=inner.device) + 0.5 * scale * inner
    weights = scale * torch.linalg.solve(system, torch.cat([xx, -xp.t()]).double())
    of_p, of_x = weights.to(w.x.dtype).chunk(2)
    return torch.addmm(torch.addmm(w.x, w.p, of_p, alpha=-1.0), w.x, of_x, alpha=-1.0)


def cayley_fixed_point(w: SkewFactors, alpha: Tensor, iterations: int = 5) -> Tensor:
    r"""Approximate the Cayley curve by iterating :math:`Y \leftarrow X - \frac{\alpha}{2} W (X + Y)`."""
    y = w.x - alpha * w.matmul(w.x)
    for _ in range(iterations):
        y = w.x - 0.5 * alpha * w.matmul(w.x + y)
    return y
