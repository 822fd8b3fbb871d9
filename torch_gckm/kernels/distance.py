"""Kernels of the Euclidean distance: RBF, Laplacian and Matern."""

import math
from typing import Any

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels.features import DEFAULT_VIEW, Features
from torch_gckm.kernels.kernel import LeafKernel, Tunable

_ROUNDING = 1e-14  # What double precision leaves of the variance of equal rows, relative to their squared norm.


def squared_distance(a: Features, b: Features) -> Tensor:
    """Squared Euclidean distances ``[n, m]`` from inner products and squared norms.

    A row's to itself is exactly zero: a kink at the origin would turn rounding of size ``eps`` into ``sqrt(eps)``.
    Features far from the origin are moved there first, since small distances are lost in the rounding of large norms.
    """
    same = a.shared_entries(b)
    offset = (a if a.num_rows >= b.num_rows else b).offset()
    if offset is not None:
        near_a, near_b = a.shifted(offset), b.shifted(offset)
        if near_a is not None and near_b is not None:
            a, b = near_a, near_b
    distance = a.sq_distance(b)
    with torch.no_grad():  # The gradient of a squared distance vanishes where the distance does.
        distance.clamp_(min=0.0)
        if same is not None:
            distance[same] = 0.0
    return distance


def total_variance(a: Features) -> Tensor:
    """The number of columns times their mean variance: half the mean squared distance of two rows."""
    wide = (a.block(block).to(torch.float64).view(DEFAULT_VIEW) for block in a.blocks(1))
    # The sum of squared norms, and the sum of the rows.
    parts = (torch.cat([part.sq_norm().sum().view(1), part.row_sum()]) for part in wide)
    sums = panels.accumulate(parts, a.partition)
    energy = sums[0] / a.num_nodes
    variance = energy - (sums[1:] / a.num_nodes).square().sum()
    return torch.where(variance > _ROUNDING * energy, variance, 0.0)


class DistanceKernel(LeafKernel):
    """A kernel that depends on the squared distance alone; every row has unit self-similarity."""

    bandwidth: str  # The name of the hyperparameter that scales the distance.

    def __init__(self, value: Tunable, learnable: bool, scale: float) -> None:
        super().__init__()
        self._hyperparameter(self.bandwidth, value, learnable, scale)

    def profile(self, squared: Tensor) -> Tensor:
        """The kernel as a function of the squared distance; may work in place."""
        raise NotImplementedError

    def automatic_bandwidth(self, variance: Tensor) -> Tensor:
        """The bandwidth for features with this total variance."""
        return variance.sqrt()

    def fit_view(self, a: Features) -> None:
        # A learned bandwidth is only started automatically; later fits must not undo the learning.
        if not self.automatic or (self.learnable and self.is_fitted):
            return
        variance = total_variance(a.detach())
        if not float(variance) > 0.0:
            what = f"'{self.bandwidth}' of {type(self).__name__}"
            raise InvalidInputError(f"{what} cannot be chosen automatically: all rows are the same; give a number")
        self._set_positive(self.bandwidth, self.scale * self.automatic_bandwidth(variance))

    def _evaluate(self, a: Features, b: Features) -> Tensor:
        return self.profile(squared_distance(a, b))

    def _diagonal(self, a: Features) -> Tensor:
        return torch.ones(a.num_rows, dtype=a.dtype, device=a.device)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        if self.automatic and self.is_fitted:
            text = text.replace("'auto'", f"auto={self._number(self.bandwidth):.4g}")
        return text


class RBF(DistanceKernel):
    r"""The Gaussian kernel :math:`k(x, y) = \exp(-\|x - y\|^2 / (2 \sigma^2))`.

    Args:
        sigma2: The squared bandwidth :math:`\sigma^2`, or ``"auto"`` for :math:`m` times the variance of the features,
            :math:`m` being their number (set when a layer is fitted).
        learnable: Make the bandwidth a parameter (stored as its logarithm).
        scale: Multiplies an automatic bandwidth; a choice that carries over to other data.
    """

    bandwidth = "sigma2"

    def __init__(self, sigma2: Tunable = "auto", learnable: bool = False, scale: float = 1.0) -> None:
        super().__init__(sigma2, learnable, scale)

    def profile(self, squared: Tensor) -> Tensor:
        return squared.mul_(-0.5 / self._positive("sigma2")).exp_()

    def automatic_bandwidth(self, variance: Tensor) -> Tensor:
        return variance


class Laplacian(DistanceKernel):
    r"""The exponential kernel :math:`k(x, y) = \exp(-\|x - y\| / \sigma)` of the Euclidean distance.

    Args:
        sigma: The bandwidth, or ``"auto"`` for the square root of what :class:`RBF` takes.
        learnable, scale: As for :class:`RBF`.
    """

    bandwidth = "sigma"

    def __init__(self, sigma: Tunable = "auto", learnable: bool = False, scale: float = 1.0) -> None:
        super().__init__(sigma, learnable, scale)

    def profile(self, squared: Tensor) -> Tensor:
        return (_root(squared) * (-1.0 / self._positive("sigma"))).exp_()


class Matern(DistanceKernel):
    r"""The Matern kernel, between :class:`Laplacian` (:math:`\nu = 1/2`) and :class:`RBF` in smoothness.

    With :math:`t = \sqrt{2 \nu} \|x - y\| / \sigma`, it is :math:`e^{-t}`, :math:`(1 + t) e^{-t}` or
    :math:`(1 + t + t^2/3) e^{-t}`.

    Args:
        nu: The smoothness: 0.5, 1.5 or 2.5.
        sigma, learnable, scale: As for :class:`Laplacian`.
    """

    bandwidth = "sigma"

    def __init__(self, nu: float = 1.5, sigma: Tunable = "auto", learnable: bool = False, scale: float = 1.0) -> None:
        if nu not in (0.5, 1.5, 2.5):
            raise InvalidInputError(f"'nu' of Matern must be 0.5, 1.5 or 2.5, got {nu!r}")
        super().__init__(sigma, learnable, scale)
        self.nu = nu

    def profile(self, squared: Tensor) -> Tensor:
        t = _root(squared) * (math.sqrt(2.0 * self.nu) / self._positive("sigma"))
        decay = torch.exp(-t)
        if self.nu == 0.5:
            return decay
        return (1.0 + t) * decay if self.nu == 1.5 else (1.0 + t + t.square() / 3.0) * decay

    def arguments(self) -> dict[str, Any]:
        return {"nu": self.nu, **super().arguments()}


def _root(squared: Tensor) -> Tensor:
    # The slope of the root at zero is infinite; clamping stops it there, where the distance is constant.
    return squared.clamp(min=torch.finfo(squared.dtype).tiny).sqrt()
