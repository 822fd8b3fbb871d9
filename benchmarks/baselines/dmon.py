r"""DMoN, deep modularity networks, for clustering nodes.

PyG's ``DMoNPooling`` wants a dense adjacency matrix. This is the same loss with a sparse one: with soft
assignments :math:`S`, degrees :math:`d` and :math:`m` edges,

.. math::
    -\frac{1}{2 m} \mathrm{Tr}\bigl(S' A S - S' d d' S / 2 m\bigr)
    + \frac{\sqrt{k}}{n} \Bigl\| \sum_v S_v \Bigr\| - 1.

The network is that of its authors: :math:`\mathrm{selu}(s \odot z + P z + b)` with :math:`z = x W`, features of a
node divided by their sum, :math:`P` the normalised adjacency matrix and :math:`s` a learned weight of what the node
itself says; then a linear map to clusters, with dropout, and a softmax.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import dropout, selu
from torch_geometric.data import Data
from torch_geometric.nn import Linear

from baselines.sparse import SparseLinear, SparseMatrix, adjacency, features

HIDDEN, EPOCHS, DROPOUT = 64, 500, 0.5


class DMoN(torch.nn.Module):
    """A graph convolution with a skip connection, and a linear map to clusters.

    Args:
        matrix: The normalised adjacency matrix.
        channels: The number of features.
        clusters: The number of clusters.
    """

    def __init__(self, matrix: SparseMatrix, channels: int, clusters: int) -> None:
        super().__init__()
        self.matrix = matrix
        self.linear = SparseLinear(channels, HIDDEN, bias=False, weight_initializer="glorot")
        self.skip = torch.nn.Parameter(torch.ones(HIDDEN))
        self.bias = torch.nn.Parameter(torch.zeros(HIDDEN))
        self.assign = Linear(HIDDEN, clusters, bias_initializer="zeros")
        torch.nn.init.orthogonal_(self.assign.weight)

    def forward(self, x: SparseMatrix) -> Tensor:
        z = self.linear(x)
        hidden = selu(self.skip * z + self.matrix @ z + self.bias)
        return dropout(self.assign(hidden), DROPOUT, self.training).softmax(dim=1)


def modularity_loss(matrix: SparseMatrix, assignment: Tensor) -> Tensor:
    """DMoN's loss with an adjacency matrix without weights normalised away."""
    count, clusters = assignment.shape
    degrees = matrix @ torch.ones(count, 1)
    total = degrees.sum()
    spectral = -((assignment * (matrix @ assignment)).sum() - (degrees.t() @ assignment).square().sum() / total) / total
    return spectral + clusters**0.5 / count * torch.linalg.vector_norm(assignment.sum(dim=0)) - 1.0


def cluster(data: Data, clusters: int, seed: int, epochs: int = EPOCHS) -> Tensor:
    """Clusters of all nodes."""
    torch.manual_seed(seed)
    count, index = data.num_nodes, data.edge_index
    ones = torch.ones(index.size(1))
    graph = SparseMatrix(torch.sparse_coo_tensor(index, ones, (count, count), check_invariants=False))
    x, matrix = features(data, unit_rows=True), adjacency(data, "symmetric")
    network = DMoN(matrix, x.shape[1], clusters)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(epochs):
        optimizer.zero_grad()
        modularity_loss(graph, network(x)).backward()
        optimizer.step()
    with torch.no_grad():
        return network.eval()(x).argmax(dim=1)
