"""Predict numbers for the nodes of a graph from a few known ones, next to scikit-learn and PyG's GCN.

Rows of scikit-learn's diabetes table become a graph in which each is joined to its 10 nearest. Runs offline.
"""

import argparse

import torch
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.preprocessing import StandardScaler
from torch_geometric.data import Data

from torch_gckm import GCKMRegressor
from torch_gckm.neighbours import nearest_edges

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--known", type=int, default=50, help="how many rows have a known target")
parser.add_argument("--budget", type=float, default=5.0, help="seconds to search for settings")
parser.add_argument("--quick", action="store_true", help="a few settings")
parser.add_argument("--no-progress", action="store_true", help="no progress bars")
args = parser.parse_args()

rows, target = load_diabetes(return_X_y=True)
x = torch.tensor(StandardScaler().fit_transform(rows), dtype=torch.float)
train_mask = torch.zeros(len(x), dtype=torch.bool)
train_mask[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[: args.known]] = True
data = Data(x, nearest_edges(x.numpy(), 10), y=torch.tensor(target), train_mask=train_mask, test_mask=~train_mask)

search = {"search": None} if args.quick else {"budget": args.budget}
regressor = GCKMRegressor(**search, progress=not args.no_progress).fit(data)
values, spread = regressor.predict(return_std=True)
forest = RandomForestRegressor(random_state=0).fit(x[train_mask], data.y[train_mask])
within = ((values - data.y).abs() <= 2 * spread)[data.test_mask].double().mean()
print(f"diabetes: {len(x)} rows, {args.known} known targets")
print(f"R2 of GCKMRegressor  {regressor.score(data):.3f}")
print(f"R2 of a forest       {forest.score(x[data.test_mask], data.y[data.test_mask]):.3f}")
print(f"spread {float(spread[0]):.1f}; {100 * within:.0f} % of the errors are below twice of it")
