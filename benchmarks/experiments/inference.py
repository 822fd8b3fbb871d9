"""Predictions for new nodes: how many per minute, in how much memory, from a file of which size.

A model is fitted to a synthetic graph of ogbn-arxiv's size and written with ``save(path, inductive=True)``. Another
process, which has never seen that graph, loads the file and predicts the classes of all nodes of a larger one.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, cast

from store import peak_gb
from tables import table

from experiments.common import Experiment, Row, Rows, Task, isolated
from experiments.scale import ARXIV
from experiments.synthetic import synthetic_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.gram import LowRank

NEW_NODES, RANK = 1_000_000, 1024


class Inference(Experiment):
    """How fast are the nodes of a new graph classified, by a file of which size?"""

    name = "inference"
    takes = "2 min"
    default_datasets = ("synthetic",)
    keys = ("nodes", "new_nodes")

    def tasks(self) -> list[Task]:
        if self.options.quick:
            return [{"nodes": 3000, "new_nodes": 5000, "rank": 64}]
        return [{"nodes": ARXIV["nodes"], "new_nodes": NEW_NODES, "rank": RANK}]

    def run(self, task: Task) -> Row:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.pt"
            fitted = isolated(fit, task["nodes"], task["rank"], file)
            return {**fitted, **isolated(predict, task["new_nodes"], file)}

    @staticmethod
    def describe(row: Row) -> str:
        return f"fit {row['fit_seconds']:.0f} s, file {row['file_mb']:.1f} MB, {row['nodes_per_minute']:,.0f} a minute"

    @classmethod
    def table(cls, rows: Rows) -> str:
        keys = ("nodes", "new_nodes", "fit_seconds", "file_mb", "predict_seconds", "data_gb", "peak_gb")
        return table(keys, [[f"{row[key]:,.5g}" for key in keys] for row in rows])


def fit(nodes: int, rank: int, path: Path) -> dict[str, Any]:
    """Fit a model and write its file."""
    data = synthetic_graph(nodes, 7 * nodes)
    model = GCKM(data.num_features, cast(list[int], ARXIV["channels"]), 40, gram=LowRank(max_rank=rank))
    start = time.perf_counter()
    history = Trainer(model, steps=0, progress=False).fit(data)
    seconds = time.perf_counter() - start
    model.save(path, inductive=True)
    return {"fit_seconds": seconds, "fit_accuracy": history.best.test_acc, "file_mb": path.stat().st_size / 2**20}


def predict(nodes: int, path: Path) -> dict[str, Any]:
    """Load the file and predict all nodes of another graph; its classes have other centres, so only time counts."""
    data = synthetic_graph(nodes, 7 * nodes)
    before = peak_gb()
    start = time.perf_counter()
    model = GCKM.load(path)
    model.scores(data).argmax(dim=1)
    seconds = time.perf_counter() - start
    return {
        "predict_seconds": seconds,
        "nodes_per_minute": 60 * nodes / seconds,
        "data_gb": before,
        "peak_gb": peak_gb(),
    }
