"""Predictions for new nodes: how many per minute, in how much memory, from a file of which size.

    python benchmarks/inference.py                    # ogbn-arxiv's size, rank 1024; JSON in out/
    python benchmarks/inference.py --nodes 20000 --new-nodes 50000 --rank 256

A model is fitted to a synthetic graph (see ``scale.py``) and written with ``save(path, inductive=True)``. Another
process, which has never seen that graph, loads the file and predicts the classes of all nodes of a larger one.
"""

import argparse
import json
import multiprocessing
import platform
import resource
import time
from pathlib import Path
from typing import Any, cast

import torch
from scale import ARXIV, synthetic_graph

from torch_gckm import GCKM, Trainer, __version__
from torch_gckm.gram import LowRank


def fit(nodes: int, rank: int, path: Path) -> dict[str, Any]:
    """Fit a model and write its file."""
    data = synthetic_graph(nodes, 7 * nodes)
    model = GCKM(data.num_features, cast(list[int], ARXIV["channels"]), 40, gram=LowRank(max_rank=rank))
    start = time.perf_counter()
    history = Trainer(model, steps=0, progress=False).fit(data)
    seconds = time.perf_counter() - start
    model.save(path, inductive=True)
    return {"fit_seconds": seconds, "fit_accuracy": history.best.test_acc, "file_mb": path.stat().st_size / 2**20}


def predict(nodes: int, path: Path, progress: bool) -> dict[str, Any]:
    """Load the file and predict all nodes of another graph; its classes have other centres, so only time counts."""
    data = synthetic_graph(nodes, 7 * nodes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    model = GCKM.load(path)
    model.scores(data, progress=progress).argmax(dim=1)
    seconds = time.perf_counter() - start
    return {
        "predict_seconds": seconds,
        "nodes_per_minute": 60 * nodes / seconds,
        "data_gb": before / 2**20,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=ARXIV["nodes"], help="nodes of the fitted graph")
    parser.add_argument("--new-nodes", type=int, default=1_000_000, help="nodes to predict")
    parser.add_argument("--rank", type=int, default=1024)
    parser.add_argument("--out", type=Path, default=Path("out/inference.json"))
    parser.add_argument("--no-progress", action="store_true")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    file = args.out.with_suffix(".pt")
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads"
    result = {"benchmark": "inference", "version": __version__, "torch": torch.__version__, "machine": machine}
    result |= {"nodes": args.nodes, "new_nodes": args.new_nodes, "rank": args.rank}
    # A process each, so that its peak memory is its own.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        result |= pool.apply(fit, (args.nodes, args.rank, file))
        result |= pool.apply(predict, (args.new_nodes, file, not args.no_progress))
    file.unlink()
    args.out.write_text(json.dumps(result, indent=1))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
