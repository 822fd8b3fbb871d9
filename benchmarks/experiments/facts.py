"""Facts that need no model selection: sizes of the graphs, sparsity of the readout's system, progress of training."""

from __future__ import annotations

import torch
from authors import FEW_LABELS
from torch_geometric.utils import homophily

from experiments.common import DATASETS, Experiment, Row, Task, timed
from torch_gckm import GCKM, Trainer
from torch_gckm.kernels import as_rows

SHARES = (1e-2, 1e-3, 1e-4, 1e-5)


class Statistics(Experiment):
    """Sizes and homophily."""

    name = "statistics"
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

    @staticmethod
    def describe(row: Row) -> str:
        return f"{row['nodes']} nodes, {row['edges']} edges, homophily {row['homophily']:.3f}"


class Sparsity(Experiment):
    """Entries of the matrix of the readout's linear system that are small beside the largest one."""

    name = "sparsity"
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

    @staticmethod
    def describe(row: Row) -> str:
        return ", ".join(f"{100 * part:.1f} % below {share}" for share, part in row["small"].items())


def readout_system(kernel: torch.Tensor, labelled: torch.Tensor, lambda2: float) -> torch.Tensor:
    r"""The paper's :math:`I - R S K` at :math:`\eta = \lambda_1 = 1`."""
    r = 1.0 / kernel.sum(dim=1) - labelled.double() / lambda2
    centred = kernel - (r @ kernel) / r.sum()  # S K, with S = I - 1 1'R / 1'R1.
    return torch.eye(len(kernel), dtype=kernel.dtype) - r.unsqueeze(1) * centred


class Progress(Experiment):
    """The training curves of the paper's appendix."""

    name = "progress"
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
