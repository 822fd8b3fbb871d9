"""The measurements behind three defaults: which kernel matrix, how exact a low-rank one, which form of features.

    python benchmarks/policies.py --root DATA      # tables, and JSON in out/

``gram="auto"`` represents up to ``Auto().dense_below`` nodes exactly. The first table fits random
subgraphs of real datasets both ways. Features with fewer nonzero entries than ``SPARSE_BELOW`` are
aggregated and compared as sparse matrices. The second table evaluates kernel columns both ways. The
third compares low-rank fits with the exact one: no label but the training labels is looked at.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from speed import SETTINGS, load_split
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import GCKM, Trainer, __version__
from torch_gckm.gram import Auto, Dense, LowRank
from torch_gckm.graph import Topology
from torch_gckm.kernels import RBF, DenseFeatures, SparseFeatures
from torch_gckm.layouts import SPARSE_BELOW, to_csr

SIZES = (300, 600, 1000, 1500)
PRECISIONS = ((256, 0.05), (512, 0.1), (512, 0.05), (512, 0.02), (1024, 0.05), (1024, 0.02), (1024, 0.01), (2048, 0.01))
PRECISION_NODES = 6000  # The exact fit of more takes minutes.


def median_seconds(repeat: int, work: Callable[..., None], *arguments: Any) -> float:
    seconds = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        work(*arguments)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def subgraph(data: Data, size: int) -> Data:
    """All labelled nodes and as many others, chosen at random."""
    labelled = data.train_mask.nonzero().squeeze(1)
    others = (~data.train_mask).nonzero().squeeze(1)
    picked = others[torch.randperm(others.numel(), generator=torch.Generator().manual_seed(0))]
    nodes = torch.cat([labelled, picked[: size - labelled.numel()]]).sort().values
    if data.x.layout != torch.strided:
        x = data.x.index_select(0, nodes).to_dense()
        data = Data(edge_index=data.edge_index, y=data.y, train_mask=data.train_mask, num_nodes=data.num_nodes)
        data = data.subgraph(nodes)
        data.x = x
        return data
    return data.subgraph(nodes)


def fit(data: Data, name: str, gram: Dense | LowRank, steps: int) -> None:
    model = GCKM(data.num_features, out_channels=int(data.y.max()) + 1, gram=gram, **SETTINGS[name])
    Trainer(model, steps=steps, progress=False).fit(data)


def gram_choice(root: str | None, repeat: int) -> list[dict[str, Any]]:
    results = []
    print(f"{'dataset':<10}{'nodes':>7}{'steps':>7}{'dense':>9}{'low rank':>10}   seconds")
    for name in SETTINGS:
        whole = load_split(name, root)
        for size in (s for s in SIZES if s <= whole.num_nodes):
            data = subgraph(whole, size)
            for steps in (0, 10):
                dense = median_seconds(repeat, fit, data, name, Dense(), steps)
                low_rank = median_seconds(repeat, fit, data, name, LowRank(), steps)
                results.append({"dataset": name, "nodes": size, "steps": steps, "dense": dense, "low_rank": low_rank})
                print(f"{name:<10}{size:>7}{steps:>7}{dense:>9.3f}{low_rank:>10.3f}", flush=True)
    return results


def evaluate(x: Tensor, propagator: Tensor, sparse: bool, columns: int) -> None:
    features = SparseFeatures(to_csr(x), propagator) if sparse else DenseFeatures(propagator @ x)
    kernel = RBF(10.0)
    for part in torch.arange(columns).split(128):
        kernel(features, features.rows(part))


def feature_choice(repeat: int, nodes: int = 8000, words: int = 1500, columns: int = 512) -> list[dict[str, Any]]:
    results = []
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(nodes, (2, 4 * nodes), generator=generator)
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    print(f"{'nonzero':<10}{'dense':>9}{'sparse':>9}   seconds for {columns} columns")
    for density in (0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2):
        x = (torch.rand(nodes, words, generator=generator) < density).float()
        propagator = Topology(edges, None, nodes).matrix("gcn", "in", x).adj_t
        dense = median_seconds(repeat, evaluate, x, propagator, False, columns)
        sparse = median_seconds(repeat, evaluate, x, propagator, True, columns)
        results.append({"nonzero": density, "dense": dense, "sparse": sparse})
        print(f"{density:<10}{dense:>9.3f}{sparse:>9.3f}", flush=True)
    return results


def scores(data: Data, name: str, gram: Dense | LowRank) -> tuple[Tensor, float]:
    """Centred scores at step 0, and the seconds they took."""
    start = time.perf_counter()
    model = GCKM(data.num_features, out_channels=int(data.y.max()) + 1, gram=gram, **SETTINGS[name])
    Trainer(model, steps=0, progress=False).fit(data)
    values = model.readout.scores.double()
    return values - values.mean(dim=0), time.perf_counter() - start


def precision_choice(root: str | None, seeds: int = 8) -> list[dict[str, Any]]:
    """How far low-rank scores are from exact ones, and on how many nodes both choose the same class."""
    results = []
    print(f"{'dataset':<10}{'max rank':>9}{'tol':>6}{'distance':>10}{'agreement':>11}{'spread':>8}{'seconds':>9}")
    for name in ("cora", "citeseer", "pubmed"):
        data = load_split(name, root)
        if data.num_nodes > PRECISION_NODES:
            data = subgraph(data, PRECISION_NODES)
        exact, _ = scores(data, name, Dense())
        for max_rank, tol in PRECISIONS:
            runs = [scores(data, name, LowRank(max_rank, tol, seed=seed)) for seed in range(seeds)]
            distance = statistics.mean(float((s - exact).norm() / exact.norm()) for s, _ in runs)
            agreement = [float((s.argmax(1) == exact.argmax(1)).double().mean()) for s, _ in runs]
            result = {
                "dataset": name,
                "nodes": data.num_nodes,
                "max_rank": max_rank,
                "tol": tol,
                "distance": distance,
                "agreement": statistics.mean(agreement),
                "agreement_spread": statistics.stdev(agreement),
                "seconds": statistics.median(seconds for _, seconds in runs),
            }
            results.append(result)
            print(f"{name:<10}{max_rank:>9}{tol:>6g}{distance:>10.3f}{100 * result['agreement']:>11.2f}"
                  f"{100 * result['agreement_spread']:>8.2f}{result['seconds']:>9.3f}", flush=True)  # fmt: skip
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/policies.json"))
    args = parser.parse_args()
    content = {
        "benchmark": "policies",
        "version": __version__,
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "dense_below": Auto().dense_below,
        "sparse_below": SPARSE_BELOW,
        "low_rank": {"max_rank": LowRank().max_rank, "tol": LowRank().tol},
        "features": feature_choice(args.repeat),
        "gram": gram_choice(args.root, args.repeat),
        "precision": precision_choice(args.root),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
