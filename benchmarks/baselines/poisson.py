r"""Poisson learning (Calder, Cook, Thorpe, Slepčev, 2020), made for very few labels.

Labels are sources and sinks: with one-hot labels :math:`y_j`, their mean :math:`\bar y` and the Laplacian :math:`L`,

.. math::
    L u = \sum_j (y_j - \bar y) \, \delta_j, \qquad \sum_i d_i u_i = 0,

and a node has the class with the largest :math:`s_c u_{ic}`, where :math:`s_c = b_c / \bar y_c` for known
shares of classes :math:`b`; with those of the labels, the default, all :math:`s_c` are 1. As its authors do, the
equation is solved by conjugate gradients in the form :math:`D^{-1/2} L D^{-1/2} v = D^{-1/2} f`,
:math:`u = D^{-1/2} v`.

It has a solution on a connected graph. Here every connected component is a problem of its own: the mean is that of its
labels, and only their classes are predicted in it. A component without labels has the class that is predicted most.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import cg
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.neighbours import nearest_rows

NEIGHBOURS, TOLERANCE, STEPS = 10, 1e-6, 1000


def train_poisson(data: Data, graph: sparse.csr_array | None = None, shares: np.ndarray | None = None) -> Tensor:
    """Predicted classes of all nodes.

    Args:
        data: The graph.
        graph: The weights of other edges to use instead, such as those of :func:`neighbour_graph`.
        shares: The shares of classes, if they are known.
    """
    graph = edges(data) if graph is None else graph
    labelled = data.train_mask.nonzero().view(-1).numpy()
    one_hot = np.eye(int(data.y[data.train_mask].max()) + 1)[data.y[labelled].numpy()]
    part = connected_components(graph, directed=False)[1]
    counts = np.zeros((part.max() + 1, one_hot.shape[1]))
    np.add.at(counts, part[labelled], one_hot)
    means = counts / counts.sum(axis=1, keepdims=True).clip(1)
    source = np.zeros((data.num_nodes, one_hot.shape[1]))
    source[labelled] = one_hot - means[part[labelled]]
    overall = one_hot.mean(axis=0).clip(1e-12)
    scores = solve(graph, source) * (1.0 if shares is None else shares / overall)
    present = counts[part] > 0
    predicted = np.where(present, scores, -np.inf).argmax(axis=1)
    reached = present.any(axis=1)
    predicted[~reached] = np.bincount(predicted[reached]).argmax()
    return torch.from_numpy(predicted)


def solve(graph: sparse.csr_array, source: np.ndarray) -> np.ndarray:
    """The solution of the Poisson equation with degree-weighted mean zero; sources of a component add up to zero."""
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    inverse = np.where(degrees > 0, degrees, 1.0) ** -0.5
    scaled = sparse.diags_array(inverse) @ graph @ sparse.diags_array(inverse)
    laplacian = sparse.diags_array((degrees > 0).astype(float)) - scaled
    right = inverse[:, None] * source
    columns = [cg(laplacian, column, rtol=TOLERANCE, maxiter=STEPS)[0] for column in right.T]
    return inverse[:, None] * np.stack(columns, axis=1)


def edges(data: Data) -> sparse.csr_array:
    """The weights of the graph's edges, without self-loops."""
    index = data.edge_index.numpy()
    weight = np.ones(index.shape[1]) if data.edge_weight is None else data.edge_weight.double().numpy()
    keep = index[0] != index[1]
    return sparse.csr_array((weight[keep], index[:, keep]), shape=(data.num_nodes, data.num_nodes))


def neighbour_graph(data: Data, count: int = NEIGHBOURS) -> sparse.csr_array:
    r"""Edges to nearest neighbours among feature rows of unit length, with its authors' weights.

    They are :math:`\exp(-4 \|x_i - x_j\|^2 / r_i^2)`, where :math:`r_i` is the distance to the last
    neighbour; both directions are averaged. Rows of zeros, which would be nearest to all, are as far as can be.
    """
    given = data.x.to_dense()
    x = torch.nn.functional.normalize(torch.cat([given, (given == 0).all(dim=1, keepdim=True).float()], dim=1), dim=1)
    near = nearest_rows(x.numpy(), count)
    squares = torch.stack([(x - x[column]).square().sum(dim=1) for column in near.t()], dim=1).double()
    weight = torch.exp(-4.0 * squares / squares.amax(dim=1, keepdim=True).clamp(min=1e-12))
    index = (torch.arange(len(x)).repeat_interleave(count).numpy(), near.flatten().numpy())
    matrix = sparse.csr_array((weight.flatten().numpy(), index), shape=(len(x), len(x)))
    return (matrix + matrix.T).tocsr() / 2
