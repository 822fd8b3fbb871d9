"""How a search and a fit went, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torch_gckm.errors import InvalidInputError
from torch_gckm.plot.style import COLOURS, QUIET, axes_of, frame, legend_below
from torch_gckm.select import SearchResult
from torch_gckm.select.result import MEMBERS, choose_members
from torch_gckm.train import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {
    "train_acc": "accuracy, labels given",
    "val_acc": "accuracy, validation",
    "test_acc": "accuracy, test (not used)",
    "cosine": "cosine score, unlabelled nodes",
    "monitored": "monitored",
    "loss": "objective",
    "orthogonality": "distance from the manifold",
    "seconds": "seconds",
}
SCORES = ("train_acc", "val_acc", "test_acc", "cosine")
_STYLES = ("-", "--", ":", "-.")


def settings(result: SearchResult, ax: Axes | None = None, members: int = MEMBERS) -> Axes:
    """Draw the score of every setting in the order in which they were tried, and the best so far.

    If the line has been level for long, a longer search would hardly help. Scores of the criterion ``auto`` are
    relative to the other settings, in standard deviations.

    Args:
        result: What :func:`~torch_gckm.select.search` returned.
        ax: Axes to draw on.
        members: How many settings an ensemble combines; they are marked.
    """
    ax = axes_of(ax)
    ranking = result.ranking
    pairs = zip(result.trials, ranking.scores(result.trials), strict=True)
    valid = [(trial, score) for trial, score in pairs if trial.is_valid]
    drawn = [(trial, score) for trial, score in valid if not ranking.is_collapsed(trial)] or valid
    if drawn:
        chosen = {trial.number for trial in choose_members(result.ranked(), members)}
        numbers = np.array([trial.number + 1 for trial, _ in drawn])
        values = np.array([score for _, score in drawn])
        marked = np.array([trial.number in chosen for trial, _ in drawn])
        size = float(np.clip(4000 / len(drawn), 6, 24))
        ax.scatter(numbers[~marked], values[~marked], s=size, color=QUIET, alpha=0.6, linewidths=0, label="others")
        ax.step(numbers, np.maximum.accumulate(values), where="post", color=COLOURS[1], label="best so far")
        ax.scatter(numbers[marked], values[marked], s=24, color=COLOURS[0], marker="D", label="in the ensemble")
        legend_below(ax, 3)
    frame(ax)
    ax.set(xlabel="setting", ylabel=f"score ({ranking.criterion})")
    missing = len(result) - len(drawn)
    rest = f", {missing} failed or collapsed and not shown" if missing else ""
    ax.set_title(f"{len(result)} settings{rest}")
    return ax


def training(history: History, ax: Axes | None = None, names: Sequence[str] = SCORES) -> Axes:
    """Draw quantities of a history against the step; the step that was kept is marked.

    Leave-one-out accuracy has no curve: it means nothing after step 0.

    Args:
        history: What :meth:`Trainer.fit <torch_gckm.Trainer.fit>` returned.
        ax: Axes to draw on.
        names: Attributes of :class:`~torch_gckm.train.history.Record`; those that were not measured are left out.
    """
    unknown = [name for name in names if name not in LABELS]
    if unknown:
        raise InvalidInputError(f"no curve of {unknown[0]!r}; choose from {', '.join(LABELS)}")
    if not len(history):
        raise InvalidInputError("the history is empty")
    ax = axes_of(ax)
    steps = [record.step for record in history]
    for number, name in enumerate(names):
        values = [getattr(record, name) for record in history]
        if not all(math.isnan(value) for value in values):
            style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "linestyle": _STYLES[number % 4]}
            ax.plot(steps, values, label=LABELS[name], marker="o", markersize=4, **style)
    ax.axvline(history.best.step, color=QUIET, linewidth=1, linestyle="--", zorder=0)
    frame(ax)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("step")
    if len(ax.get_legend_handles_labels()[0]) > 1:
        legend_below(ax, 1)
    elif len(names) == 1:
        ax.set_ylabel(LABELS[names[0]])
    ax.set_title(f"step {history.best.step} was kept, by {history.monitor}")
    return ax
