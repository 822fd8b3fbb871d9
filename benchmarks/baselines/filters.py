r"""Networks that filter a perceptron's outputs by a polynomial of the graph: APPNP, GPR-GNN, BernNet, ChebNetII.

All of them compute :math:`\sum_k w_k B_k z` with :math:`z` the outputs of a perceptron and
:math:`B_k` polynomials of degree :math:`k` of the normalised adjacency matrix :math:`P`. They differ in
the basis and in how the weights come from parameters :math:`\theta`:

=========  ====================================  =====================================================
APPNP      powers of :math:`P` with self-loops   fixed: :math:`\alpha (1 - \alpha)^k`, the rest at the last
GPR-GNN    powers of :math:`P` with self-loops   :math:`w = \theta`, which starts as APPNP's
BernNet    Chebyshev in :math:`-P`               those of :math:`\sum_k \theta_k^+ b_{k,K}(L / 2)`, Bernstein's
ChebNetII  Chebyshev in :math:`-P`               those of the interpolant of :math:`\theta_j^+` at Chebyshev's nodes
=========  ====================================  =====================================================

With :math:`L = I - P` the Laplacian, its eigenvalues less 1 are those of :math:`-P`, in :math:`[-1, 1]`. BernNet
is written by its authors as a sum of products of powers of :math:`L` and :math:`2 I - L`, which takes
:math:`O(K^2)` products; the same polynomial in Chebyshev's basis takes :math:`K`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import dropout
from torch_geometric.nn import Linear

from baselines.sparse import SparseLinear, SparseMatrix


def pagerank_weights(order: int, alpha: float) -> Tensor:
    """The weights of APPNP."""
    weights = alpha * (1.0 - alpha) ** torch.arange(order + 1.0)
    weights[-1] = (1.0 - alpha) ** order
    return weights


def interpolation(order: int) -> Tensor:
    """The Chebyshev coefficients, as a matrix, of the polynomial through given values at Chebyshev's nodes."""
    nodes = np.cos((np.arange(order + 1) + 0.5) * math.pi / (order + 1))
    matrix = 2.0 / (order + 1) * np.polynomial.chebyshev.chebvander(nodes, order).T
    matrix[0] /= 2.0
    return torch.from_numpy(matrix).float()


def bernstein(order: int) -> Tensor:
    """The Chebyshev coefficients, as a matrix, of Bernstein's polynomials of ``(x + 1) / 2``."""
    columns = []
    for k in range(order + 1):
        up = np.polynomial.polynomial.polypow([0.5, 0.5], k)
        down = np.polynomial.polynomial.polypow([0.5, -0.5], order - k)
        product = math.comb(order, k) * np.polynomial.polynomial.polymul(up, down)
        columns.append(np.pad(np.polynomial.chebyshev.poly2cheb(product), (0, order + 1))[: order + 1])
    return torch.from_numpy(np.stack(columns, axis=1)).float()


class PolynomialFilter(torch.nn.Module):
    """A polynomial of a matrix, with weights that may be learned.

    Args:
        matrix: The normalised adjacency matrix.
        weights: The weights to begin with.
        mix: Turns parameters, cut off at zero, into weights of Chebyshev's polynomials of minus the matrix; if
            omitted, the weights are those of its powers.
        learned: Whether weights are parameters.
    """

    def __init__(self, matrix: SparseMatrix, weights: Tensor, mix: Tensor | None = None, learned: bool = True) -> None:
        super().__init__()
        self.matrix = matrix
        self.theta = torch.nn.Parameter(weights, requires_grad=learned)
        self.register_buffer("mix", mix)

    matrix: Any
    mix: Tensor | None

    def forward(self, z: Tensor) -> Tensor:
        if self.mix is None:
            result = self.theta[0] * z
            for weight in self.theta[1:]:
                z = self.matrix @ z
                result = result + weight * z
            return result
        weights = self.mix @ self.theta.relu()
        before, now = z, -(self.matrix @ z)
        result = weights[0] * before + weights[1] * now
        for weight in weights[2:]:
            before, now = now, -2.0 * (self.matrix @ now) - before
            result = result + weight * now
        return result


class FilterNetwork(torch.nn.Module):
    """A perceptron and a filter of its outputs.

    Args:
        channels: The numbers of features, hidden units and classes.
        drop: The shares of features and of hidden units that are dropped.
        smooth: The filter.
    """

    def __init__(self, channels: tuple[int, int, int], drop: tuple[float, float], smooth: torch.nn.Module) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([SparseLinear(*channels[:2]), Linear(*channels[1:])])
        self.drop, self.smooth = drop, smooth

    def forward(self, x: SparseMatrix) -> Tensor:
        hidden = self.layers[0](x.drop(self.drop[0], self.training)).relu()
        result: Tensor = self.smooth(self.layers[1](dropout(hidden, self.drop[1], self.training)))
        return result
