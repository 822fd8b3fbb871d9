"""Adam on the Stiefel manifold by the Cayley transform."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.manifold import (
    SkewFactors,
    StiefelParameter,
    assert_on_stiefel,
    cayley_fixed_point,
    cayley_step,
    orthonormalize,
)
from torch_gckm.partition import WHOLE, Partition

_ADAM_LR = 1e-3
_KEPT = ("_own_defaults", "_over", "_stiefel_lr", "_has_lr")  # In copies and pickles.


class CayleyAdam(torch.optim.Adam):
    r"""Adam that keeps the columns of parameters on the Stiefel manifold orthonormal, :math:`X'X = I`.

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
    :math:`n \times n` matrix exists. All other parameters are stepped by :class:`torch.optim.Adam`.

    Which are on the manifold: every :class:`~torch_gckm.manifold.StiefelParameter`, such as the embedding of a
    :class:`~torch_gckm.GCKMConv`, fitted or not. They make a group of their own, after the one that they were in, with
    the learning rate ``stiefel_lr``. A group that says ``stiefel`` itself is taken as it is, whatever is in it:

    .. code-block:: python

        optimizer = CayleyAdam(model.parameters(), lr=0.01, weight_decay=5e-4)
        optimizer = CayleyAdam([
            {"params": [basis], "stiefel": True, "lr": 1.0},
            {"params": encoder.parameters()},
        ], lr=0.01)

    A learning rate on the manifold is a length: a step moves :math:`X`, whose norm is :math:`\sqrt s`, by about
    :math:`\textrm{lr}`, and at most by :math:`1 / \|W\|_1`. That of Adam is the change of every entry.

    ``weight_decay`` and ``amsgrad`` have no meaning for Stiefel groups (:math:`\|X\|_F` is constant, :math:`v` is a
    scalar) and are ignored there.

    Args:
        params: Parameters or groups, as for :class:`torch.optim.Adam`.
        lr: The learning rate, 1e-3 by default; of groups with ``stiefel=True``, too, if it is given.
        betas: Decay rates of the two running averages.
        eps: Keeps denominators away from zero.
        weight_decay: L2 penalty of the other groups.
        amsgrad: The AMSGrad variant, for the other groups.
        stiefel: All parameters lie on the manifold, of whatever class, but for groups that say otherwise.
        stiefel_lr: The learning rate of parameters that are known by their class, and of groups with ``stiefel=True``
            where there is no other.
        transform: ``"exact"``, or ``"fixed_point"`` for the paper's iteration.
        iterations: The number of fixed-point iterations.
        cleanup: Remove accumulated rounding, :math:`X (X'X)^{-1/2}`, every so many steps (0: never).
        over: Which rows of the Stiefel parameters this process has, if they are spread over several.
        **kwargs: Further arguments of :class:`torch.optim.Adam`.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        stiefel: bool = False,
        stiefel_lr: float = 0.1,
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
        if not stiefel_lr >= 0:
            raise InvalidInputError(f"'stiefel_lr' must not be negative, got {stiefel_lr}")
        own = {"stiefel": stiefel, "transform": transform, "iterations": iterations, "cleanup": cleanup}
        self._own_defaults, self._over = own, over
        self._stiefel_lr, self._has_lr = stiefel_lr, lr is not None
        super().__init__(params, _ADAM_LR if lr is None else lr, betas, eps, weight_decay, amsgrad, **kwargs)
        self.defaults.update(own)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, or two if some of its parameters are on the manifold; these must be orthonormal."""
        params = param_group["params"]
        if "stiefel" in param_group or self._own_defaults["stiefel"] or isinstance(params, set):  # Adam refuses sets.
            self._add(param_group)
            return
        entries = [params] if isinstance(params, Tensor) else list(params)
        tagged = [entry for entry in entries if _is_tagged(entry)]
        rest = [entry for entry in entries if not _is_tagged(entry)]
        if rest or not tagged:
            self._add({**param_group, "params": rest})
        if tagged:
            self._add({"lr": self._stiefel_lr, **param_group, "params": tagged, "stiefel": True})

    def _add(self, param_group: dict[str, Any]) -> None:
        for key, value in self._own_defaults.items():
            param_group.setdefault(key, value)
        if param_group["stiefel"] and not self._has_lr:
            param_group.setdefault("lr", self._stiefel_lr)
        super().add_param_group(param_group)
        if param_group["stiefel"]:
            for parameter in param_group["params"]:
                if parameter.numel() > 0:  # The embedding of a layer that is not fitted yet is looked at later.
                    assert_on_stiefel(parameter, over=self._over)

    def state_over_rows(self) -> set[tuple[int, str]]:
        """Which entries of the state have the rows of a Stiefel parameter: its number in the state dict, their name."""
        groups = self.state_dict()["param_groups"]
        return {(number, "exp_avg") for group in groups if group["stiefel"] for number in group["params"]}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in _KEPT}}

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
        if not state or state["exp_avg"].shape != x.shape:  # The layer was fitted, or fitted to another graph.
            assert_on_stiefel(x, over=over)
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
    """Parameter groups for :class:`CayleyAdam`, to give those on the manifold options of their own.

    A module may name plain Parameters that are on the manifold in the class attribute ``stiefel_parameters``.

    Args:
        model: Any module, with or without such parameters.
        **stiefel_options: Options of the Stiefel group alone, such as ``lr=1.0``.

    Returns:
        A group with ``stiefel=True``, then one with ``stiefel=False``; empty groups are left out.
    """
    named = (getattr(part, name) for part in model.modules() for name in getattr(part, "stiefel_parameters", ()))
    marked = {id(parameter) for parameter in named}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    on_manifold = [parameter for parameter in trained if _is_tagged(parameter) or id(parameter) in marked]
    found = {id(parameter) for parameter in on_manifold}
    rest = [parameter for parameter in trained if id(parameter) not in found]
    groups = [{"params": on_manifold, "stiefel": True, **stiefel_options}, {"params": rest, "stiefel": False}]
    return [group for group in groups if group["params"]]


def _is_tagged(entry: Any) -> bool:
    """Whether a parameter, or the parameter of a pair with its name, is on the manifold."""
    return isinstance(entry[1] if isinstance(entry, tuple) else entry, StiefelParameter)
