"""One synthetic graph fitted by several processes of one machine: memory, processor time and what they exchange.

Every process reads its own part of a folder and computes with one thread. On one machine this is no faster than
threads; it shows what a process of many machines would need. Resumable: rows are appended to a file.

    python benchmarks/processes.py                  # 1, 2 and 4 processes; rows and a picture
    python benchmarks/processes.py --nodes 200000   # one size
"""

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from scale import synthetic_graph
from store import Row, Task, run_tasks

from torch_gckm import GCKM, Trainer
from torch_gckm.datasets import PerClassSplit, read_shard, write_shards
from torch_gckm.gram import LowRank

CLASSES, CHANNELS, FEATURES, EDGES = 40, (64, 32), 128, 7
SIZES = (50_000, 100_000, 200_000, 400_000)


def fit_part(rank: int, task: Task, folder: str) -> None:
    """What one of the processes does."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting-{task['processes']}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=task["processes"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, clock = time.process_time(), time.perf_counter()
    graph = read_shard(f"{folder}/graph")
    model = GCKM(FEATURES, CHANNELS, CLASSES, gram=LowRank(max_rank=task["rank"], tol=0.0))
    history = Trainer(model, steps=task["steps"], progress=False).fit(graph)
    row = {
        "cpu": time.process_time() - started,
        "seconds": time.perf_counter() - clock,
        "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20,
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


def describe(row: Row) -> str:
    """A row in a few words."""
    sent = sum(count for kind, count in row["sent_mb"].items() if kind != "halo")
    return (
        f"{row['cpu_seconds']:.1f} CPU-s in all, {row['memory_gb']:.2f} GB each, "
        f"{sent:.1f} MB sent, halo {row['sent_mb'].get('halo', 0.0):.1f} MB"
    )


def draw_picture(rows: list[Row], path: Path) -> None:
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
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200_000, help="for 1, 2 and 4 processes, rank 1024")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="for 2 processes, rank 256")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/processes.jsonl"))
    parser.add_argument("--picture", type=Path, default=Path("out/processes.png"))
    args = parser.parse_args()
    tasks: list[Task] = [
        {"nodes": args.nodes, "processes": count, "rank": 1024, "steps": 0, "compare": False} for count in (1, 2, 4)
    ]
    tasks += [{"nodes": n, "processes": 2, "rank": 256, "steps": 0, "compare": n == 50_000} for n in args.sizes]
    rows = run_tasks(tasks, measure, args.out, describe)
    args.picture.parent.mkdir(parents=True, exist_ok=True)
    draw_picture(rows, args.picture)


if __name__ == "__main__":
    main()
