"""Algorithm 1 of the paper: alternate steps on the manifold with the readout's solve."""

import math
import time
import warnings
from typing import Any, Literal

import torch
from torch_geometric.data import Data
from tqdm import tqdm

from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.files import PathLike
from torch_gckm.graph import PreparedGraph
from torch_gckm.manifold import orthogonality_error
from torch_gckm.nn import GCKM
from torch_gckm.optim import CayleyAdam, param_groups
from torch_gckm.panels import count, holds_somewhere
from torch_gckm.partition import Partition, partition_of
from torch_gckm.readout import check_classes
from torch_gckm.train.checkpoint import Checkpoint
from torch_gckm.train.history import History, Record, Snapshot
from torch_gckm.train.labelling import Labelling, NodesLike, node_subset
from torch_gckm.train.metrics import accuracy, combined_score, cosine_score

Monitor = Literal["cosine", "val_acc", "combined"]


class Trainer:
    r"""Fit a :class:`~torch_gckm.nn.GCKM` to a graph with a few labels.

    1. Initialise the hidden layers by kernel PCA, one after the other, and solve the readout: step 0.
    2. Repeat: move :math:`H_1, \dots, H_L` along the manifold to lower the joint objective with the readout's duals
       fixed, then solve the readout again.

    The model keeps the state of the best step by ``monitor``, step 0 included. No validation labels are needed.
    Leave-one-out accuracy is reported for step 0 only: later the embeddings have seen the labels, and it would mislead.

    Args:
        model: The model to fit, in place.
        steps: The number of fine-tuning steps; 0 only initialises and solves.
        lr: The largest step along the manifold; a cap keeps steps stable (see :class:`CayleyAdam`).
        betas: Decay rates of the optimiser's running averages.
        kernel_lr: Adam's learning rate for kernel parameters, if there are any to learn.
        monitor: What decides which step is kept: the label-free ``"cosine"`` score,
            ``"val_acc"`` or the paper's ``"combined"`` score (both need a ``val_mask``).
        patience: Stop after so many steps without improvement; ``None`` never stops early.
        nodes: Train on the graph between some of the nodes only, the paper's route to large graphs: a share below 1 or
            a number of nodes, drawn at random, a mask, or node numbers; labelled and validation nodes always belong.
            The history is about these nodes, ``model.predict(data)`` about all. Low-rank kernel matrices scale to
            large graphs without leaving out edges.
        init: ``"kernel_pca"``, or ``"random"`` for the paper's study of starting points.
        seed: The seed of a random start, and of the draw of nodes.
        progress: Show a progress bar.
        checkpoint: A file to write the complete training state to, atomically, after every layer of the initialisation,
            after step 0 and every ``checkpoint_every`` steps. An existing one is resumed from, exactly where kernel
            matrices are, up to rounding where they are low-rank. Over several processes it is a folder that all of them
            see, from which any number of processes goes on, one included: a fit of which a process was killed
            is started again as it was, which ``torchrun --max-restarts`` does by itself.
        checkpoint_every: See ``checkpoint``.
    """

    def __init__(
        self,
        model: GCKM,
        steps: int = 10,
        lr: float = 1.0,
        betas: tuple[float, float] = (0.0, 0.99),
        kernel_lr: float = 0.01,
        monitor: Monitor = "cosine",
        patience: int | None = None,
        nodes: NodesLike | None = None,
        init: Literal["kernel_pca", "random"] = "kernel_pca",
        seed: int = 0,
        progress: bool = True,
        checkpoint: PathLike | None = None,
        checkpoint_every: int = 1,
    ) -> None:
        if monitor not in ("cosine", "val_acc", "combined"):
            hint = "(leave-out scores are valid at step 0 only and cannot watch fine-tuning)"
            raise InvalidInputError(f"unknown monitor {monitor!r}; choose 'cosine', 'val_acc' or 'combined' {hint}")
        if steps < 0 or checkpoint_every < 1 or (patience is not None and patience < 1):
            raise InvalidInputError("'steps' must not be negative; 'patience' and 'checkpoint_every' must be positive")
        self.model, self.lr, self.betas, self.kernel_lr = model, lr, betas, kernel_lr
        # Without hidden layers there may be nothing to fine-tune.
        self.steps = steps if any(parameter.requires_grad for parameter in model.parameters()) else 0
        self.monitor, self.patience, self.init, self.seed = monitor, patience, init, seed
        self.nodes, self.progress = nodes, progress
        self.checkpoint, self.checkpoint_every = checkpoint, checkpoint_every

    def fit(self, data: Data, split: int | None = None) -> History:
        """Fit the model; afterwards it holds the best state.

        Args:
            data: Features ``x``, edges, labels ``y``, ``train_mask``, and perhaps ``val_mask`` and ``test_mask``.
            split: The column to use of masks ``[n, splits]``.
        """
        over = partition_of(data)
        with over.agreed():
            return self._fit(data, split, over)

    def _fit(self, data: Data, split: int | None, over: Partition) -> History:
        check_classes(self.model.readout.code)  # The monitors are about classes.
        if self.nodes is not None:
            over.refuse("training on some of the nodes is")
            Labelling.of(data, self.model.out_channels, split)  # Refuses bad labels before any work is done.
            data, split = node_subset(data, self.nodes, split, self.seed), None
        labels = Labelling.of(data, self.model.out_channels, split, warn=True)
        if self.monitor != "cosine" and not holds_somewhere(labels.val, over):
            raise InvalidInputError(f"monitor='{self.monitor}' needs a val_mask with at least one node")
        graph = self.model.prepare_for_fit(data)
        start = time.perf_counter()
        is_shown = self.progress and over.rank == 0
        with tqdm(total=self.steps + 1, disable=not is_shown, desc="initialising", unit="step") as bar:
            kept = None
            if self.checkpoint is not None:
                kept = Checkpoint(self.checkpoint, self.model, graph, labels, self._settings())
            history, best, optimizer = self._start(graph, labels, kept)
            if len(history):
                start -= history.records[-1].seconds
                bar.update(len(history))
            bar.set_description("fine-tuning")
            for step in range(len(history), self.steps + 1):
                if self._has_stalled(history):
                    break
                if step > 0:
                    optimizer.step()
                    self._solve(graph, labels)
                loss = self._loss(graph, optimizer, backward=step < self.steps)
                record = self._measure(step, loss, labels, time.perf_counter() - start)
                history.records.append(record)
                if best is None or record.monitored > history.best.monitored:
                    best = None  # Free the old copy before making a new one.
                    history.best_step, best = step, Snapshot.of(self.model)
                shown = {"loss": f"{loss:.4g}", self.monitor: f"{record.monitored:.4f}", "best": history.best_step}
                bar.set_postfix(shown)
                bar.update()
                done = step == self.steps or self._has_stalled(history)
                if kept is not None and (done or step % self.checkpoint_every == 0):
                    kept.save(history, best, optimizer)
        if best is not None and history.best_step < len(history) - 1:
            best.restore(self.model)
        optimizer.zero_grad()
        return history

    def _start(
        self, graph: PreparedGraph, labels: Labelling, kept: Checkpoint | None
    ) -> tuple[History, Snapshot | None, CayleyAdam]:
        """Step 0, or where the checkpoint left off, ready for the next step."""
        content = None if kept is None else kept.load()
        known = 0 if content is None else content.get("layers")
        if known is not None:
            content = None
            with torch.set_grad_enabled(self.steps > 0):
                for number in self.model.initialize_each(graph, known, method=self.init, seed=self.seed):
                    if kept is not None:
                        kept.save_layers(number)
            self._solve(graph, labels)
        groups = param_groups(self.model, lr=self.lr, betas=self.betas) or [{"params": []}]
        optimizer = CayleyAdam(groups, lr=self.kernel_lr, over=graph.partition)
        if content is None:
            return History(self.monitor), None, optimizer
        state = {int(number): values for number, values in content["optimizer"]["state"].items()}
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        history = History.from_dict(content["history"])
        best = Snapshot.from_state(self.model, content["best"], graph.partition)
        if len(history) <= self.steps and not self._has_stalled(history):
            self._solve(graph, labels)  # The factors and the gradient at the state that was saved.
            self._loss(graph, optimizer, backward=True)
        return history, best, optimizer

    def _has_stalled(self, history: History) -> bool:
        return self.patience is not None and len(history) - 1 - history.best_step >= self.patience

    @torch.no_grad()
    def _solve(self, graph: PreparedGraph, labels: Labelling) -> None:
        self.model.solve_on(graph, labels.targets)

    def _loss(self, graph: PreparedGraph, optimizer: CayleyAdam, backward: bool) -> float:
        """The objective at the current state; its gradient is ready for the next step."""
        optimizer.zero_grad()
        with torch.set_grad_enabled(backward):
            loss = self.model.loss(graph)
            if backward:
                loss.backward()
        return float(loss.detach())

    def _measure(self, step: int, loss: float, labels: Labelling, seconds: float) -> Record:
        readout, y, over = self.model.readout, labels.y, labels.targets.partition
        scores, codes = readout.scores, readout.codes
        predicted = readout.predict()
        left_out = math.nan
        if step == 0:
            left_out = accuracy(readout.predict(readout.leave_one_out().detach()), readout.fit.labels)
        val_acc = accuracy(predicted, y, labels.val, over)
        cosine = cosine_score(scores, codes, labels.unlabelled, over)
        if self.monitor == "cosine":
            monitored = cosine
        elif self.monitor == "val_acc":
            monitored = val_acc
        else:
            rest = labels.unlabelled & ~labels.val
            numbers = count(labels.val, over), count(rest, over)
            monitored = combined_score(val_acc, numbers[0], cosine_score(scores, codes, rest, over), numbers[1])
        if step == 0 and self.steps > 0 and math.isnan(monitored):
            text = "every node is labelled, so there is none to compute the cosine score on: step 0 will be kept"
            warnings.warn(text, GCKMWarning, stacklevel=3)
        orthogonality = max((float(orthogonality_error(conv.h, over)) for conv in self.model.layers), default=0.0)
        train_acc = accuracy(predicted, y, labels.targets.is_labelled, over)
        test_acc = accuracy(predicted, y, labels.test, over)
        return Record(step, loss, orthogonality, train_acc, val_acc, test_acc, cosine, left_out, monitored, seconds)

    def _settings(self) -> dict[str, Any]:
        """What a checkpoint must agree on with the run that resumes it."""
        own = {name: getattr(self, name) for name in ("lr", "kernel_lr", "monitor", "init", "seed")}
        return {**own, "betas": list(self.betas), "model": self.model.settings.to_dict()}

    def __repr__(self) -> str:
        return f"Trainer(steps={self.steps}, lr={self.lr:g}, monitor={self.monitor!r}, init={self.init!r})"
