"""Classify scikit-learn's digits from 4 labels per class, next to PyG's GCN and label propagation.

The 1,797 images become a graph in which each is joined to its 10 nearest
neighbours. Runs offline; prints a table and saves a picture of the embedding.
"""

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN, LabelPropagation
from tqdm import tqdm

from torch_gckm import GCKM, GCKMClassifier, Trainer, plot
from torch_gckm.datasets import PerClassSplit, load

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--labels-per-class", type=int, default=4)
parser.add_argument("--draws", type=int, default=5, help="random choices of the labels to average over")
parser.add_argument("--picture", type=Path, default=Path("out/digits.png"), help="where to save the embedding")
parser.add_argument("--quick", action="store_true", help="one draw and few steps")
parser.add_argument("--no-progress", action="store_true", help="no progress bars")
args = parser.parse_args()


classifiers: list[GCKMClassifier] = []  # One per draw.


def classifier(data: Data) -> Tensor:
    classifiers.append(GCKMClassifier(search=None, progress=False).fit(data))
    return classifiers[-1].predict()


def one_model(data: Data) -> Tensor:
    model = GCKM(data.num_features, hidden_channels=(64, 10), out_channels=10)
    Trainer(model, steps=1 if args.quick else 10, progress=False).fit(data)
    return model.predict()


def gcn(data: Data) -> Tensor:
    torch.manual_seed(0)
    model = GCN(data.num_features, 64, num_layers=2, out_channels=10, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(20 if args.quick else 200):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)[data.train_mask]
        torch.nn.functional.cross_entropy(out, data.y[data.train_mask]).backward()
        optimizer.step()
    return model.eval()(data.x, data.edge_index).argmax(dim=1)


def label_propagation(data: Data) -> Tensor:
    out = LabelPropagation(num_layers=50, alpha=0.9)(data.y, data.edge_index, mask=data.train_mask)
    return out.argmax(dim=1)


def save_picture() -> None:
    figure, axes = plt.subplots(figsize=(7, 6), layout="constrained")
    plot.embedding(classifiers[0], axes)
    axes.set_title(f"digits, embedded by GCKM, classified from {args.labels_per_class} labels per class (stars)")
    args.picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.picture, dpi=150)


seeds = range(1 if args.quick else args.draws)
draws = [load("digits", transform=PerClassSplit(args.labels_per_class, seed=seed)) for seed in seeds]
print(f"digits: {draws[0].num_nodes} nodes, {args.labels_per_class} labels per class, mean over {len(draws)} draws")
print(f"{'method':<22}{'accuracy %':>14}{'seconds':>10}")
methods = {
    "GCKMClassifier": classifier,
    "GCKM": one_model,
    "PyG GCN": gcn,
    "PyG LabelPropagation": label_propagation,
}
for name, method in methods.items():
    start, bar = time.perf_counter(), tqdm(draws, name, leave=False, disable=args.no_progress)
    accuracies = [100 * (method(data) == data.y)[~data.train_mask].double().mean() for data in bar]
    seconds = (time.perf_counter() - start) / len(draws)
    spread = torch.stack(accuracies).std(correction=0)
    print(f"{name:<22}{torch.stack(accuracies).mean():>7.1f} ± {spread:>4.1f}{seconds:>10.2f}")
save_picture()
print(f"embedding of the first draw: {args.picture}")
