"""Fit a model to part of a graph, save it, and classify nodes that come later.

A fifth of the images is not there when the model is fitted. The file holds landmarks and small matrices, nothing
else of the graph; whoever loads it needs the new graph alone.
"""

import argparse
from pathlib import Path

import torch

from torch_gckm import GCKM, Trainer
from torch_gckm.datasets import PerClassSplit, load

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dataset", default="digits", help="or cora, citeseer, ...; PyG downloads what is not there")
parser.add_argument("--file", type=Path, default=Path("out/model.pt"))
parser.add_argument("--quick", action="store_true", help="accepted by all examples; this one is quick")
parser.add_argument("--no-progress", action="store_true", help="no progress bars")
args = parser.parse_args()

data = load(args.dataset, transform=PerClassSplit(10, seed=0))
order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))
is_new = torch.zeros(data.num_nodes, dtype=torch.bool).index_fill(0, order[: data.num_nodes // 5], True)
is_new &= ~data.train_mask
known = data.subgraph(~is_new)


def accuracy(predicted: torch.Tensor) -> float:
    return 100 * float((predicted == data.y)[is_new].double().mean())


def fitted(graph: object) -> GCKM:
    model = GCKM(data.num_features, (64, 10), int(data.y.max()) + 1)
    Trainer(model, steps=0, progress=False).fit(graph)
    return model


args.file.parent.mkdir(parents=True, exist_ok=True)
fitted(known).save(args.file, inductive=True)
size = args.file.stat().st_size / 2**20
print(f"fitted to {known.num_nodes} nodes; the file has {size:.1f} MB")

model = GCKM.load(args.file)
scores = model.scores(data, progress=not args.no_progress)
print(f"classes of {int(is_new.sum())} new nodes: {accuracy(scores.argmax(dim=1)):.1f} % right")
print(f"a fit to all nodes with the same labels: {accuracy(fitted(data).predict()):.1f} %")
