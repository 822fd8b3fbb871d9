"""Optimisers for parameters on the Stiefel manifold."""

from torch_gckm.optim.cayley_adam import CayleyAdam, param_groups

__all__ = ["CayleyAdam", "param_groups"]
