"""Kernels of the inner product: linear, polynomial and their normalised forms."""

from typing import Any

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError, ZeroRowError
from torch_gckm.kernels.features import Features
from torch_gckm.kernels.kernel import LeafKernel, Tunable


class Linear(LeafKernel):
    r"""The inner product :math:`k(x, y) = x'y`."""

    def _evaluate(self, a: Features, b: Features) -> Tensor:
        return a.dot(b)

    def _diagonal(self, a: Features) -> Tensor:
        return a.sq_norm()


class Polynomial(LeafKernel):
    r"""The polynomial kernel :math:`k(x, y) = (x'y + t^2)^p`.

    Args:
        degree: The degree :math:`p`, a positive integer.
        t: The root :math:`t` of the constant term, or ``"auto"`` for the root mean squared norm of the features.
        learnable: Make :math:`t` a parameter (stored as its logarithm).
        scale: Multiplies an automatic :math:`t`.
    """

    def __init__(self, degree: int = 2, t: Tunable = 1.0, learnable: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        if degree != int(degree) or degree < 1:
            raise InvalidInputError(f"'degree' of {type(self).__name__} must be a positive integer, got {degree!r}")
        self.degree = int(degree)
        self._hyperparameter("t", t, learnable, scale)

    def arguments(self) -> dict[str, Any]:
        return {"degree": self.degree, **super().arguments()}

    def fit_view(self, a: Features) -> None:
        # As for bandwidths: a learned value is only started automatically.
        if not self.automatic or (self.learnable and self.is_fitted):
            return
        mean = panels.mean(a.detach().sq_norm().double(), a.partition)
        if not float(mean) > 0.0:
            raise InvalidInputError(f"'t' of {type(self).__name__} cannot be chosen automatically: all rows are zero")
        self._set_positive("t", self.scale * mean.sqrt())

    def _evaluate(self, a: Features, b: Features) -> Tensor:
        return (a.dot(b) + self._positive("t").square()).pow(self.degree)

    def _diagonal(self, a: Features) -> Tensor:
        return (a.sq_norm() + self._positive("t").square()).pow(self.degree)


class NormalizedPolynomial(Polynomial):
    r""":class:`Polynomial`, scaled to unit self-similarity: :math:`k(x, y) / \sqrt{k(x, x) k(y, y)}`."""

    def _evaluate(self, a: Features, b: Features) -> Tensor:
        t2 = self._positive("t").square()
        scale_a, scale_b = (a.sq_norm() + t2).rsqrt(), (b.sq_norm() + t2).rsqrt()
        # Scaling before the power keeps every factor in [-1, 1]: no overflow at high degrees.
        return ((a.dot(b) + t2) * scale_a.unsqueeze(1) * scale_b).pow(self.degree)

    def _diagonal(self, a: Features) -> Tensor:
        return torch.ones(a.num_rows, dtype=a.dtype, device=a.device)


class Cosine(LeafKernel):
    r"""The cosine of the angle, :math:`k(x, y) = x'y / (\|x\| \|y\|)`. Rows of zeros are refused."""

    def _evaluate(self, a: Features, b: Features) -> Tensor:
        return a.dot(b) * _inverse_norm(a).unsqueeze(1) * _inverse_norm(b)

    def _diagonal(self, a: Features) -> Tensor:
        _inverse_norm(a)
        return torch.ones(a.num_rows, dtype=a.dtype, device=a.device)


def _inverse_norm(a: Features) -> Tensor:
    squared = a.sq_norm()
    zero = squared == 0
    if panels.holds_somewhere(zero):
        raise ZeroRowError(
            f"the cosine kernel has no value for {panels.count(zero)} rows of zeros (first: row "
            f"{panels.first(zero)}); drop these nodes, add a constant feature or use NormalizedPolynomial"
        )
    return squared.rsqrt()
