"""Time and memory over the number of nodes, on synthetic attributed graphs.

Degree-corrected blocks: 40 classes, 128 features, homophily 0.65 as ogbn-arxiv
has it. Each size runs in a process of its own, so that its peak memory is its
own. Beside each time stands a lower bound: the floating-point operations of the
matrix products that the method needs, at the rate that the same run measures.

    python benchmarks/scale.py                 # all sizes; JSON and a picture in out/
    python benchmarks/scale.py --sizes 20000   # one of them
    python benchmarks/scale.py --large         # 1 to 10 million nodes, panels recomputed

With ``--large``: 64 features, 10 edges per node, 20 classes with 10 labels each, one
hidden layer of 16 channels, rank 256. The largest size needs 20 GB.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import time
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from torch_gckm import GCKM, Trainer, __version__
from torch_gckm.gram import LowRank

LARGE: dict[str, Any] = {
    "edges": 5,  # Pairs per node: 10 directed edges.
    "rank": 256,
    "channels": (16,),
    "classes": 20,
    "features": 64,
    "labels": 10,
    "signal": 0.3,
}
ARXIV = {"nodes": 169_343, "edges": 1_166_243, "rank": 2048, "channels": (256, 128)}


def synthetic_graph(
    num_nodes: int,
    num_edges: int,
    classes: int = 40,
    features: int = 128,
    homophily: float = 0.65,
    seed: int = 0,
    signal: float = 0.08,
) -> Data:
    """Blocks of unequal size, degrees with a heavy tail, features around a centre per class."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand(classes, generator=generator).square() + 0.1
    y = torch.multinomial(shares, num_nodes, replacement=True, generator=generator)
    y, _ = y.sort()
    start = torch.searchsorted(y, torch.arange(classes + 1))
    # Endpoints with a heavy-tailed popularity, inside the own block or anywhere.
    popularity = (1.0 - torch.rand(num_nodes, generator=generator)).pow(-0.5).clamp(max=50.0)
    cumulative = popularity.double().cumsum(0)

    def draw(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """One node for each pair of bounds, proportionally to popularity."""
        padded = torch.cat([torch.zeros(1, dtype=torch.float64), cumulative])
        target = padded[low] + torch.rand(low.numel(), generator=generator).double() * (padded[high] - padded[low])
        return torch.searchsorted(cumulative, target).clamp(max=num_nodes - 1)

    everywhere = torch.zeros(num_edges, dtype=torch.long)
    source = draw(everywhere, everywhere + num_nodes)
    inside = torch.rand(num_edges, generator=generator) < (homophily - 1 / classes) / (1 - 1 / classes)
    low = torch.where(inside, start[y[source]], 0)
    high = torch.where(inside, start[y[source] + 1], num_nodes)
    edges = torch.stack([source, draw(low, high)])
    x = signal * torch.randn(classes, features, generator=generator)[y]
    x += torch.randn(num_nodes, features, generator=generator)
    train_mask = torch.rand(num_nodes, generator=generator) < 0.025
    order = torch.randperm(num_nodes, generator=generator)
    place = torch.argsort(order)
    edge_index = place[torch.cat([edges, edges.flip(0)], dim=1)]
    return Data(x=x[order], edge_index=edge_index, y=y[order], train_mask=train_mask, test_mask=~train_mask)


def few_labels(y: torch.Tensor, per_class: int) -> torch.Tensor:
    """A mask of the first nodes of every class, whose order is random."""
    mask = torch.zeros_like(y, dtype=torch.bool)
    for number in range(int(y.max()) + 1):
        mask[(y == number).nonzero()[:per_class, 0]] = True
    return mask


def gemm_rate() -> float:
    """Single-precision floating-point operations per second of a large matrix product."""
    a = torch.randn(3000, 3000)
    best = 0.0
    for _ in range(4):
        start = time.perf_counter()
        a @ a
        best = max(best, 2 * 3000**3 / (time.perf_counter() - start))
    return best


def run(job: dict[str, Any]) -> dict[str, Any]:
    rate = gemm_rate()
    load, classes = os.getloadavg()[0], job.get("classes", 40)
    features, signal = job.get("features", 128), job.get("signal", 0.08)
    data = synthetic_graph(job["nodes"], job["edges"], classes, features, signal=signal)
    if "labels" in job:
        data.train_mask = few_labels(data.y, job["labels"])
        data.test_mask = ~data.train_mask
    baseline = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    channels, rank = job["channels"], job["rank"]
    gram = LowRank(max_rank=rank, tol=0.0, panel=job.get("panel", "auto"))
    model = GCKM(data.num_features, channels, classes, gram=gram)
    start = time.perf_counter()
    history = Trainer(model, steps=0, progress=False).fit(data)
    model.predict()
    whole = time.perf_counter() - start
    peak_fit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = None
    if job["step"]:
        # With a second step to come, the first one includes its gradient: optimiser, solve, objective, gradient.
        fine_tuned = Trainer(model, steps=2, progress=False).fit(data)
        step = fine_tuned.records[1].seconds - fine_tuned.records[0].seconds
    n, widths = job["nodes"], (data.num_features, *channels)
    flops = sum(2 * n * rank * width + 3 * n * rank**2 for width in widths)
    return {
        **job,
        "seconds": history.best.seconds,
        "with_predictions_seconds": whole,
        "cpu_seconds": time.process_time(),
        "threads": torch.get_num_threads(),
        "load_before": load,
        "step_seconds": step,
        "bound_seconds": flops / rate,
        "gemm_gflops": rate / 1e9,
        "peak_gb": peak_fit / 2**20,
        "peak_with_step_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "data_gb": baseline / 2**20,
        "accuracy": history.best.test_acc,
        "ranks": [
            *(conv.fit.landmarks.numel() for conv in model.layers),
            model.readout.fit.landmarks.numel(),
        ],
    }


def draw_picture(results: list[dict[str, Any]], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    swept = [r for r in results if r["name"] != "arxiv size"]
    sizes = [r["nodes"] for r in swept]
    axes[0].loglog(sizes, [r["seconds"] for r in swept], "o-", label="fit")
    axes[0].loglog(sizes, [r["bound_seconds"] for r in swept], "--", label="its matrix products alone")
    axes[1].loglog(sizes, [r["peak_gb"] for r in swept], "o-", label="peak memory")
    for r in results:
        if r["name"] == "arxiv size":
            axes[0].loglog(r["nodes"], r["seconds"], "*", ms=12, label=f"arxiv size, rank {r['rank']}")
            axes[1].loglog(r["nodes"], r["peak_gb"], "*", ms=12, label=f"arxiv size, rank {r['rank']}")
    axes[0].set(xlabel="nodes", ylabel="seconds")
    axes[1].set(xlabel="nodes", ylabel="GB")
    for axis in axes:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3, which="both")
    figure.savefig(path, dpi=150)


def slope(results: list[dict[str, Any]], key: str) -> float:
    x = torch.tensor([float(r["nodes"]) for r in results]).log()
    y = torch.tensor([float(r[key]) for r in results]).log()
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=None)
    parser.add_argument("--large", action="store_true", help="millions of nodes, see above")
    parser.add_argument("--panel", default=None, help="'stored' or 'recomputed'; by default recomputed if --large")
    parser.add_argument("--rank", type=int, default=1024)
    parser.add_argument("--arxiv", action=argparse.BooleanOptionalAction, default=True, help="also arxiv's exact size")
    parser.add_argument("--out", type=Path, default=Path("out/scale.json"))
    args = parser.parse_args()
    jobs: list[dict[str, Any]] = [
        {
            "name": f"{n:,}",
            "nodes": n,
            "edges": 7 * n,
            "rank": args.rank,
            "channels": (64, 32),
            "step": False,
            "panel": args.panel or "auto",
        }
        for n in args.sizes or [20_000, 50_000, 100_000, 300_000, 1_000_000]
    ]
    if args.large:
        sizes, panel = args.sizes or [1_000_000, 3_000_000, 10_000_000], args.panel or "recomputed"
        jobs = [
            {**LARGE, "name": f"{n:,}", "nodes": n, "edges": LARGE["edges"] * n, "panel": panel, "step": False}
            for n in sizes
        ]
    elif args.arxiv:
        jobs.append({"name": "arxiv size", "step": True, **ARXIV})
    context = multiprocessing.get_context("spawn")
    results = []
    for job in jobs:
        with context.Pool(1) as pool:
            result = pool.apply(run, (job,))
        results.append(result)
        step = "" if result["step_seconds"] is None else f", a step {result['step_seconds']:.1f} s"
        print(
            f"{result['name']:>12} nodes, rank {result['rank']}: {result['seconds']:.1f} s (bound "
            f"{result['bound_seconds']:.1f} s{step}), {result['peak_gb']:.2f} GB, "
            f"accuracy {100 * result['accuracy']:.1f} %",
            flush=True,
        )
    swept = [r for r in results if r["name"] != "arxiv size"]
    content: dict[str, Any] = {
        "benchmark": "scale",
        "version": __version__,
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "results": results,
    }
    if len(swept) > 1:
        content["slope_seconds"], content["slope_memory"] = slope(swept, "seconds"), slope(swept, "peak_gb")
        content["slope_cpu_seconds"] = slope(swept, "cpu_seconds")
        print(f"slope in log-log: time {content['slope_seconds']:.2f}, memory {content['slope_memory']:.2f}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(content, indent=1))
    if swept:
        draw_picture(results, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
