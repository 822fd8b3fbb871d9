"""Several labels per node: is a digit even, does it have a loop, is it greater than 4? Next to logistic regressions.

Some labels of the labelled images are unknown, too. Runs offline, on scikit-learn's digits.
"""

import argparse

import torch
from sklearn.linear_model import LogisticRegression

from torch_gckm import GCKMClassifier
from torch_gckm.datasets import load
from torch_gckm.estimators import label_metrics

NAMES = ["even", "loop", "greater than 4"]
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--labelled", type=int, default=50, help="how many images have labels")
parser.add_argument("--quick", action="store_true", help="combine fewer models")
parser.add_argument("--no-progress", action="store_true", help="no progress bars")
args = parser.parse_args()

data = load("digits")
loops = torch.isin(data.y, torch.tensor([0, 4, 6, 8, 9]))
truth = torch.stack([data.y % 2 == 0, loops, data.y > 4], dim=1).long()
generator = torch.Generator().manual_seed(0)
known = torch.randperm(data.num_nodes, generator=generator)[: args.labelled]
data.y = torch.full_like(truth, -1)  # Unknown.
data.y[known] = truth[known].where(torch.rand(len(known), 3, generator=generator) < 0.9, -1)

classifier = GCKMClassifier(search=None, members=2 if args.quick else 8, progress=not args.no_progress)
classifier.fit(data, class_names=NAMES)
free = (data.y < 0).all(dim=1)
found = label_metrics(truth[free], classifier.predict()[free], classifier.predict_proba()[free])

predicted, sure = torch.zeros_like(truth), torch.zeros(truth.shape)
for column in range(len(NAMES)):
    has = data.y[:, column] >= 0
    model = LogisticRegression(max_iter=1000).fit(data.x[has], data.y[has, column])
    predicted[:, column] = torch.from_numpy(model.predict(data.x))
    sure[:, column] = torch.from_numpy(model.predict_proba(data.x)[:, 1])
others = label_metrics(truth[free], predicted[free], sure[free])

unknown = int((data.y[known] < 0).sum())
print(f"{data.num_nodes} images, {args.labelled} of them with labels, {unknown} of which are unknown")
print(f"{'':<20}{'GCKMClassifier':>16}{'logistic regressions':>22}")
for name, value in found.items():
    print(f"{name.replace('_', ' '):<20}{100 * value:>14.1f} %{100 * others[name]:>20.1f} %")
