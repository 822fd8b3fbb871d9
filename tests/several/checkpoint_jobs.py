"""What tests of checkpoints run in every process."""

import itertools
import os
import shutil
import signal
import time

import pytest
import torch

from tests.conftest import make_graph
from tests.train.helpers import KeepStep
from torch_gckm import GCKM
from torch_gckm.errors import GraphMismatchError, InvalidInputError, ProcessLostError
from torch_gckm.gram import LowRank
from torch_gckm.graph import ShardedGraph
from torch_gckm.kernels import RBF
from torch_gckm.train.checkpoint import Checkpoint

MODELS = {
    "plain": {},
    "learned": {
        "kernel": [RBF(3.0), RBF(0.5, learnable=True), RBF(0.2, learnable=True) * RBF(10.0).on("x")],
        "normalize": "columns",
        "class_weight": "balanced",
    },
    "no layers": {"hidden": (), "hops": 2},
}
# A model, the number of steps, and how often its checkpoint had been written when the fit was interrupted: after each
# of two layers, after step 0, and so on.
CASES = [("plain", 2, 1), ("plain", 0, 2), ("plain", 2, 3), ("learned", 2, 4)]


def graph_for(name, sharded):
    graph = make_graph(67)
    graph.x = graph.x.double()
    if name == "learned":
        graph.x = torch.where(graph.x > 1.2, graph.x, 0.0).to_sparse_csr()
    return ShardedGraph.cut(graph) if sharded else graph


def new_model(name, lambda2=0.1):
    options = dict(MODELS[name])
    hidden = options.pop("hidden", (6, 4))
    return GCKM(8, hidden, 3, gram=LowRank(max_rank=20), lambda2=lambda2, **options).double()


def fit(name, steps, checkpoint=None, *, sharded=True):
    """A fit that keeps step 1, so that its last state is not the best one."""
    model, graph = new_model(name), graph_for(name, sharded)
    history = KeepStep(model, steps, min(1, steps), checkpoint=checkpoint).fit(graph)
    return model, history


def numbers_of(model, history):
    """Rows of this process, and what all have."""
    convs = model.layers
    return {
        "rows": [*(conv.h.detach() for conv in convs), model.readout.scores, model.readout.h.detach()],
        "same": [*(conv.fit.landmarks for conv in convs), model.readout.fit.landmarks, model.readout.bias],
        "records": [[v for k, v in vars(record).items() if k != "seconds"] for record in history],
        "best": history.best_step,
        "labelled": model.readout.labelled,
    }


def interrupted(folder):
    """The checkpoints of whole fits as they were every time when they had been written."""
    for name in ("plain", "learned"):
        with pytest.MonkeyPatch.context() as patch:
            after_writing(patch, lambda kept, number, name=name: keep(kept, folder / f"{name} {number}"))
            fit(name, 1, folder / f"of {name}")


def keep(kept, path):
    kept.over.processes.barrier()
    if kept.over.rank == 0:
        shutil.copytree(kept.path, path)
    kept.over.processes.barrier()


def after_writing(patch, action):
    """Do something with a checkpoint whenever it has been written, and with the number of times."""
    numbers = itertools.count(1)

    def write(self, *args, original=Checkpoint._write):
        original(self, *args)
        action(self, next(numbers))

    patch.setattr(Checkpoint, "_write", write)


def resumed(folder, sharded=True):
    """Every case, from a copy of its checkpoint that all processes use."""
    result = {}
    for name, steps, number in CASES:
        kept = folder / f"{name} {number} for {steps}"
        result[name, steps, number] = numbers_of(*fit(name, steps, kept, sharded=sharded))
    return result


def refused(folder, files):
    """What does not belong to a checkpoint, and files that cannot be written, are refused by all processes."""
    path = folder / "plain 3 for 2"
    with pytest.raises(InvalidInputError, match=r"made with lambda2=0\.1, not 0\.2"):
        KeepStep(new_model("plain", lambda2=0.2), 2, checkpoint=path).fit(graph_for("plain", True))
    graph = graph_for("plain", True)
    graph.x = graph.x + 1
    with pytest.raises(GraphMismatchError, match="made on another graph"):
        KeepStep(new_model("plain"), 2, checkpoint=path).fit(graph)
    graph = graph_for("plain", True)
    graph.val_mask = graph.val_mask.clone()
    graph.val_mask[:] = graph.partition.rank == 0
    with pytest.raises(InvalidInputError, match="was made with other labels"):
        KeepStep(new_model("plain"), 2, checkpoint=path).fit(graph)
    model, _ = fit("plain", 0)
    with pytest.raises(InvalidInputError, match=r"save\(path, inductive=True\)"):
        model.save(files / "whole.pt")
    model.save(files / "inductive.pt", inductive=True)
    with pytest.raises(FileExistsError, match="process 0 of 2"):
        model.save(files / "inductive.pt" / "below.pt", inductive=True)
    with pytest.raises(InvalidInputError, match="is not a folder of a sharded checkpoint"):
        fit("plain", 0, files / "inductive.pt")


def killed(folder, rank):
    """Process ``rank`` is killed in the middle of a step; how long the others take to notice."""

    class Killed(KeepStep):
        def _solve(self, graph, labels):
            self.solved = getattr(self, "solved", 0) + 1
            if graph.partition.rank == rank and self.solved == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            self.began = time.perf_counter()
            super()._solve(graph, labels)

    trainer = Killed(new_model("plain"), 2, 1, checkpoint=folder)
    with pytest.raises(ProcessLostError, match="start all of them again"):
        trainer.fit(graph_for("plain", True))
    return time.perf_counter() - trainer.began
