r"""The walk kernel of graph convolutional kernel networks (GCKN) between nodes, exactly.

Two walks are compared node by node, and two nodes by the mean over all pairs of walks that start there:

.. math::
    W_0(u, v) = \kappa(u, v), \qquad
    W_k(u, v) = \kappa(u, v) \, \mathrm{mean}_{u' \sim u, v' \sim v} W_{k-1}(u', v'), \qquad
    \kappa(u, v) = e^{\alpha (\cos(x_u, x_v) - 1)}

and :math:`K = W_0 + \dots + W_k`. GCKN approximates such kernels by features of anchor points, since it needs them
between all graphs of a data set; few labels need so few columns that these can be computed as they are. Paths, which
visit no node twice, would have to be listed one by one, a node's degree squared of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch_geometric.data import Data
from torch_geometric.utils import to_scipy_sparse_matrix

ALPHAS = (0.5, 2.0, 8.0)
LENGTHS = (1, 2)


def walk_columns(data: Data, nodes: Tensor) -> Iterator[tuple[dict[str, float], np.ndarray]]:
    """Kernel columns of some nodes, by setting."""
    steps = transitions(data)
    reached = [nodes.numpy()]  # Where walks of 0, 1, 2 steps from these nodes may be.
    for _ in range(max(LENGTHS)):
        reached.append(np.union1d(reached[0], steps[reached[-1]].indices))
    x = normalize(data.x.to_dense(), dim=1)
    cosine = (x @ x[torch.from_numpy(reached[-1])].t()).numpy()
    for alpha in ALPHAS:
        own = np.exp(alpha * (cosine - 1.0))
        for length in LENGTHS:
            yield {"alpha": alpha, "length": length}, _columns(own, steps, reached, length)


def transitions(data: Data) -> scipy.sparse.csr_matrix:
    """The matrix that takes the mean over neighbours; a row of zeros for a node without any."""
    weights = scipy.sparse.csr_matrix(to_scipy_sparse_matrix(data.edge_index, data.edge_weight, data.num_nodes))
    degree = np.asarray(weights.sum(axis=1)).ravel()
    inverse = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    return scipy.sparse.csr_matrix(scipy.sparse.diags(inverse) @ weights).astype(np.float32)


def _columns(own: np.ndarray, steps: scipy.sparse.csr_matrix, reached: list[np.ndarray], length: int) -> np.ndarray:
    """The sum of the walk kernels up to a length, at the first of the sets of nodes."""
    at = [np.searchsorted(reached[-1], part) for part in reached]
    total = own[:, at[0]].astype(np.float64)
    for steps_taken in range(1, length + 1):
        walks = own[:, at[steps_taken]]
        for number in range(steps_taken - 1, -1, -1):
            to = steps[reached[number]][:, reached[number + 1]]
            walks = own[:, at[number]] * (steps @ (to @ walks.T).T)
        total += walks
    return total
