"""A graph whose kernel matrices would not fit into memory, fitted on two cores in seconds.

100,000 nodes in 10 noisy groups with 20 labels each. Exact kernel matrices would take 80 GB each; some hundred
of their columns do. Watch the rank, the error that is left, and the memory.
"""

import argparse
import resource
import time

import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from torch_gckm import GCKM, Trainer
from torch_gckm.datasets import PerClassSplit
from torch_gckm.gram import LowRank

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--nodes", type=int, default=100_000)
parser.add_argument("--rank", type=int, default=256)
parser.add_argument("--quick", action="store_true", help="3,000 nodes")
parser.add_argument("--no-progress", action="store_true", help="no progress bar")
args = parser.parse_args()
nodes, classes = 3000 if args.quick else args.nodes, 10

generator = torch.Generator().manual_seed(0)
y = torch.randint(classes, (nodes,), generator=generator)
x = 0.3 * torch.randn(classes, 64, generator=generator)[y] + torch.randn(nodes, 64, generator=generator)
source = torch.randint(nodes, (5 * nodes,), generator=generator)
# Half of the edges lead to a node of the same class, the others anywhere.
order, counts = y.argsort(), torch.bincount(y, minlength=classes)
place = (torch.rand(source.numel(), generator=generator) * counts[y[source]]).long()
same = order[(counts.cumsum(0) - counts)[y[source]] + place]
target = torch.where(torch.rand(source.numel(), generator=generator) < 0.5, same, source.flip(0))
data = Data(x=x, edge_index=to_undirected(torch.stack([source, target]), num_nodes=nodes), y=y)
data = PerClassSplit(20, seed=0)(data)

model = GCKM(64, (32, 16), classes, aggregation="mean", gram=LowRank(max_rank=args.rank))
start = time.perf_counter()
history = Trainer(model, steps=0, progress=not args.no_progress).fit(data)
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(model.summary())
print(f"{nodes:,} nodes and {data.num_edges:,} edges in {time.perf_counter() - start:.1f} s and {memory:.1f} GB")
print(f"{100 * history.best.test_acc:.1f} % of the unlabelled nodes right")
