"""One graph fitted by several processes, each of which has a part of it: on one machine to try it, or on many.

    torchrun --nproc-per-node 2 examples/many_machines.py

Started as a plain script, one process does it all; the scores are the same.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from torch_gckm import GCKM, Trainer
from torch_gckm.datasets import PerClassSplit, read_shard, write_shards
from torch_gckm.gram import LowRank

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--nodes", type=int, default=50_000)
parser.add_argument("--folder", type=Path, default=Path("out/many_machines"), help="seen by all processes")
parser.add_argument("--quick", action="store_true", help="3,000 nodes")
parser.add_argument("--no-progress", action="store_true", help="no progress bar")
args = parser.parse_args()
nodes, classes = 3000 if args.quick else args.nodes, 10

if dist.is_torchelastic_launched():  # By torchrun.
    dist.init_process_group("gloo")
rank = dist.get_rank() if dist.is_initialized() else 0

if rank == 0:  # Usually the folder is there; "gckm shard" writes it from files.
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(classes, (nodes,), generator=generator)
    x = 0.3 * torch.randn(classes, 64, generator=generator)[y] + torch.randn(nodes, 64, generator=generator)
    order = y.argsort()  # Neighbours in this order are mostly of one class.
    edges = torch.stack([order, order.roll(1)])
    graph = Data(x=x, edge_index=to_undirected(edges, num_nodes=nodes), y=y)
    write_shards(PerClassSplit(20, seed=0)(graph), args.folder, overwrite=True)
if dist.is_initialized():
    dist.barrier()

graph = read_shard(args.folder)  # The nodes of this process, and the edges to them.
model = GCKM(64, (32, 16), classes, aggregation="ssgc", hops=4, gram=LowRank(max_rank=256))
history = Trainer(model, steps=0, progress=not args.no_progress).fit(graph)

graph.write(model.predict(), args.folder.with_suffix(".npy"))  # Classes of all nodes, in one file.
if rank == 0:
    print(model.summary())
    print(f"{graph.x.size(0):,} of {nodes:,} nodes here, {100 * history.best.test_acc:.1f} % of all test nodes right")
if dist.is_initialized():
    dist.destroy_process_group()
