"""Time and memory over the number of nodes, on synthetic attributed graphs.

Each size runs in a process of its own, so that its peak memory is its own. Beside each time stands a lower bound: the
floating-point operations of the matrix products that the method needs, at the rate that the same run measures.

- ``swept``: 40 classes, 128 features, 14 directed edges per node, rank 1024, 64 and 32 channels, 2.5 % labelled.
- ``arxiv size``: as many nodes and edges as ogbn-arxiv, rank 2048, 256 and 128 channels, and a fine-tuning step.
- ``large``: 64 features, 10 directed edges per node, 20 classes with 10 labels each, one hidden layer of 16 channels,
  rank 256, panels recomputed. The largest size needs 20 GB. ``large, stored``: the smallest one with stored panels.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from store import peak_gb
from tables import measured_with, table

from experiments.common import Experiment, Row, Rows, Task, isolated
from experiments.synthetic import few_labels, synthetic_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.gram import LowRank

ARXIV = {"nodes": 169_343, "edges": 1_166_243, "rank": 2048, "channels": (256, 128)}
SWEPT = (20_000, 50_000, 100_000, 300_000, 1_000_000)
LARGE = (1_000_000, 3_000_000, 10_000_000)
QUICK = 5_000
OF_LARGE: dict[str, Any] = {
    "degree": 5,  # Pairs per node: 10 directed edges.
    "rank": 256,
    "channels": (16,),
    "classes": 20,
    "features": 64,
    "labels": 10,
    "signal": 0.3,
    "panel": "recomputed",
}
KINDS: dict[str, dict[str, Any]] = {
    "swept": {"degree": 7, "rank": 1024, "channels": (64, 32)},
    "arxiv size": {"edges": ARXIV["edges"], "rank": ARXIV["rank"], "channels": ARXIV["channels"], "step": True},
    "large": OF_LARGE,
    "large, stored": {**OF_LARGE, "panel": "stored"},
}


class Scale(Experiment):
    """How do time and memory grow with the number of nodes, up to ten million?"""

    name = "scale"
    takes = "20 min"
    default_datasets = ("synthetic",)
    keys = ("method", "nodes")
    text = """\
![Time and memory over the number of nodes: both grow linearly](PICTURES/scale.png)

Synthetic graphs with 40 classes and 128 features, rank 1024, two cores: initialisation and readout of {nodes} nodes
take {seconds} s and {memory} GB. At ogbn-arxiv's size (169,343 nodes), with rank 2048 and 256 and 128 channels, they
take {arxiv_seconds} s and {arxiv_memory} GB (the matrix products alone: {arxiv_bound} s), and a fine-tuning step
{arxiv_step} s. {old_sizes} [Large graphs](large_graphs.md#factors-that-do-not-fit) has measurements of up to
{largest} nodes.
"""

    def tasks(self) -> list[Task]:
        sizes = {"swept": SWEPT, "arxiv size": (ARXIV["nodes"],), "large": LARGE, "large, stored": LARGE[:1]}
        chosen = self.options.chosen(tuple(KINDS), ("swept",) if self.options.quick else None)
        return [
            {"method": kind, "nodes": QUICK if self.options.quick else nodes}
            for kind in chosen
            for nodes in (sizes[kind][:1] if self.options.quick else sizes[kind])
        ]

    def run(self, task: Task) -> Row:
        job = {**KINDS[task["method"]], "nodes": task["nodes"]}
        job.setdefault("edges", job.get("degree", 7) * task["nodes"])
        if self.options.quick:
            job |= {"rank": 64, "edges": 7 * task["nodes"]}
        return isolated(measure, job)

    @staticmethod
    def describe(row: Row) -> str:
        step = "" if row["step_seconds"] is None else f", a step {row['step_seconds']:.1f} s"
        return f"{row['seconds']:.1f} s (bound {row['bound_seconds']:.1f} s{step}), {row['peak_gb']:.2f} GB"

    @classmethod
    def table(cls, rows: Rows) -> str:
        lines = [
            [
                row["method"], f"{row['nodes']:,}", f"{row['seconds']:.1f}", f"{row['bound_seconds']:.1f}",
                f"{row['peak_gb']:.1f}", f"{100 * row['accuracy']:.1f}",
            ]
            for row in rows
        ]  # fmt: skip
        return table(["", "nodes", "seconds", "products alone", "peak GB", "accuracy"], lines)

    @classmethod
    def facts(cls, rows: Rows) -> dict[str, Any]:
        swept = max((row for row in rows if row["method"] == "swept"), key=lambda row: row["nodes"])
        arxiv = [row for row in rows if row["method"] == "arxiv size"][-1]
        return {
            "old_sizes": measured_with([swept, arxiv]),
            "nodes": f"{swept['nodes']:,}",
            "seconds": f"{swept['seconds']:.0f}",
            "memory": f"{swept['peak_gb']:.1f}",
            "arxiv_seconds": f"{arxiv['seconds']:.0f}",
            "arxiv_memory": f"{arxiv['peak_gb']:.1f}",
            "arxiv_bound": f"{arxiv['bound_seconds']:.0f}",
            "arxiv_step": f"{arxiv['step_seconds']:.0f}",
            "largest": f"{max(row['nodes'] for row in rows):,}",
        }

    @classmethod
    def draw(cls, rows: Rows, folder: Path) -> None:
        swept = sorted((row for row in rows if row["method"] == "swept"), key=lambda row: row["nodes"])
        if swept:
            draw(swept, [row for row in rows if row["method"] == "arxiv size"], folder / "scale.png")


def measure(job: dict[str, Any]) -> Row:
    """One fit at step 0, and a fine-tuning step if one is asked for."""
    rate = gemm_rate()
    classes, features = job.get("classes", 40), job.get("features", 128)
    data = synthetic_graph(job["nodes"], job["edges"], classes, features, signal=job.get("signal", 0.08))
    if "labels" in job:
        data.train_mask = few_labels(data.y, job["labels"])
        data.test_mask = ~data.train_mask
    baseline = peak_gb()
    channels, rank = job["channels"], job["rank"]
    gram = LowRank(max_rank=rank, tol=0.0, panel=job.get("panel", "auto"))
    model = GCKM(data.num_features, channels, classes, gram=gram)
    start = time.perf_counter()
    history = Trainer(model, steps=0, progress=False).fit(data)
    model.predict()
    whole = time.perf_counter() - start
    peak, step = peak_gb(), None
    if job.get("step"):
        # With a second step to come, the first one includes its gradient: optimiser, solve, objective, gradient.
        fine_tuned = Trainer(model, steps=2, progress=False).fit(data)
        step = fine_tuned.records[1].seconds - fine_tuned.records[0].seconds
    n, widths = job["nodes"], (data.num_features, *channels)
    flops = sum(2 * n * rank * width + 3 * n * rank**2 for width in widths)
    return {
        **{key: value for key, value in job.items() if key not in ("step", "degree")},
        "seconds": history.best.seconds,
        "with_predictions_seconds": whole,
        "cpu_seconds": time.process_time(),
        "step_seconds": step,
        "bound_seconds": flops / rate,
        "gemm_gflops": rate / 1e9,
        "peak_gb": peak,
        "peak_with_step_gb": peak_gb(),
        "data_gb": baseline,
        "accuracy": history.best.test_acc,
        "ranks": [*(conv.fit.landmarks.numel() for conv in model.layers), model.readout.fit.landmarks.numel()],
    }


def gemm_rate() -> float:
    """Single-precision floating-point operations per second of a large matrix product."""
    a = torch.randn(3000, 3000)
    best = 0.0
    for _ in range(4):
        start = time.perf_counter()
        a @ a
        best = max(best, 2 * 3000**3 / (time.perf_counter() - start))
    return best


def draw(swept: Rows, arxiv: Rows, path: Path) -> None:
    """Seconds and memory over nodes, on logarithmic axes."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    sizes = [row["nodes"] for row in swept]
    axes[0].loglog(sizes, [row["seconds"] for row in swept], "o-", label="fit")
    axes[0].loglog(sizes, [row["bound_seconds"] for row in swept], "--", label="its matrix products alone")
    axes[1].loglog(sizes, [row["peak_gb"] for row in swept], "o-", label="peak memory")
    for row in arxiv:
        for axis, key in zip(axes, ("seconds", "peak_gb"), strict=True):
            axis.loglog(row["nodes"], row[key], "*", ms=12, label=f"arxiv size, rank {row['rank']}")
    axes[0].set(xlabel="nodes", ylabel="seconds")
    axes[1].set(xlabel="nodes", ylabel="GB")
    for axis in axes:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3, which="both")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
