"""Algorithm 1 of the paper: alternate steps on the manifold with the readout's solve."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from tqdm import tqdm

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike, load_tensors, save_tensors
from torch_gckm.manifold import orthogonality_error
from torch_gckm.nn import GCKM
from torch_gckm.nn.coding import decode
from torch_gckm.nn.labels import pick_mask
from torch_gckm.optim import CayleyAdam, param_groups
from torch_gckm.train.history import History, Record
from torch_gckm.train.metrics import accuracy, combined_score, cosine_score

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
        monitor: What decides which step is kept: the label-free ``"cosine"`` score,
            ``"val_acc"`` or the paper's ``"combined"`` score (both need a ``val_mask``).
        patience: Stop after so many steps without improvement; ``None`` never stops early.
        init: ``"kernel_pca"``, or ``"random"`` for the paper's study of starting points.
        seed: The seed of a random start.
        progress: Show a progress bar.
        checkpoint: A file to write the complete training state to, atomically, after every
            ``checkpoint_every`` steps. An existing file is resumed from, exactly.
        checkpoint_every: See ``checkpoint``.
    """

    def __init__(
        self,
        model: GCKM,
        steps: int = 10,
        lr: float = 1.0,
        betas: tuple[float, float] = (0.0, 0.99),
        monitor: Monitor = "cosine",
        patience: int | None = None,
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
        self.model, self.steps, self.lr, self.betas = model, steps, lr, betas
        self.monitor, self.patience, self.init, self.seed = monitor, patience, init, seed
        self.progress, self.checkpoint, self.checkpoint_every = progress, checkpoint, checkpoint_every

    def fit(self, data: Data, split: int | None = None) -> History:
        """Fit the model; afterwards it holds the best state.

        Args:
            data: Features ``x``, edges, labels ``y``, ``train_mask``, and perhaps ``val_mask`` and ``test_mask``.
            split: The column to use of masks ``[n, splits]``.
        """
        masks = _Masks.of(data, split)
        if self.monitor != "cosine" and not bool(masks.val.any()):
            raise InvalidInputError(f"monitor='{self.monitor}' needs a val_mask with at least one node")
        start = time.perf_counter()
        run = _Run(History(self.monitor))
        bar = tqdm(total=self.steps + 1, disable=not self.progress, desc="initialising", unit="step")
        if self.checkpoint is not None and Path(self.checkpoint).exists():
            self._resume(run, data)
            start -= run.history.records[-1].seconds
            bar.update(len(run.history))
        else:
            self.model.initialize(data, method=self.init, seed=self.seed)
            self.model.solve(data, split=split)
        optimizer = CayleyAdam(param_groups(self.model), lr=self.lr, betas=self.betas)
        if run.optimizer is not None:
            optimizer.load_state_dict(run.optimizer)

        bar.set_description("fine-tuning")
        for step in range(len(run.history), self.steps + 1):
            if step > 0:
                optimizer.step()
                self.model.solve(data, split=split)
            last = step == self.steps
            loss = self._loss(data, optimizer, backward=not last)
            record = self._measure(step, loss, masks, data, time.perf_counter() - start)
            run.history.records.append(record)
            if step == 0 or record.monitored > run.history.best.monitored:
                run.history.best_step = step
                run.best_state = self._snapshot()
            bar.set_postfix(loss=f"{loss:.4g}", **{self.monitor: f"{record.monitored:.4f}"}, best=run.history.best_step)
            bar.update()
            if self.checkpoint is not None and (last or step % self.checkpoint_every == 0):
                self._save(run, optimizer)
            if self.patience is not None and step - run.history.best_step >= self.patience:
                break
        bar.close()
        self._restore(run.best_state, data)
        return run.history

    def _loss(self, data: Data, optimizer: CayleyAdam, backward: bool) -> float:
        """The objective at the current state; its gradient is ready for the next step."""
        optimizer.zero_grad()
        with torch.set_grad_enabled(backward):
            loss = self.model.loss(data)
            if backward:
                loss.backward()
        return float(loss.detach())

    def _measure(self, step: int, loss: float, masks: _Masks, data: Data, seconds: float) -> Record:
        readout = self.model.readout
        scores, codes = readout.scores, readout.codes
        predicted = decode(scores, codes)
        y = data.y.view(-1)
        leave_one_out = math.nan
        if step == 0:
            with torch.no_grad():
                left_out = decode(readout.leave_one_out(), codes)
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
        """Copies of everything that fine-tuning changes; the first layer's features are not among it."""
        state = self.model.state_dict()
        return {name: value.clone() for name, value in state.items() if not name.startswith("convs.0.support.")}

    def _restore(self, state: dict[str, Tensor], data: Data) -> None:
        supports = {name: value for name, value in self.model.state_dict().items() if "convs.0.support." in name}
        self.model.load_state_dict({**supports, **state})
        self.model.observe(data)

    def _save(self, run: _Run, optimizer: CayleyAdam) -> None:
        assert self.checkpoint is not None
        gradients = [conv.h.grad for conv in self.model.layers]
        content = {
            "model": self.model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "gradients": gradients,
            "history": run.history.to_dict(),
            "best_state": run.best_state,
        }
        save_tensors(content, self.checkpoint)

    def _resume(self, run: _Run, data: Data) -> None:
        assert self.checkpoint is not None
        content = load_tensors(self.checkpoint)
        self.model.load_state_dict(content["model"])
        self.model.observe(data)
        for conv, gradient in zip(self.model.layers, content["gradients"], strict=True):
            conv.h.grad = gradient
        run.history = History.from_dict(content["history"])
        if run.history.monitor != self.monitor:
            raise InvalidInputError(
                f"the checkpoint '{self.checkpoint}' monitors '{run.history.monitor}', not '{self.monitor}'"
            )
        run.optimizer, run.best_state = content["optimizer"], content["best_state"]

    def __repr__(self) -> str:
        return f"Trainer(steps={self.steps}, lr={self.lr:g}, monitor={self.monitor!r}, init={self.init!r})"


class _Run:
    """The state of one fit."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.best_state: dict[str, Tensor] = {}
        self.optimizer: dict[str, Any] | None = None


class _Masks(NamedTuple):
    train: Tensor
    val: Tensor
    test: Tensor
    unlabelled: Tensor

    @classmethod
    def of(cls, data: Data, split: int | None) -> _Masks:
        if data.y is None:
            raise InvalidInputError("the data object has no labels 'y'; use -1 for unlabelled nodes")
        y, n = data.y.view(-1), data.num_nodes
        known = y >= 0

        def pick(name: str, default: Tensor) -> Tensor:
            mask = data.get(name)
            return default if mask is None else (pick_mask(mask, n, split, name) > 0) & known

        train = pick("train_mask", known)
        nothing = torch.zeros_like(train)
        return cls(train, pick("val_mask", nothing), pick("test_mask", nothing), ~train)
