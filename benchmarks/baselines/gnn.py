"""PyG's GCN and APPNP as their users start out with them, trained on all labels for a fixed number of epochs.

The settings of PyG's tutorial: features as they are, dropout before the second layer, Adam with learning
rate 0.01 and weight decay 5e-4, 200 epochs; 64 hidden channels; APPNP with 10 steps and teleport 0.1.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv, Linear
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from torch_gckm.kernels import to_csr

HIDDEN, EPOCHS, SPARSE_BELOW = 64, 200, 0.05


class SymmetricProduct(torch.autograd.Function):
    """A product with a symmetric sparse matrix: torch's own backward pass would transpose it every time."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ grad


class FastGCNConv(GCNConv):
    """PyG's layer on a symmetric adjacency matrix."""

    def message_and_aggregate(self, adj_t: Tensor, x: Tensor) -> Tensor:
        return SymmetricProduct.apply(adj_t, x)


class FastAPPNP(APPNP):
    """PyG's layer on a symmetric adjacency matrix."""

    def message_and_aggregate(self, adj_t: Tensor, x: Tensor) -> Tensor:
        return SymmetricProduct.apply(adj_t, x)


class GCN(torch.nn.Module):
    """Two layers of graph convolution."""

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        self.first = FastGCNConv(in_channels, HIDDEN, normalize=False)
        self.second = FastGCNConv(HIDDEN, classes, normalize=False)

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        return self.second(dropout(self.first(x, adj_t).relu(), training=self.training), adj_t)


class APPNPNet(torch.nn.Module):
    """A perceptron whose predictions are smoothed by personalised PageRank."""

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = Linear(in_channels, HIDDEN), Linear(HIDDEN, classes)
        self.propagate = FastAPPNP(K=10, alpha=0.1, normalize=False)

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        return self.propagate(self.second(dropout(self.first(x).relu(), training=self.training)), adj_t)


MODELS: dict[str, type[torch.nn.Module]] = {"gcn": GCN, "appnp": APPNPNet}


def train_gnn(name: str, data: Data, seed: int) -> Tensor:
    """Predicted classes of all nodes of an undirected graph."""
    torch.manual_seed(seed)
    index, weight = gcn_norm(data.edge_index, None, data.num_nodes)
    size = (data.num_nodes, data.num_nodes)
    adj_t = to_csr(torch.sparse_coo_tensor(index.flip(0), weight, size, check_invariants=False).coalesce())
    x = to_csr(data.x) if float((data.x != 0).float().mean()) < SPARSE_BELOW else data.x
    model = MODELS[name](data.num_features, int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    labelled = data.train_mask
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        cross_entropy(model(x, adj_t)[labelled], data.y[labelled]).backward()
        optimizer.step()
    with torch.no_grad():
        return model.eval()(x, adj_t).argmax(dim=1)
