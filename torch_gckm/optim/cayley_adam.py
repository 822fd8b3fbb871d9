"""Adam on the Stiefel manifold by the Cayley transform."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.manifold import SkewFactors, assert_on_stiefel, cayley_fixed_point, cayley_step, orthonormalize
from torch_gckm.partition import WHOLE, Partition


class CayleyAdam(torch.optim.Adam):
    r"""Adam whose groups with ``stiefel=True`` keep :math:`X'X = I`.

    From the `"Efficient Riemannian Optimization on the Stiefel Manifold via the Cayley Transform"
    <https://arxiv.org/abs/2002.01113>`_ paper. For a parameter :math:`X`, ``[n, s]``, with gradient :math:`G`:

    .. math::
        M &\leftarrow \beta_1 M + (1 - \beta_1) G, \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2) \|G\|_F^2 \\
        \rho &= (1 - \beta_1^k) \sqrt{v / (1 - \beta_2^k) + \epsilon} \\
        P &= M - \tfrac12 X (X'M), \qquad W = (P X' - X P') / \rho \\
        \alpha &= \min(\textrm{lr}, 1 / (\|W\|_1 + \epsilon)) \\
        X &\leftarrow (I + \tfrac{\alpha}{2} W)^{-1} (I - \tfrac{\alpha}{2} W) X

    The transform is exact: :math:`W` has rank :math:`2s`, so a step costs :math:`O(n s^2)` and no
    :math:`n \times n` matrix exists. All other groups are stepped by :class:`torch.optim.Adam`.

    .. code-block:: python

        optimizer = CayleyAdam([
            {"params": [conv.h], "stiefel": True, "lr": 1.0},
            {"params": encoder.parameters()},
        ], lr=0.01)

    ``weight_decay`` and ``amsgrad`` have no meaning for Stiefel groups (:math:`\|X\|_F` is constant, :math:`v` is a
    scalar) and are ignored there.

    Args:
        params: Parameters or groups, as for :class:`torch.optim.Adam`.
        lr: The learning rate; the largest step along the curve for Stiefel groups.
        betas: Decay rates of the two running averages.
        eps: Keeps denominators away from zero.
        weight_decay: L2 penalty of the other groups.
        amsgrad: The AMSGrad variant, for the other groups.
        stiefel: Whether groups lie on the manifold unless they say otherwise.
        transform: ``"exact"``, or ``"fixed_point"`` for the paper's iteration.
        iterations: The number of fixed-point iterations.
        cleanup: Remove accumulated rounding, :math:`X (X'X)^{-1/2}`, every so many steps (0: never).
        over: Which rows of the Stiefel parameters this process has, if they are spread over several.
        **kwargs: Further arguments of :class:`torch.optim.Adam`.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        stiefel: bool = False,
        transform: Literal["exact", "fixed_point"] = "exact",
        iterations: int = 5,
        cleanup: int = 20,
        over: Partition = WHOLE,
        **kwargs: Any,
    ) -> None:
        if transform not in ("exact", "fixed_point"):
            raise InvalidInputError(f"'transform' must be 'exact' or 'fixed_point', got {transform!r}")
        if iterations < 1 or cleanup < 0:
            raise InvalidInputError("'iterations' must be positive and 'cleanup' not negative")
        own = {"stiefel": stiefel, "transform": transform, "iterations": iterations, "cleanup": cleanup}
        self._own_defaults, self._over = own, over
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **kwargs)
        self.defaults.update(own)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; the points of a Stiefel group must lie on the manifold."""
        for key, value in self._own_defaults.items():
            param_group.setdefault(key, value)
        super().add_param_group(param_group)
        if param_group["stiefel"]:
            for parameter in param_group["params"]:
                assert_on_stiefel(parameter, over=self._over)

    def state_over_rows(self) -> set[tuple[int, str]]:
        """Which entries of the state have the rows of a Stiefel parameter: its number in the state dict, their name."""
        groups = self.state_dict()["param_groups"]
        return {(number, "exp_avg") for group in groups if group["stiefel"] for number in group["params"]}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_own_defaults": self._own_defaults, "_over": self._over}

    def _init_group(self, group: dict[str, Any], *collected: list[Tensor]) -> bool:
        """Collect what Adam is to step: nothing of a Stiefel group, which is stepped here."""
        if not group["stiefel"]:
            return super()._init_group(group, *collected)
        for parameter in group["params"]:
            if parameter.grad is not None:
                self._stiefel_step(parameter, group)
        return False

    @torch.no_grad()
    def _stiefel_step(self, x: Tensor, group: dict[str, Any]) -> None:
        assert x.grad is not None
        gradient, over = -x.grad if group["maximize"] else x.grad, self._over
        energy = panels.total(gradient.square(), over)
        if not bool(energy.isfinite()):
            largest = float(panels.largest(gradient.abs(), over))
            raise InvalidInputError(
                f"a gradient of a Stiefel parameter is not a number, or too large to be squared (largest entry "
                f"{largest:.3g}); the parameter is left as it was: rescale the loss"
            )
        state = self.state[x]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(x)
            # In the parameter's precision, to which load_state_dict would cast it anyway.
            state["exp_avg_sq"] = x.new_zeros(())
        state["step"] += 1
        k, (beta1, beta2), eps = int(state["step"]), group["betas"], group["eps"]

        momentum = state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        second = state["exp_avg_sq"].mul_(beta2).add_(energy, alpha=1 - beta2)
        rho = (1 - beta1**k) * (second / (1 - beta2**k) + eps).sqrt()

        w = SkewFactors(momentum - 0.5 * (x @ panels.cross(x, momentum, over)), x, rho, over)
        alpha = torch.clamp(1.0 / (w.one_norm() + eps), max=float(group["lr"]))
        if group["transform"] == "exact":
            y = cayley_step(w, alpha)
        else:
            y = cayley_fixed_point(w, alpha, group["iterations"])
        momentum.copy_(w.tangent())  # At the old point.
        x.copy_(orthonormalize(y, over) if group["cleanup"] and k % group["cleanup"] == 0 else y)


def param_groups(model: torch.nn.Module, **stiefel_options: Any) -> list[dict[str, Any]]:
    """Parameter groups for :class:`CayleyAdam`, with the Stiefel parameters marked.

    A module names its Stiefel parameters in the class attribute ``stiefel_parameters``, as
    :class:`~torch_gckm.nn.GCKMConv` does.

    Args:
        model: Any module, with or without such layers.
        **stiefel_options: Options of the Stiefel group alone, such as ``lr=1.0``.

    Returns:
        A group with ``stiefel=True``, then one with ``stiefel=False``; empty groups are left out.
    """
    names = [(module, name) for module in model.modules() for name in getattr(module, "stiefel_parameters", ())]
    on_manifold = [p for p in (getattr(module, name) for module, name in names) if p.requires_grad]
    marked = {id(p) for p in on_manifold}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in marked]
    groups = [{"params": on_manifold, "stiefel": True, **stiefel_options}, {"params": rest, "stiefel": False}]
    return [group for group in groups if group["params"]]
