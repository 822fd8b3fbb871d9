"""The measurements behind three defaults: which kernel matrix, how exact a low-rank one, which form of features.

``gram="auto"`` represents up to ``Auto().dense_below`` nodes exactly: the part ``gram`` fits random subgraphs of real
datasets both ways. Features with fewer nonzero entries than ``SPARSE_BELOW`` are aggregated and compared as sparse
matrices: ``features`` evaluates kernel columns both ways. ``precision`` compares low-rank fits with the exact one; no
label but the training labels is looked at.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from tables import table, title
from torch import Tensor
from torch_geometric.data import Data

from experiments.common import Experiment, Row, Rows, Task
from experiments.speed import SETTINGS, load_split
from torch_gckm import GCKM, Trainer
from torch_gckm.gram import Dense, LowRank
from torch_gckm.graph import Topology
from torch_gckm.kernels import RBF, DenseFeatures, SparseFeatures
from torch_gckm.layouts import to_csr

PARTS = ("features", "gram", "precision")
DENSITIES = (0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
SIZES = (300, 600, 1000, 1500)
PRECISIONS = ((256, 0.05), (512, 0.1), (512, 0.05), (512, 0.02), (1024, 0.05), (1024, 0.02), (1024, 0.01), (2048, 0.01))
PRECISION_NODES = 6000  # The exact fit of more takes minutes.
LANDMARK_SEEDS = 8
SHAPE = {"nodes": 8000, "words": 1500, "columns": 512}  # Of the features.


class Policies(Experiment):
    """Where do exact and low-rank matrices, dense and sparse features cross over, and how exact is low rank?"""

    name = "policies"
    takes = "15 min"
    default_datasets = ("cora", "citeseer", "pubmed", "physics")
    keys = ("part", "dataset", "nodes", "steps", "nonzero", "max_rank", "tol")
    text = """\
**How exact is low rank?** With these settings the default, 512 columns and a tolerance of 0.05, chooses the class
that the exact matrix chooses for {plain} % of the nodes of {graphs} (6,000 nodes of it); 1024 columns and 0.02 for
{exact} %. {version}
"""

    def tasks(self) -> list[Task]:
        quick, options = self.options.quick, self.options
        tasks: list[Task] = []
        for part in options.chosen(PARTS):
            if part == "features":
                tasks += [{"part": part, "nonzero": density} for density in DENSITIES[: 1 if quick else None]]
            elif part == "gram":
                tasks += [
                    {"part": part, "dataset": name, "nodes": size, "steps": steps}
                    for name in options.datasets
                    if name in SETTINGS
                    for size in SIZES[: 1 if quick else None]
                    for steps in ((0,) if quick else (0, 10))
                ]
            else:
                tasks += [
                    {"part": part, "dataset": name, "max_rank": rank, "tol": tol}
                    for name in options.datasets
                    if name in SETTINGS and name != "physics"
                    for rank, tol in PRECISIONS[: 1 if quick else None]
                ]
        return tasks

    def run(self, task: Task) -> Row:
        repeat = 1 if self.options.quick else len(self.seeds)
        if task["part"] == "features":
            return feature_choice(task["nonzero"], repeat)
        data = load_split(task["dataset"], self.options.root)
        if task["part"] == "gram":
            part = subgraph(data, task["nodes"])
            work = (part, task["dataset"])
            return {
                "dense": median_seconds(repeat, fit, *work, Dense(), task["steps"]),
                "low_rank": median_seconds(repeat, fit, *work, LowRank(), task["steps"]),
            }
        size = 600 if self.options.quick else PRECISION_NODES
        part = subgraph(data, size) if data.num_nodes > size else data
        return precision(part, task, 2 if self.options.quick else LANDMARK_SEEDS)

    @staticmethod
    def describe(row: Row) -> str:
        keys = ("dense", "sparse", "low_rank", "distance", "agreement", "seconds")
        return ", ".join(f"{key} {row[key]:.3f}" for key in keys if key in row)

    @classmethod
    def table(cls, rows: Rows) -> str:
        parts = {part: [row for row in rows if row["part"] == part] for part in PARTS}
        seconds = [[f"{row['nonzero']:g}", f"{row['dense']:.3f}", f"{row['sparse']:.3f}"] for row in parts["features"]]
        fits = [
            [title(r["dataset"]), str(r["nodes"]), str(r["steps"]), f"{r['dense']:.3f}", f"{r['low_rank']:.3f}"]
            for r in parts["gram"]
        ]
        agreements = [
            [
                title(row["dataset"]), str(row["max_rank"]), f"{row['tol']:g}", f"{row['distance']:.3f}",
                f"{100 * row['agreement']:.2f}", f"{row['seconds']:.3f}",
            ]
            for row in parts["precision"]
        ]  # fmt: skip
        return "\n".join([
            table(["nonzero", "dense, s", "sparse, s"], seconds),
            table(["", "nodes", "steps", "dense, s", "low rank, s"], fits),
            table(["", "max rank", "tol", "distance", "agreement, %", "s"], agreements),
        ])  # fmt: skip

    @classmethod
    def facts(cls, rows: Rows) -> dict[str, Any]:
        def agreement(rank: int, tol: float) -> dict[str, str]:
            found = [row for row in rows if row.get("max_rank") == rank and row["tol"] == tol]
            return {title(row["dataset"]): f"{100 * row['agreement']:.0f}" for row in found}

        plain, exact = agreement(512, 0.05), agreement(1024, 0.02)
        return {"graphs": ", ".join(plain), "plain": ", ".join(plain.values()), "exact": ", ".join(exact.values())}


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
    if data.x.layout == torch.strided:
        return data.subgraph(nodes)
    x = data.x.index_select(0, nodes).to_dense()
    whole = Data(edge_index=data.edge_index, y=data.y, train_mask=data.train_mask, num_nodes=data.num_nodes)
    part = whole.subgraph(nodes)
    part.x = x
    return part


def fit(data: Data, name: str, gram: Dense | LowRank, steps: int) -> None:
    model = GCKM(data.num_features, out_channels=int(data.y.max()) + 1, gram=gram, **SETTINGS[name])
    Trainer(model, steps=steps, progress=False).fit(data)


def feature_choice(density: float, repeat: int) -> Row:
    """Seconds for kernel columns of random features, as dense and as sparse matrices."""
    nodes, words, columns = SHAPE["nodes"], SHAPE["words"], SHAPE["columns"]
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(nodes, (2, 4 * nodes), generator=generator)
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    x = (torch.rand(nodes, words, generator=generator) < density).float()
    propagator = Topology(edges, None, nodes).matrix("gcn", "in", x).adj_t
    forms = {"dense": False, "sparse": True}
    return {name: median_seconds(repeat, evaluate, x, propagator, sparse, columns) for name, sparse in forms.items()}


def evaluate(x: Tensor, propagator: Tensor, sparse: bool, columns: int) -> None:
    features = SparseFeatures(to_csr(x), propagator) if sparse else DenseFeatures(propagator @ x)
    kernel = RBF(10.0)
    for part in torch.arange(columns).split(128):
        kernel(features, features.rows(part))


def scores(data: Data, name: str, gram: Dense | LowRank) -> tuple[Tensor, float]:
    """Centred scores at step 0, and the seconds they took."""
    start = time.perf_counter()
    model = GCKM(data.num_features, out_channels=int(data.y.max()) + 1, gram=gram, **SETTINGS[name])
    Trainer(model, steps=0, progress=False).fit(data)
    values = model.readout.scores.double()
    return values - values.mean(dim=0), time.perf_counter() - start


def precision(data: Data, task: Task, seeds: int) -> Row:
    """How far low-rank scores are from exact ones, and on how many nodes both choose the same class."""
    name = task["dataset"]
    exact, _ = scores(data, name, Dense())
    runs = [scores(data, name, LowRank(task["max_rank"], task["tol"], seed=seed)) for seed in range(seeds)]
    agreement = [float((s.argmax(1) == exact.argmax(1)).double().mean()) for s, _ in runs]
    return {
        "nodes": data.num_nodes,
        "distance": statistics.mean(float((s - exact).norm() / exact.norm()) for s, _ in runs),
        "agreement": statistics.mean(agreement),
        "agreement_spread": statistics.stdev(agreement),
        "seconds": statistics.median(seconds for _, seconds in runs),
    }
