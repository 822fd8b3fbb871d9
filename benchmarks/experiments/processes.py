"""One synthetic graph fitted by several processes of one machine: memory, processor time and what they exchange.

Every process reads its own part of a folder and computes with one thread. On one machine this is no faster than
threads; it shows what a process of many machines would need.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from store import peak_gb
from tables import table

from experiments.common import Experiment, Row, Rows, Task
from experiments.synthetic import synthetic_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.datasets import PerClassSplit, read_shard, write_shards
from torch_gckm.gram import LowRank

CLASSES, CHANNELS, FEATURES, EDGES = 40, (64, 32), 128, 7
NODES = 200_000  # For 1, 2 and 4 processes, rank 1024.
SIZES = (50_000, 100_000, 200_000, 400_000)  # For 2 processes, rank 256.
COMPARED = 50_000  # The size whose numbers are compared with those of one process.


class Processes(Experiment):
    """What do several processes that share a graph need, each, and what do they send?"""

    name = "processes"
    takes = "5 min"
    default_datasets = ("synthetic",)
    keys = ("nodes", "processes", "rank")

    def tasks(self) -> list[Task]:
        if self.options.quick:
            return [{"nodes": 8000, "processes": count, "rank": 64, "steps": 0, "compare": False} for count in (1, 2)]
        first = [{"nodes": NODES, "processes": n, "rank": 1024, "steps": 0, "compare": False} for n in (1, 2, 4)]
        return first + [{"nodes": n, "processes": 2, "rank": 256, "steps": 0, "compare": n == COMPARED} for n in SIZES]

    def run(self, task: Task) -> Row:
        return measure(task)

    @staticmethod
    def describe(row: Row) -> str:
        sent = sum(count for kind, count in row["sent_mb"].items() if kind != "halo")
        return (
            f"{row['cpu_seconds']:.1f} CPU-s in all, {row['memory_gb']:.2f} GB each, "
            f"{sent:.1f} MB sent, halo {row['sent_mb'].get('halo', 0.0):.1f} MB"
        )

    @classmethod
    def table(cls, rows: Rows) -> str:
        lines = [
            [
                f"{row['nodes']:,}", str(row["processes"]), str(row["rank"]), f"{row['cpu_seconds']:.1f}",
                f"{row['memory_gb']:.2f}", f"{sum(row['sent_mb'].values()):.1f}",
            ]
            for row in rows
        ]  # fmt: skip
        return table(["nodes", "processes", "rank", "CPU-s, all", "GB each", "MB sent"], lines)

    @classmethod
    def draw(cls, rows: Rows, folder: Path) -> None:
        if {1024, 256} <= {row["rank"] for row in rows}:
            draw(rows, folder / "processes.png")


def fit_part(rank: int, task: Task, folder: str) -> None:
    """What one of the processes does."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting-{task['processes']}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=task["processes"])
    before = peak_gb()
    started, clock = time.process_time(), time.perf_counter()
    graph = read_shard(f"{folder}/graph")
    model = GCKM(FEATURES, CHANNELS, CLASSES, gram=LowRank(max_rank=task["rank"], tol=0.0))
    history = Trainer(model, steps=task["steps"], progress=False).fit(graph)
    row = {
        "cpu": time.process_time() - started,
        "seconds": time.perf_counter() - clock,
        "memory": peak_gb() - before,
        "sent": dict(graph.partition.processes.sent),
        "accuracy": history.best.test_acc,
        "landmarks": model.readout.fit.landmarks,
        "scores": model.readout.scores,
    }
    torch.save(row, f"{folder}/row-{rank}.pt")
    dist.destroy_process_group()


def fit(task: Task, folder: Path) -> list[Row]:
    """Start all processes; what each of them reports."""
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=fit_part, args=(rank, task, str(folder))) for rank in range(task["processes"])]
    for process in started:
        process.start()
    for process in started:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a process ended with {process.exitcode}")
    (folder / f"meeting-{task['processes']}").unlink(missing_ok=True)
    return [torch.load(folder / f"row-{rank}.pt") for rank in range(task["processes"])]


def measure(task: Task) -> Row:
    """A row: sums and means over processes, and how far scores are from those of one process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nodes = task["nodes"]
        data = PerClassSplit(20, seed=0)(synthetic_graph(nodes, EDGES * nodes, CLASSES, FEATURES))
        write_shards(data, folder / "graph")
        del data
        parts = fit(task, folder)
        row: dict[str, Any] = {
            "cpu_seconds": sum(part["cpu"] for part in parts),
            "seconds": max(part["seconds"] for part in parts),
            "memory_gb": max(part["memory"] for part in parts),
            "sent_mb": {kind: count / 1e6 for kind, count in parts[0]["sent"].items()},
            "accuracy": parts[0]["accuracy"],
        }
        if task["processes"] > 1 and task["compare"]:
            (alone,) = fit({**task, "processes": 1}, folder)
            scores, expected = torch.cat([part["scores"] for part in parts]), alone["scores"]
            row["same_landmarks"] = torch.equal(parts[0]["landmarks"], alone["landmarks"])
            row["mean_difference"] = float((scores - expected).abs().mean())
            row["same_classes"] = float((scores.argmax(dim=1) == expected.argmax(dim=1)).double().mean())
        return row


def draw(rows: Rows, path: Path) -> None:
    """Memory and processor time over processes, and bytes over nodes."""
    by_processes = [row for row in rows if row["rank"] == 1024]
    by_nodes = [row for row in rows if row["rank"] == 256]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    for axis, key, label in zip(axes, ("memory_gb", "cpu_seconds"), ("GB per process", "CPU-s, all"), strict=False):
        values = [row[key] for row in by_processes]
        axis.plot([row["processes"] for row in by_processes], values, "o-")
        axis.set(xlabel="processes", ylabel=label, ylim=(0, 1.1 * max(values)), xticks=[1, 2, 4])
    nodes = [row["nodes"] for row in by_nodes]
    for kind in ("sum", "gather", "broadcast", "halo"):
        axes[2].loglog(nodes, [row["sent_mb"].get(kind, 0.0) for row in by_nodes], "o-", label=kind)
    axes[2].set(xlabel="nodes", ylabel="MB sent by each of 2 processes")
    axes[2].set_xticks(nodes, [f"{n:,}" for n in nodes], fontsize=8)
    axes[2].minorticks_off()
    axes[2].legend(fontsize=8, loc="center right", bbox_to_anchor=(1.0, 0.35))
    for axis in axes:
        axis.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
