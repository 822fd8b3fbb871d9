"""Sets of classes that hold the true one 90 times in 100, and the nodes to label next, on scikit-learn's digits.

Runs offline. With ``--dataset minesweeper --root FOLDER`` it reads PyG's Minesweeper instead, where one node in five is
a mine: accuracy says little there, balanced accuracy and ROC-AUC say more, and most sets hold both classes.
"""

import argparse

import torch

from torch_gckm import GCKMClassifier
from torch_gckm.datasets import load
from torch_gckm.train import accuracy, balanced_accuracy, roc_auc

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dataset", default="digits")
parser.add_argument("--root", help="folder of the datasets, for other graphs than digits")
parser.add_argument("--labels", type=int, default=100, help="labelled nodes, drawn uniformly")
parser.add_argument("--coverage", type=float, default=0.9)
parser.add_argument("--quick", action="store_true", help="combine fewer models")
parser.add_argument("--no-progress", action="store_true", help="no progress bars")
args = parser.parse_args()

data = load(args.dataset, args.root)
chosen = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))[: args.labels]
data.train_mask = torch.zeros(data.num_nodes, dtype=torch.bool).index_fill(0, chosen, True)
data.val_mask = data.test_mask = None
classifier = GCKMClassifier(search=None, members=2 if args.quick else 8, progress=not args.no_progress).fit(data)
free, predicted = ~data.train_mask, classifier.predict()
print(f"{args.dataset}: {data.num_nodes} nodes, {args.labels} labels drawn uniformly")
print(f"accuracy          {100 * accuracy(predicted, data.y, free):.1f} %")
print(f"balanced accuracy {100 * balanced_accuracy(predicted, data.y, free):.1f} %")
print(f"ROC-AUC           {100 * roc_auc(classifier.predict_proba(), data.y, free):.1f} %")

sets = classifier.predict_set(coverage=args.coverage)
held, size = sets[free].gather(1, data.y[free].unsqueeze(1)), sets[free].sum(dim=1)
share = 100 * held.double().mean()
print(f"\nsets hold the class of {share:.1f} % of the nodes; {100 * args.coverage:g} % were asked for")
spread = 100 * (args.coverage * (1 - args.coverage) / args.labels) ** 0.5
print(f"(so many labels: other draws of them differ by about {spread:.0f} points)")
for number in range(sets.size(1) + 1):
    with_so_many = size == number
    if bool(with_so_many.any()):
        right = accuracy(predicted[free], data.y[free], with_so_many)
        share = 100 * with_so_many.double().mean()
        print(f"  {number} classes: {share:>5.1f} % of the nodes, of which {100 * right:.1f} % are predicted right")
print("\nnodes to label next:", classifier.suggest(5).tolist())
