"""Facts that need no model selection: sizes of the graphs, sparsity of the readout's system, progress of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from authors import FEW_LABELS
from paper_numbers import STATISTICS
from tables import table, title
from torch_geometric.utils import homophily

from experiments.common import DATASETS, Experiment, Row, Rows, Task, timed
from torch_gckm import GCKM, Trainer
from torch_gckm.kernels import as_rows

SHARES = (1e-2, 1e-3, 1e-4, 1e-5)


class Statistics(Experiment):
    """How large and how homophilous are the graphs?"""

    name = "statistics"
    takes = "1 min"
    keys = ("dataset",)
    default_datasets = (*DATASETS, "physics")

    def tasks(self) -> list[Task]:
        return [{"dataset": name} for name in self.options.datasets]

    def run(self, task: Task) -> Row:
        data = self.load(task["dataset"])
        return {
            "nodes": data.num_nodes,
            "edges": data.num_edges // 2,
            "features": data.num_features,
            "classes": int(data.y.max()) + 1,
            "homophily": float(homophily(data.edge_index, data.y, method="edge_insensitive")),
        }

    @classmethod
    def table(cls, rows: Rows) -> str:
        lines = []
        for row in rows:
            numbers = [f"{row[key]:,}" for key in ("nodes", "edges", "features", "classes")]
            known = STATISTICS.get(row["dataset"])
            note = f" ({known[4]:.3f})" if known else ""
            lines.append([title(row["dataset"]), *numbers, f"{row['homophily']:.3f}{note}"])
        return table(["", "nodes", "edges", "features", "classes", "homophily"], lines)

    @staticmethod
    def describe(row: Row) -> str:
        return f"{row['nodes']} nodes, {row['edges']} edges, homophily {row['homophily']:.3f}"


class Sparsity(Experiment):
    """How sparse is the readout's linear system?"""

    name = "sparsity"
    takes = "2 min"
    keys = ("dataset",)
    default_datasets = ("cora", "citeseer", "chameleon", "squirrel")

    def tasks(self) -> list[Task]:
        return [{"dataset": name} for name in self.options.datasets]

    def run(self, task: Task) -> Row:
        data = self.load(task["dataset"], "few_labels")
        settings = FEW_LABELS[task["dataset"]]
        model = GCKM(data.num_features, out_channels=int(data.y.max()) + 1, **settings)
        with torch.no_grad():
            model.initialize(data).solve(data)
            kernel = model.readout.kernel(as_rows(model.layers[-1].h.double()))
        matrix = readout_system(kernel, data.train_mask, settings["lambda2"]).abs()
        largest = float(matrix.max())
        return {"small": {f"{share:g}": float((matrix < share * largest).double().mean()) for share in SHARES}}

    @classmethod
    def table(cls, rows: Rows) -> str:
        shares = list(rows[0]["small"])
        lines = [[title(row["dataset"]), *(f"{100 * row['small'][share]:.1f} %" for share in shares)] for row in rows]
        return table(["entries below, relative to the largest", *shares], lines)

    @staticmethod
    def describe(row: Row) -> str:
        return ", ".join(f"{100 * part:.1f} % below {share}" for share, part in row["small"].items())


def readout_system(kernel: torch.Tensor, labelled: torch.Tensor, lambda2: float) -> torch.Tensor:
    r"""The paper's :math:`I - R S K` at :math:`\eta = \lambda_1 = 1`."""
    r = 1.0 / kernel.sum(dim=1) - labelled.double() / lambda2
    centred = kernel - (r @ kernel) / r.sum()  # S K, with S = I - 1 1'R / 1'R1.
    return torch.eye(len(kernel), dtype=kernel.dtype) - r.unsqueeze(1) * centred


class Progress(Experiment):
    """What do accuracy, objective and orthogonality do in training?"""

    name = "progress"
    takes = "8 min"
    keys = ("dataset", "start")
    text = """\
**Training progress**: [accuracies, objective and orthogonality error of every step](PICTURES/training_progress.png),
from kernel PCA and from a random start. {version}
"""
    default_datasets = ("citeseer", "chameleon")

    def tasks(self) -> list[Task]:
        return [
            {"dataset": name, "start": start} for name in self.options.datasets for start in ("kernel_pca", "random")
        ]

    def run(self, task: Task) -> Row:
        data = self.load(task["dataset"], "few_labels_folds")
        data.train_mask, data.val_mask = data.train_mask[:, 0].clone(), data.val_mask[:, 0].clone()
        settings = FEW_LABELS[task["dataset"]]
        model = GCKM(data.num_features, out_channels=int(data.y.max()) + 1, gram="dense", **settings)
        steps = 3 if self.options.quick else 30 if task["start"] == "kernel_pca" else 100
        trainer = Trainer(model, steps=steps, init=task["start"], progress=False)
        history, seconds = timed(lambda: trainer.fit(data))
        columns = {key: value for key, value in history.to_dict().items() if isinstance(value, list)}
        kept = {key: [None if number != number else number for number in value] for key, value in columns.items()}
        return {"history": kept, "best_step": history.best_step, "seconds": seconds}

    @staticmethod
    def describe(row: Row) -> str:
        test = row["history"]["test_acc"]
        return f"test accuracy {100 * test[0]:.1f} at first, {100 * test[-1]:.1f} at last ({row['seconds']:.0f} s)"

    @classmethod
    def table(cls, rows: Rows) -> str:
        lines = []
        for row in rows:
            test = row["history"]["test_acc"]
            lines.append([title(row["dataset"]), row["start"], f"{100 * test[0]:.1f}", f"{100 * test[-1]:.1f}"])
        return table(["", "start", "test accuracy, first", "last"], lines)

    @classmethod
    def draw(cls, rows: Rows, folder: Path) -> None:
        """Accuracies and scores, the objective and the orthogonality error of every step."""
        figure, panels = plt.subplots(3, len(rows), figsize=(4.2 * len(rows), 8), squeeze=False, layout="constrained")
        for column, row in enumerate(rows):
            _draw_history(panels[:, column], row)
        for panel, label in zip(panels[:, 0], ("%", "objective", "orthogonality error"), strict=True):
            panel.set_ylabel(label)
        panels[0][0].legend(fontsize=8)
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / "training_progress.png", dpi=120)
        plt.close(figure)


def _draw_history(panels: Any, row: Row) -> None:
    history = row["history"]
    top, middle, bottom = panels
    curves = {"train_acc": "training", "val_acc": "validation", "test_acc": "test", "cosine": "cosine score"}
    for key, label in curves.items():
        top.plot(history["step"], [100 * value for value in history[key]], label=label)
    top.plot(0, 100 * history["leave_one_out"][0], "kx", label="leave-one-out, step 0")
    top.axvline(row["best_step"], color="grey", lw=0.8, ls=":")
    start = "kernel PCA" if row["start"] == "kernel_pca" else "random start"
    top.set(title=f"{title(row['dataset'])}, {start}", ylim=(0, 103))
    middle.plot(history["step"], history["loss"])
    bottom.semilogy(history["step"], history["orthogonality"])
    bottom.set_xlabel("step")
    for panel in panels:
        panel.grid(alpha=0.3)
