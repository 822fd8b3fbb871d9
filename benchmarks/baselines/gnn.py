"""PyG's GCN and APPNP with the settings of their papers, trained on all labels for a fixed number of epochs."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv, Linear
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from torch_gckm.kernels import to_csr

HIDDEN, EPOCHS, SPARSE_BELOW = 64, 200, 0.05


class GCN(torch.nn.Module):
    """Two layers of graph convolution."""

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        self.first = GCNConv(in_channels, HIDDEN, normalize=False)
        self.second = GCNConv(HIDDEN, classes, normalize=False)

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        x = self.first(drop(x, self.training), adj_t).relu()
        return self.second(drop(x, self.training), adj_t)


class APPNPNet(torch.nn.Module):
    """A perceptron whose predictions are smoothed by ten steps of personalised PageRank."""

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = Linear(in_channels, HIDDEN), Linear(HIDDEN, classes)
        self.propagate = APPNP(K=10, alpha=0.1, normalize=False)

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        x = self.first(drop(x, self.training)).relu()
        return self.propagate(self.second(drop(x, self.training)), adj_t)


MODELS: dict[str, type[torch.nn.Module]] = {"gcn": GCN, "appnp": APPNPNet}


def drop(x: Tensor, training: bool) -> Tensor:
    if x.layout == torch.strided:
        return dropout(x, training=training)
    values = dropout(x.values(), training=training)
    return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape)


def train_gnn(name: str, data: Data, seed: int) -> Tensor:
    """Predicted classes of all nodes."""
    torch.manual_seed(seed)
    index, weight = gcn_norm(data.edge_index, None, data.num_nodes)
    size = (data.num_nodes, data.num_nodes)
    adj_t = to_csr(torch.sparse_coo_tensor(index.flip(0), weight, size, check_invariants=False).coalesce())
    x = data.x / data.x.sum(dim=1, keepdim=True).clamp(min=1.0)  # As PyG's NormalizeFeatures.
    if float((x != 0).float().mean()) < SPARSE_BELOW:
        x = to_csr(x)
    model = MODELS[name](data.num_features, int(data.y.max()) + 1)
    groups = [
        {"params": model.first.parameters(), "weight_decay": 5e-4},
        {"params": model.second.parameters(), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.01)
    labelled = data.train_mask
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        cross_entropy(model(x, adj_t)[labelled], data.y[labelled]).backward()
        optimizer.step()
    with torch.no_grad():
        return model.eval()(x, adj_t).argmax(dim=1)
