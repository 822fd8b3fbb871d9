"""Algorithm 1 of the paper: alternate steps on the manifold with the readout's solve."""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data
from tqdm import tqdm

from torch_gckm.errors import GCKMWarning, GraphMismatchError, InvalidInputError
from torch_gckm.files import PathLike, load_tensors, save_tensors
from torch_gckm.kernels import Kernel
from torch_gckm.manifold import orthogonality_error
from torch_gckm.nn import GCKM
from torch_gckm.nn.coding import decode
from torch_gckm.optim import CayleyAdam, param_groups
from torch_gckm.train.history import History, Record
from torch_gckm.train.masks import Masks
from torch_gckm.train.metrics import accuracy, combined_score, cosine_score
from torch_gckm.train.subset import NodesLike, node_subset

Monitor = Literal["cosine", "val_acc", "combined"]


class Trainer:
    r"""Fit a :class:`~torch_gckm.nn.GCKM` to a graph with a few labels.

    1. Initialise the hidden layers by kernel PCA, one after the other, and solve the readout: step 0.
    2. Repeat: move :math:`H_1, \dots, H_L` along the manifold to lower the joint
       objective with the readout's duals fixed, then solve the readout again.

    The model keeps the state of the best step by ``monitor``, step 0 included.
    No validation labels are needed. Leave-one-out accuracy is reported for
    step 0 only: later the embeddings have seen the labels, and it would mislead.

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
            The history is about these nodes, ``model.predict(data)`` about all. Low-rank kernel
            matrices scale to large graphs without leaving out edges.
        init: ``"kernel_pca"``, or ``"random"`` for the paper's study of starting points.
        seed: The seed of a random start, and of the draw of nodes.
        progress: Show a progress bar.
        checkpoint: A file to write the complete training state to, atomically, after every
            ``checkpoint_every`` steps. An existing file is resumed from, exactly where kernel
            matrices are, and up to rounding where they are of low rank.
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
            raise InvalidInputError(
                f"unknown monitor {monitor!r}; choose 'cosine', 'val_acc' or 'combined' (leave-out scores are valid at "
                "step 0 only and cannot watch fine-tuning)"
            )
        if steps < 0 or checkpoint_every < 1 or (patience is not None and patience < 1):
            raise InvalidInputError("'steps' must not be negative; 'patience' and 'checkpoint_every' must be positive")
        self.model, self.steps, self.lr, self.betas, self.kernel_lr = model, steps, lr, betas, kernel_lr
        self.monitor, self.patience, self.init, self.seed = monitor, patience, init, seed
        self.nodes, self.progress = nodes, progress
        self.checkpoint, self.checkpoint_every = checkpoint, checkpoint_every

    def fit(self, data: Data, split: int | None = None) -> History:
        """Fit the model; afterwards it holds the best state.

        Args:
            data: Features ``x``, edges, labels ``y``, ``train_mask``, and perhaps ``val_mask`` and ``test_mask``.
            split: The column to use of masks ``[n, splits]``.
        """
        masks = Masks.of(data, split, self.model.out_channels)
        if self.nodes is not None:
            data, split = node_subset(data, self.nodes, split, self.seed), None
            masks = Masks.of(data, split, self.model.out_channels)
        if self.monitor != "cosine" and not bool(masks.val.any()):
            raise InvalidInputError(f"monitor='{self.monitor}' needs a val_mask with at least one node")
        start = time.perf_counter()
        with tqdm(total=self.steps + 1, disable=not self.progress, desc="initialising", unit="step") as bar:
            history, best, optimizer = self._start(data, split)
            if len(history):
                start -= history.records[-1].seconds
                bar.update(len(history))
            bar.set_description("fine-tuning")
            for step in range(len(history), self.steps + 1):
                if self._has_stalled(history):
                    break
                if step > 0:
                    optimizer.step()
                    self._solve(data, split)
                loss = self._loss(data, optimizer, backward=step < self.steps)
                record = self._measure(step, loss, masks, data.y.view(-1), time.perf_counter() - start)
                history.records.append(record)
                if step == 0 or record.monitored > history.best.monitored:
                    best.clear()  # Free the old copy before making a new one.
                    history.best_step, best = step, self._snapshot()
                score = {self.monitor: f"{record.monitored:.4f}"}
                bar.set_postfix(loss=f"{loss:.4g}", **score, best=history.best_step)
                bar.update()
                done = step == self.steps or self._has_stalled(history)
                if self.checkpoint is not None and (done or step % self.checkpoint_every == 0):
                    self._save(history, best, optimizer)
        if history.best_step < len(history) - 1:
            self.model.load_state_dict(best, strict=False)
        self.model.observe(data)
        optimizer.zero_grad()
        return history

    def _start(self, data: Data, split: int | None) -> tuple[History, dict[str, Tensor], CayleyAdam]:
        """Step 0, or where the checkpoint left off, ready for the next step."""
        resumed = self.checkpoint is not None and Path(self.checkpoint).exists()
        content = self._load(data) if resumed else {}
        if not resumed:
            self.model.initialize(data, method=self.init, seed=self.seed, fine_tune=self.steps > 0)
            self._solve(data, split)
        groups = param_groups(self.model, lr=self.lr, betas=self.betas)
        optimizer = CayleyAdam(groups, lr=self.kernel_lr)
        if not resumed:
            return History(self.monitor), {}, optimizer
        optimizer.load_state_dict(content["optimizer"])
        history = History.from_dict(content["history"])
        if len(history) <= self.steps and not self._has_stalled(history):
            self._solve(data, split)  # The factors and the gradient at the state that was saved.
            self._loss(data, optimizer, backward=True)
        return history, content["best_state"], optimizer

    def _has_stalled(self, history: History) -> bool:
        return (
            self.patience is not None
            and len(history) > 0
            and (history.records[-1].step - history.best_step >= self.patience)
        )

    @torch.no_grad()
    def _solve(self, data: Data, split: int | None) -> None:
        self.model.solve(data, split=split)

    def _loss(self, data: Data, optimizer: CayleyAdam, backward: bool) -> float:
        """The objective at the current state; its gradient is ready for the next step."""
        optimizer.zero_grad()
        with torch.set_grad_enabled(backward):
            loss = self.model.loss(data)
            if backward:
                loss.backward()
        return float(loss.detach())

    def _measure(self, step: int, loss: float, masks: Masks, y: Tensor, seconds: float) -> Record:
        readout = self.model.readout
        scores, codes = readout.scores, readout.codes
        predicted = decode(scores, codes)
        leave_one_out = math.nan
        if step == 0:
            left_out = decode(readout.leave_one_out().detach(), codes)
            leave_one_out = float((left_out == y[readout.labelled]).double().mean())
        val_acc = accuracy(predicted, y, masks.val)
        cosine = cosine_score(scores, codes, masks.unlabelled)
        if self.monitor == "cosine":
            monitored = cosine
        elif self.monitor == "val_acc":
            monitored = val_acc
        else:
            rest = masks.unlabelled & ~masks.val
            monitored = combined_score(
                val_acc, int(masks.val.sum()), cosine_score(scores, codes, rest), int(rest.sum())
            )
        if step == 0 and self.steps > 0 and math.isnan(monitored):
            warnings.warn(
                "every node is labelled, so there is none to compute the cosine score on: step 0 will be kept",
                GCKMWarning,
                stacklevel=3,
            )
        return Record(
            step=step,
            loss=loss,
            orthogonality=max(float(orthogonality_error(conv.h)) for conv in self.model.layers),
            train_acc=accuracy(predicted, y, masks.train),
            val_acc=val_acc,
            test_acc=accuracy(predicted, y, masks.test),
            cosine=cosine,
            leave_one_out=leave_one_out,
            monitored=monitored,
            seconds=seconds,
        )

    def _snapshot(self) -> dict[str, Tensor]:
        """Copies of everything that fine-tuning changes; features follow from it."""
        state = self.model.state_dict()
        features = ("readout.support.", *(f"convs.{i}.support." for i in range(len(self.model.layers))))
        return {name: value.clone() for name, value in state.items() if not name.startswith(features)}

    def _settings(self) -> dict[str, Any]:
        """What a checkpoint must agree on with the run that resumes it."""
        model, readout = self.model, self.model.readout
        parts = [*model.layers, readout]
        return {
            "lr": self.lr,
            "betas": list(self.betas),
            "kernel_lr": self.kernel_lr,
            "monitor": self.monitor,
            "init": self.init,
            "seed": self.seed,
            "hidden_channels": list(model.hidden_channels),
            "kernel": [_description(part.kernel) for part in parts],
            "aggregation": [repr(conv.aggregation) for conv in model.layers],
            "gram": [repr(part.gram) for part in parts],
            "code": model.code,
            "class_weight": readout.class_weight,
            "normalize": model.normalize,
            "loss_weights": list(model.loss_weights),
            "eta": [*(conv.eta for conv in model.layers), readout.eta],
            "lambda1": readout.lambda1,
            "lambda2": readout.lambda2,
        }

    def _save(self, history: History, best_state: dict[str, Tensor], optimizer: CayleyAdam) -> None:
        assert self.checkpoint is not None
        content = {
            "settings": self._settings(),
            "model": self.model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "history": history.to_dict(),
            "best_state": best_state,
        }
        save_tensors(content, self.checkpoint)

    def _load(self, data: Data) -> dict[str, Any]:
        assert self.checkpoint is not None
        content = load_tensors(self.checkpoint)
        for name, value in self._settings().items():
            known = content["settings"].get(name)
            if known != value:
                raise InvalidInputError(
                    f"the checkpoint '{self.checkpoint}' was made with {name}={known!r}, "
                    f"not {value!r}; resume with the same settings or choose another file"
                )
        self.model.load_state_dict(content["model"])
        if not self.model.is_fitted_on(data):
            self.model.reset_parameters()
            raise GraphMismatchError(f"the checkpoint '{self.checkpoint}' was made on another graph")
        return content

    def __repr__(self) -> str:
        return f"Trainer(steps={self.steps}, lr={self.lr:g}, monitor={self.monitor!r}, init={self.init!r})"


def _description(kernel: Kernel) -> str:
    """The kinds of a kernel, and the numbers that training leaves as they are."""
    parts = []
    for leaf in kernel.leaves():
        values = {} if leaf.is_learned else leaf.arguments()
        plain = [f"{name}={value!r}" for name, value in values.items() if not isinstance(value, Tensor)]
        parts.append(f"{type(leaf).__name__}({', '.join(plain)}).on({leaf.view!r})")
    return f"{type(kernel).__name__}: {', '.join(parts)}"
