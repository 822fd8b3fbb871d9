"""PyG's tutorial network, a GCN of two layers, with a kernel layer in place of its first one.

The only other change is the optimiser: CayleyAdam keeps the layer's embedding orthonormal, and is Adam for the rest.
The layer is fitted without labels by the first call of the network, and then trained by the cross-entropy.
"""

import argparse

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from tqdm import tqdm

from torch_gckm import CayleyAdam, GCKMConv
from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.manifold import orthogonality_error

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dataset", default="digits", help="or cora, citeseer, ...; PyG downloads what is not there")
parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT, else data)")
parser.add_argument("--labels-per-class", type=int, default=20, help="0 takes the dataset's own split")
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--draws", type=int, default=3, help="random starts, and choices of the labels")
parser.add_argument("--first-seed", type=int, default=0)
parser.add_argument("--quick", action="store_true", help="few epochs and one draw")
parser.add_argument("--no-progress", action="store_true", help="no progress bar")
args = parser.parse_args()
if args.quick:
    args.epochs, args.draws = 3, 1


class Network(torch.nn.Module):
    """PyG's tutorial network, whose first layer is of a given class."""

    def __init__(self, layer: type[GCNConv] | type[GCKMConv], data: Data) -> None:
        super().__init__()
        self.conv1 = layer(data.num_features, 16)
        self.conv2 = GCNConv(16, int(data.y.max()) + 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index)
        x = functional.relu(x)
        x = functional.dropout(x, training=self.training)
        return self.conv2(x, edge_index)


def train(model: Network, data: Data) -> float:
    """The accuracy on the test nodes."""
    optimizer = CayleyAdam(model.parameters(), lr=0.01, weight_decay=5e-4)
    model.train()
    for _ in tqdm(range(args.epochs), type(model.conv1).__name__, leave=False, disable=args.no_progress):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        loss = functional.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        predicted = model(data.x, data.edge_index).argmax(dim=1)
    return 100 * float((predicted == data.y)[data.test_mask].double().mean())


accuracies: dict[str, list[float]] = {"GCN": [], "GCKMConv, then GCN": []}
for seed in range(args.first_seed, args.first_seed + args.draws):
    split = PerClassSplit(args.labels_per_class, seed=seed) if args.labels_per_class else None
    data = load(args.dataset, args.root, transform=split)
    for found, layer in zip(accuracies.values(), (GCNConv, GCKMConv), strict=True):
        torch.manual_seed(seed)
        model = Network(layer, data)
        found.append(train(model, data))
        if isinstance(model.conv1, GCKMConv):
            assert float(orthogonality_error(model.conv1.h)) < 1e-4
for name, found in accuracies.items():
    print(f"{name:<22}{sum(found) / len(found):>6.1f} %  ({', '.join(f'{value:.1f}' for value in found)})")
