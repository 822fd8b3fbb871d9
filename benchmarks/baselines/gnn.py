"""PyG's GCN and APPNP as their users start out with them, trained on all labels for a fixed number of epochs.

Two recipes, both with 64 hidden channels, Adam with learning rate 0.01 and 200 epochs; APPNP with 10 steps
and teleport 0.1. ``"tutorial"``: features as they are, dropout before the second layer, weight decay 5e-4.
``"example"``: rows of the features sum to one, dropout before both layers, weight decay on the first one.

Features and graph are sparse matrices that keep their transposes, which torch would make anew in every step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv, Linear
from torch_geometric.nn.conv.gcn_conv import gcn_norm

HIDDEN, EPOCHS = 64, 200
RECIPES = ("tutorial", "example")


class Product(torch.autograd.Function):
    """A sparse matrix times a dense one; gradients flow to the latter."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transpose: Tensor, x: Tensor) -> Tensor:
        ctx.transpose = transpose
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transpose @ grad


class SparseMatrix:
    """A sparse matrix and its transpose.

    Args:
        index: Rows and columns of the entries, sorted, ``[2, entries]``.
        values: The entries.
        shape: The numbers of rows and columns.
    """

    def __init__(self, index: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        self.values, self.order = values, (index[1] * shape[0] + index[0]).argsort()
        flipped = index.flip(0)[:, self.order]
        parts = ((index, shape), (flipped, shape[::-1]))
        self._layouts = [(torch._convert_indices_from_coo_to_csr(i[0], s[0]), i[1], s) for i, s in parts]

    @classmethod
    def of(cls, x: Tensor) -> SparseMatrix:
        x = x.to_sparse_coo().coalesce()
        return cls(x.indices(), x.values(), (x.size(0), x.size(1)))

    def drop(self, share: float) -> SparseMatrix:
        """The matrix with some of its entries set to zero."""
        other = SparseMatrix.__new__(SparseMatrix)
        other.values, other.order, other._layouts = dropout(self.values, share), self.order, self._layouts
        return other

    def times(self, x: Tensor) -> Tensor:
        values = (self.values, self.values[self.order])
        pair = [
            torch.sparse_csr_tensor(start, columns, part, shape, check_invariants=False)
            for (start, columns, shape), part in zip(self._layouts, values, strict=True)
        ]
        result: Tensor = Product.apply(*pair, x)
        return result


class SparseLinear(Linear):
    """PyG's linear layer for sparse features."""

    def forward(self, x: Tensor | SparseMatrix) -> Tensor:
        if isinstance(x, Tensor):
            return super().forward(x)
        result = x.times(self.weight.t())
        return result if self.bias is None else result + self.bias


class FastGCNConv(GCNConv):
    """PyG's layer for sparse features and a graph that is normalised already."""

    def __init__(self, in_channels: int, out_channels: int, adjacency: SparseMatrix) -> None:
        super().__init__(in_channels, out_channels, normalize=False)
        self.lin = SparseLinear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.adjacency = adjacency

    def propagate(self, edge_index: Tensor, x: Tensor, edge_weight: None = None) -> Tensor:
        return self.adjacency.times(x)


class FastAPPNP(APPNP):
    """PyG's layer for a graph that is normalised already."""

    def __init__(self, adjacency: SparseMatrix) -> None:
        super().__init__(K=10, alpha=0.1, normalize=False)
        self.adjacency = adjacency

    def propagate(self, edge_index: Tensor, x: Tensor, edge_weight: None = None) -> Tensor:
        return self.adjacency.times(x)


class GCN(torch.nn.Module):
    """Two layers of graph convolution."""

    def __init__(self, in_channels: int, classes: int, adjacency: SparseMatrix) -> None:
        super().__init__()
        self.first = FastGCNConv(in_channels, HIDDEN, adjacency)
        self.second = FastGCNConv(HIDDEN, classes, adjacency)

    def forward(self, x: SparseMatrix, edge_index: Tensor) -> Tensor:
        hidden = self.first(x, edge_index).relu()
        return self.second(dropout(hidden, training=self.training), edge_index)


class APPNPNet(torch.nn.Module):
    """A perceptron whose predictions are smoothed by personalised PageRank."""

    def __init__(self, in_channels: int, classes: int, adjacency: SparseMatrix) -> None:
        super().__init__()
        self.first, self.second = SparseLinear(in_channels, HIDDEN), Linear(HIDDEN, classes)
        self.smooth = FastAPPNP(adjacency)

    def forward(self, x: SparseMatrix, edge_index: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        return self.smooth(self.second(dropout(hidden, training=self.training)), edge_index)


MODELS: dict[str, type[GCN] | type[APPNPNet]] = {"gcn": GCN, "appnp": APPNPNet}


def train_gnn(name: str, data: Data, seed: int, recipe: str = "tutorial") -> Tensor:
    """Predicted classes of all nodes.

    Args:
        name: One of ``MODELS``.
        data: The graph.
        seed: The seed of weights and dropout.
        recipe: One of ``RECIPES``.
    """
    torch.manual_seed(seed)
    is_example = recipe == "example"
    index, weight = gcn_norm(data.edge_index, None, data.num_nodes)
    size = (data.num_nodes, data.num_nodes)
    adjacency = SparseMatrix.of(torch.sparse_coo_tensor(index.flip(0), weight, size, check_invariants=False))
    x = SparseMatrix.of(data.x / data.x.sum(dim=1, keepdim=True).clamp(min=1e-12) if is_example else data.x)
    model = MODELS[name](data.num_features, int(data.y.max()) + 1, adjacency)
    groups = [
        {"params": model.first.parameters(), "weight_decay": 5e-4},
        {"params": model.second.parameters(), "weight_decay": 0.0 if is_example else 5e-4},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.01)
    labelled = data.train_mask
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        scores = model(x.drop(0.5) if is_example else x, data.edge_index)
        cross_entropy(scores[labelled], data.y[labelled]).backward()
        optimizer.step()
    with torch.no_grad():
        return model.eval()(x, data.edge_index).argmax(dim=1)
