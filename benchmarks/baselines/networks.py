"""Graph neural networks to compare with: each a perceptron, a convolution or a polynomial filter on sparse features."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import dropout
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv

from baselines.filters import FilterNetwork, PolynomialFilter, bernstein, interpolation, pagerank_weights
from baselines.sparse import SparseLinear, SparseMatrix, adjacency

Channels = tuple[int, int, int]
Shares = tuple[float, float]
Network = torch.nn.Module
_ORDER = 10  # The degree of polynomial filters.


class SparseGCNConv(GCNConv):
    """PyG's layer for sparse features and a graph that is normalised already."""

    def __init__(self, matrix: SparseMatrix, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, normalize=False)
        self.lin = SparseLinear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.matrix = matrix

    def forward(self, x: Tensor | SparseMatrix) -> Tensor:
        result: Tensor = super().forward(x, None)
        return result

    def propagate(self, edge_index: None, x: Tensor, edge_weight: None = None) -> Tensor:
        return self.matrix @ x


class GCN(Network):
    """Layers of PyG's ``GCNConv``.

    Args:
        matrix: The adjacency matrix, normalised with self-loops.
        channels: The numbers of features, hidden units and classes.
        drop: The shares of features and of hidden units that are dropped.
        depth: The number of layers.
    """

    def __init__(self, matrix: SparseMatrix, channels: Channels, drop: Shares, depth: int = 2) -> None:
        super().__init__()
        sizes = [channels[0], *[channels[1]] * (depth - 1), channels[2]]
        pairs = itertools.pairwise(sizes)
        self.layers = torch.nn.ModuleList(SparseGCNConv(matrix, *pair) for pair in pairs)
        self.drop = drop

    def forward(self, x: SparseMatrix) -> Tensor:
        hidden: Tensor = self.layers[0](x.drop(self.drop[0], self.training))
        for layer in self.layers[1:]:
            hidden = layer(dropout(hidden.relu(), self.drop[1], self.training))
        return hidden


class GraphSAGE(Network):
    """Two layers of PyG's ``SAGEConv`` with means: what neighbours say, and what the node itself says."""

    def __init__(self, matrix: SparseMatrix, channels: Channels, drop: Shares) -> None:
        super().__init__()
        pairs = (channels[:2], channels[1:])
        self.neighbours = torch.nn.ModuleList(SparseLinear(*pair) for pair in pairs)
        self.own = torch.nn.ModuleList(SparseLinear(*pair, bias=False) for pair in pairs)
        self.matrix, self.drop = matrix, drop

    def _convolve(self, layer: int, x: Tensor | SparseMatrix) -> Tensor:
        linear = self.neighbours[layer]
        mean = self.matrix @ (linear(x) - linear.bias) + linear.bias  # A node without neighbours has the bias, too.
        result: Tensor = mean + self.own[layer](x)
        return result

    def forward(self, x: SparseMatrix) -> Tensor:
        hidden = self._convolve(0, x.drop(self.drop[0], self.training)).relu()
        return self._convolve(1, dropout(hidden, self.drop[1], self.training))


class GAT(Network):
    """Two layers of PyG's ``GATConv``, eight heads and one."""

    def __init__(self, edge_index: Tensor, channels: Channels, drop: Shares, heads: int = 8) -> None:
        super().__init__()
        width = channels[1] // heads
        self.linear = SparseLinear(channels[0], heads * width, bias=False, weight_initializer="glorot")
        self.first = GATConv(heads * width, width, heads, dropout=drop[1])
        self.first.lin = torch.nn.Identity()  # Done before, on sparse features.
        self.second = GATConv(heads * width, channels[2], 1, dropout=drop[1])
        self.edge_index, self.drop = edge_index, drop

    def forward(self, x: SparseMatrix) -> Tensor:
        hidden = self.first(self.linear(x.drop(self.drop[0], self.training)), self.edge_index)
        hidden = dropout(torch.nn.functional.elu(hidden), self.drop[1], self.training)
        result: Tensor = self.second(hidden, self.edge_index)
        return result


def _mlp(data: Data, channels: Channels, drop: Shares) -> Network:
    return FilterNetwork(channels, drop, torch.nn.Identity())


def _appnp(data: Data, channels: Channels, drop: Shares) -> Network:
    weights = pagerank_weights(_ORDER, 0.1)
    return FilterNetwork(channels, drop, PolynomialFilter(adjacency(data, "gcn"), weights, learned=False))


def _gpr(data: Data, channels: Channels, drop: Shares) -> Network:
    return FilterNetwork(channels, drop, PolynomialFilter(adjacency(data, "gcn"), pagerank_weights(_ORDER, 0.1)))


def _bern(data: Data, channels: Channels, drop: Shares) -> Network:
    matrix, ones = adjacency(data, "symmetric"), torch.ones(_ORDER + 1)
    return FilterNetwork(channels, drop, PolynomialFilter(matrix, ones, bernstein(_ORDER)))


def _cheb(data: Data, channels: Channels, drop: Shares) -> Network:
    matrix, ones = adjacency(data, "symmetric"), torch.ones(_ORDER + 1)
    return FilterNetwork(channels, drop, PolynomialFilter(matrix, ones, interpolation(_ORDER)))


def gcn(data: Data, channels: Channels, drop: Shares, depth: int = 2) -> Network:
    """A GCN of some depth."""
    return GCN(adjacency(data, "gcn"), channels, drop, depth)


def _gat(data: Data, channels: Channels, drop: Shares) -> Network:
    return GAT(data.edge_index, channels, drop)


def _sage(data: Data, channels: Channels, drop: Shares) -> Network:
    return GraphSAGE(adjacency(data, "mean"), channels, drop)


NETWORKS: dict[str, Callable[[Data, Channels, Shares], Network]] = {
    "MLP": _mlp,
    "GCN": gcn,
    "APPNP": _appnp,
    "GPR-GNN": _gpr,
    "BernNet": _bern,
    "ChebNetII": _cheb,
    "GAT": _gat,
    "GraphSAGE": _sage,
}
