"""GCKM next to PyG's networks on the same few labels: accuracy and time."""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, MLP, GraphSAGE

from torch_gckm import GCKM, GCKMClassifier, Trainer
from torch_gckm.datasets import PerClassSplit, load

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dataset", default="digits", help="cora, citeseer, ...; PyG downloads what is not there")
parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT, else data)")
parser.add_argument("--labels-per-class", type=int, default=4)
parser.add_argument("--draws", type=int, default=2, help="random choices of the labels")
parser.add_argument("--budget", type=float, default=5.0, help="seconds of a search")
parser.add_argument("--quick", action="store_true", help="one draw, few epochs")
parser.add_argument("--no-progress", action="store_true", help="accepted by all examples; there is no progress bar")
args = parser.parse_args()
epochs = 5 if args.quick else 200


def network(kind: type[torch.nn.Module]) -> Callable[[Data], Tensor]:
    def train(data: Data) -> Tensor:
        torch.manual_seed(0)
        sizes = {"in_channels": data.num_features, "hidden_channels": 64, "num_layers": 2}
        model = kind(**sizes, out_channels=int(data.y.max()) + 1, dropout=0.5)
        inputs = (data.x,) if kind is MLP else (data.x, data.edge_index)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        for _ in range(epochs):
            optimizer.zero_grad()
            out = model(*inputs)[data.train_mask]
            torch.nn.functional.cross_entropy(out, data.y[data.train_mask]).backward()
            optimizer.step()
        return model.eval()(*inputs).argmax(dim=1)

    return train


def one_model(data: Data) -> Tensor:
    model = GCKM(data.num_features, (64, 16), int(data.y.max()) + 1)
    Trainer(model, steps=0, progress=False).fit(data)
    return model.predict()


def searched(data: Data) -> Tensor:
    return GCKMClassifier(budget=1.0 if args.quick else args.budget, progress=False).fit(data).predict()


methods = {kind.__name__: network(kind) for kind in (MLP, GCN, GAT, GraphSAGE)}
methods |= {"GCKM, default settings": one_model, "GCKMClassifier": searched}
print(f"{args.dataset}, {args.labels_per_class} labels per class")
for name, method in methods.items():
    right, start = [], time.perf_counter()
    draws = 1 if args.quick else args.draws
    for seed in range(draws):
        data = load(args.dataset, args.root, transform=PerClassSplit(args.labels_per_class, seed=seed))
        right.append((method(data) == data.y)[data.test_mask].double().mean())
    print(f"{name:<24}{100 * torch.stack(right).mean():>6.1f} %{(time.perf_counter() - start) / draws:>8.1f} s")
