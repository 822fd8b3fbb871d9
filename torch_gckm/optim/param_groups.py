"""Sort a model's parameters into those on the Stiefel manifold and the rest."""

from typing import Any

import torch


def param_groups(model: torch.nn.Module, **stiefel_options: Any) -> list[dict[str, Any]]:
    """Parameter groups for :class:`CayleyAdam`, with the Stiefel parameters marked.

    A module names its Stiefel parameters in the class attribute
    ``stiefel_parameters``, as :class:`~torch_gckm.nn.GCKMConv` does.

    Args:
        model: Any module, with or without such layers.
        **stiefel_options: Options of the Stiefel group alone, such as ``lr=1.0``.

    Returns:
        A group with ``stiefel=True``, then one with ``stiefel=False``; empty groups are left out.
    """
    on_manifold = [
        getattr(module, name) for module in model.modules() for name in getattr(module, "stiefel_parameters", ())
    ]
    marked = {id(parameter) for parameter in on_manifold}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in marked]
    on_manifold = [p for p in on_manifold if p.requires_grad]
    groups = [
        {"params": on_manifold, "stiefel": True, **stiefel_options},
        {"params": rest, "stiefel": False},
    ]
    return [group for group in groups if group["params"]]
