"""Whole fits side by side: this package, the paper's procedure, PyG's GCN, label spreading.

Every method sees the paper's few-label training mask, on Physics 20 labels per class. A fit of GCKM is its
initialisation, 10 fine-tuning steps and the scores of all nodes. Times are medians and accuracies means over the
repetitions (``--seeds``), each with a seed of its own; peak memory is that of a process that runs the method once,
minus what importing and loading took.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from authors import FEW_LABELS
from paper_procedure import paper_fit
from sklearn.semi_supervised import LabelSpreading
from store import peak_gb
from tables import datasets_of, table, title, unique
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.transforms import RandomNodeSplit
from torch_geometric.utils import to_scipy_sparse_matrix

from experiments.common import Experiment, Row, Rows, Task, isolated
from torch_gckm import GCKM, Trainer
from torch_gckm.datasets import load
from torch_gckm.gram import Dense, LowRank
from torch_gckm.kernels import Kernel
from torch_gckm.layouts import to_csr

SETTINGS = {**FEW_LABELS, "physics": {"hidden_channels": (64, 16)}}  # Physics, not in the paper, with the defaults.
TITLES = {
    "gckm_low_rank": "GCKM",
    "gckm_dense": 'GCKM, `gram="dense"`',
    "paper_procedure": "the paper's procedure",
    "gcn_sparse": "GCN, sparse",
    "gcn_tutorial": "GCN, dense",
}


class Speed(Experiment):
    """How long does one model take, next to the paper's procedure and PyG's GCN?"""

    name = "speed"
    takes = "15 min"
    default_datasets = ("cora", "citeseer", "pubmed", "physics")
    text = """\
**One model**: initialisation, 10 fine-tuning steps and scores of all nodes, with the authors' settings and the
paper's few-label masks (Physics: default settings, 20 labels per class). Beside it the paper's procedure as printed,
of which the last step counts (GCKM keeps the step with the best cosine score), and the GCN of PyG's tutorial. Two
cores. {version}

{table}
The dense fit of PubMed is its initialisation alone.
"""

    def tasks(self) -> list[Task]:
        names = self.options.chosen(tuple(METHODS), ("gckm_low_rank", "gcn_tutorial") if self.options.quick else None)
        known = [name for name in self.options.datasets if name in SETTINGS]
        return [
            {"dataset": name, "method": method}
            for name in known
            for method in names
            if (name, method) not in IMPOSSIBLE
        ]

    def run(self, task: Task) -> Row:
        name, method = task["dataset"], task["method"]
        repeat = 1 if self.options.quick else len(self.seeds)
        if not self.options.quick:
            repeat = max(repeat, LANDMARK_SEEDS) if method == "gckm_low_rank" else repeat
            repeat = 1 if (name, method) in SLOW else repeat
        return isolated(measure, self.options.root, name, method, repeat)

    @staticmethod
    def describe(row: Row) -> str:
        return f"{row['seconds']:.2f} s, {row['accuracy']:.2f} %, {row['peak_extra_gb']:.2f} GB"

    @classmethod
    def table(cls, rows: Rows) -> str:
        methods = unique(row["method"] for row in rows)
        return cls._table(rows, {name: TITLES.get(name, name) for name in methods})

    @classmethod
    def page_table(cls, rows: Rows) -> str:
        return cls._table(rows, TITLES)

    @staticmethod
    def _table(rows: Rows, titles: dict[str, str]) -> str:
        lines = []
        for name in datasets_of(rows):
            cells = {row["method"]: f"{row['seconds']:.1f}, {row['accuracy']:.1f}" for row in rows
                     if row["dataset"] == name}  # fmt: skip
            lines.append([title(name), *(cells.get(method, "-") for method in titles)])
        return table(["seconds, accuracy", *titles.values()], lines)


def gckm(data: Data, name: str, gram: LowRank | Dense, steps: int = 10) -> Tensor:
    model = GCKM(data.num_features, out_channels=int(data.y.max()) + 1, gram=gram, **SETTINGS[name])
    Trainer(model, steps=steps, progress=False).fit(data)
    return model.predict()


def paper(data: Data, name: str) -> Tensor:
    settings = SETTINGS[name]
    kernels: list[Kernel] = settings["kernel"]
    return paper_fit(data, settings["hidden_channels"], kernels, settings["lambda2"], settings["loss_weights"])


class TutorialGCN(torch.nn.Module):
    """The model of PyG's introduction: two layers, 16 hidden channels, dropout."""

    def __init__(self, in_channels: int, classes: int, normalize: bool) -> None:
        super().__init__()
        self.first = GCNConv(in_channels, 16, normalize=normalize)
        self.second = GCNConv(16, classes, normalize=normalize)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = torch.nn.functional.dropout(self.first(x, edges).relu(), training=self.training)
        return self.second(x, edges)


def gcn(data: Data, seed: int, sparse: bool) -> Tensor:
    torch.manual_seed(seed)
    x, edges = data.x, data.edge_index
    if sparse:
        index, weight = gcn_norm(edges, None, data.num_nodes)
        size = (data.num_nodes, data.num_nodes)
        edges = to_csr(torch.sparse_coo_tensor(index.flip(0), weight, size, check_invariants=False).coalesce())
        x = to_csr(x)
    elif x.layout != torch.strided:
        x = x.to_dense()
    model = TutorialGCN(data.num_features, int(data.y.max()) + 1, normalize=not sparse)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(200):
        optimizer.zero_grad()
        out = model(x, edges)[data.train_mask]
        torch.nn.functional.cross_entropy(out, data.y[data.train_mask]).backward()
        optimizer.step()
    return model.eval()(x, edges).argmax(dim=1)


def label_spreading(data: Data) -> Tensor:
    """Over the graph itself: its adjacency matrix takes the place of the kernel."""
    y = torch.where(data.train_mask, data.y, -1).numpy()
    adjacency = to_scipy_sparse_matrix(data.edge_index, num_nodes=data.num_nodes).tocsr()
    fitted = LabelSpreading(kernel=lambda a, b: adjacency, max_iter=100, tol=1e-4).fit(y.reshape(-1, 1), y)
    return torch.from_numpy(fitted.transduction_)


METHODS: dict[str, Callable[[Data, str, int], Tensor]] = {
    "gckm_low_rank": lambda data, name, seed: gckm(data, name, LowRank(seed=seed)),
    "gckm_dense": lambda data, name, seed: gckm(data, name, Dense(), steps=0 if name == "pubmed" else 10),
    "paper_procedure": lambda data, name, seed: paper(data, name),
    "gcn_tutorial": lambda data, name, seed: gcn(data, seed, sparse=False),
    "gcn_sparse": lambda data, name, seed: gcn(data, seed, sparse=True),
    "label_spreading": lambda data, name, seed: label_spreading(data),
}
# Matrices of 19,717 or 34,493 squared: hours, or more memory than there is.
IMPOSSIBLE = {("pubmed", "paper_procedure"), ("physics", "paper_procedure"), ("physics", "gckm_dense")}
# What takes minutes runs once; on PubMed the dense fit is its initialisation alone.
SLOW = {("pubmed", "gckm_dense"), ("physics", "gcn_tutorial")}
LANDMARK_SEEDS = 8  # The choice of landmarks moves single accuracies by most of a point.


def load_split(name: str, root: str | None) -> Data:
    if name != "physics":
        return load(name, root, split="few_labels")
    torch.manual_seed(0)
    return RandomNodeSplit("random", num_train_per_class=20, num_val=0, num_test=34_393)(load(name, root))


def measure(root: str | None, name: str, method: str, repeat: int) -> dict[str, Any]:
    warnings.filterwarnings("ignore", message=".*Sparse CSR.*|.*sparse.*")
    data = load_split(name, root)
    before, peak = peak_gb(), 0.0
    seconds, accuracies = [], []
    for seed in range(repeat):
        fresh = data.clone()
        start = time.perf_counter()
        predicted = METHODS[method](fresh, name, seed)
        seconds.append(time.perf_counter() - start)
        accuracies.append(100 * float((predicted == data.y)[data.test_mask].double().mean()))
        peak = peak or peak_gb()
    return {
        "seconds": statistics.median(seconds),
        "all_seconds": seconds,
        "accuracy": statistics.mean(accuracies),
        "all_accuracies": accuracies,
        "peak_gb": peak,
        "peak_extra_gb": peak - before,
    }
