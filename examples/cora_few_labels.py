"""The main job: a graph, a few labels, nothing else to choose. Cora with ``--dataset cora``; offline, the digits."""

import argparse

import torch

from torch_gckm import GCKMClassifier
from torch_gckm.datasets import PerClassSplit, load

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dataset", default="digits", help="cora, citeseer, ...; PyG downloads what is not there")
parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT, else data)")
parser.add_argument("--labels-per-class", type=int, default=4)
parser.add_argument("--budget", type=float, default=15.0, help="seconds to search for settings")
parser.add_argument("--quick", action="store_true", help="search for two seconds")
parser.add_argument("--no-progress", action="store_true", help="no progress bar")
args = parser.parse_args()

data = load(args.dataset, args.root, transform=PerClassSplit(args.labels_per_class, seed=0))
classifier = GCKMClassifier(budget=2.0 if args.quick else args.budget, progress=not args.no_progress)
classifier.fit(data)

assert classifier.result_ is not None
print(classifier.result_.table(5))
probabilities = classifier.predict_proba()
sure = probabilities.max(dim=1).values[data.test_mask]
right = (classifier.predict() == data.y)[data.test_mask]
labels = f"{args.labels_per_class} labels per class"
print(f"\n{args.dataset}, {labels}: {100 * right.double().mean():.1f} % of unlabelled nodes right")
for low, high in ((0.0, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
    part = (sure >= low) & (sure < high)
    if bool(part.any()):
        share = 100 * right[part].double().mean()
        print(f"of {int(part.sum()):>5} nodes predicted with {low:.2f} to {min(high, 1.0):.2f}: {share:5.1f} % right")
print(f"label these next: {', '.join(str(node) for node in torch.Tensor.tolist(classifier.suggest(5)))}")
