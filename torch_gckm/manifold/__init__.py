"""Geometry of the Stiefel manifold on thin matrices."""

from torch_gckm.manifold.stiefel import (
    SkewFactors,
    assert_on_stiefel,
    cayley_fixed_point,
    cayley_step,
    is_on_stiefel,
    orthogonality_error,
    random_stiefel,
)
from torch_gckm.panels import orthonormalize

__all__ = [
    "SkewFactors", "assert_on_stiefel", "cayley_fixed_point", "cayley_step", "is_on_stiefel", "orthogonality_error",
    "orthonormalize", "random_stiefel"
]  # fmt: skip
