"""How a search and a fit went, step by step, and how much of the features' variance the layers keep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.nn import GCKM, GCKMConv
from torch_gckm.plot.common import COLOURS, MARKERS, QUIET, Subject, axes_of, frame, legend_below
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
EXACT_UP_TO = 4096  # Nodes; of larger graphs so many are drawn to estimate the trace.
_STYLES = ("-", "--", ":", "-.")
_LAYER_STYLES = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)))


def settings(result: SearchResult, ax: Axes | None = None, members: int = MEMBERS) -> Axes:
    """Draw the score of every setting of a search in the order in which they were tried, and the best so far.

    If the line has been level for long, a longer search would hardly help. Scores of the criterion ``auto`` are
    relative to the other settings, in standard deviations. As many ``members`` as an ensemble combines are marked.
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
    ax.set_title(f"{len(result)} settings" + (f", {missing} failed or collapsed and not shown" if missing else ""))
    return ax


def training(history: History, ax: Axes | None = None, names: Sequence[str] = SCORES) -> Axes:
    """Draw quantities of a history against the step; the step that was kept is marked.

    The names are attributes of :class:`~torch_gckm.train.history.Record`; those that were not measured are left out.
    Leave-one-out accuracy has no curve: it means nothing after step 0.
    """
    unknown = [name for name in names if name not in LABELS]
    if unknown:
        raise InvalidInputError(f"no curve of {unknown[0]!r}; choose from {', '.join(LABELS)}")
    if not len(history):
        raise InvalidInputError("the history is empty")
    ax = axes_of(ax)
    from matplotlib.ticker import MaxNLocator

    for number, name in enumerate(names):
        values = [getattr(record, name) for record in history]
        if not all(math.isnan(value) for value in values):
            look: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "marker": "o", "markersize": 4}
            steps, style = [record.step for record in history], _STYLES[number % len(_STYLES)]
            ax.plot(steps, values, label=LABELS[name], linestyle=style, **look)
    ax.axvline(history.best.step, color=QUIET, linewidth=1, linestyle="--", zorder=0)
    frame(ax)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("step")
    if len(ax.get_legend_handles_labels()[0]) > 1:
        legend_below(ax, 1)
    elif len(names) == 1:
        ax.set_ylabel(LABELS[names[0]])
    ax.set_title(f"step {history.best.step} was kept, by {history.monitor}")
    return ax


@torch.no_grad()
def centred_trace(conv: GCKMConv, most: int = EXACT_UP_TO, seed: int = 0) -> float:
    r"""The variance of a fitted layer's features: the trace of the centred kernel matrix, :math:`\mathrm{Tr} K_c`.

    On graphs of more nodes than ``most``, the mean over all pairs is estimated by that over the pairs of so many.
    """
    rows = conv.fit.rows()
    count = rows.num_rows
    diagonal = conv.kernel(rows, diag=True).double()
    chosen = torch.arange(count)
    if count > most:
        chosen = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most].sort().values
    size = chosen.numel()
    if size < 2:
        return 0.0
    used = rows.rows(chosen.to(rows.device)).to(torch.float64)  # Wide kernels are almost constant.
    blocks = torch.arange(size, device=rows.device).split(512)  # To bound the memory.
    total = sum(float(conv.kernel(used.rows(block), used).sum()) for block in blocks)
    pairs = (total - float(diagonal[chosen].sum())) / (size * (size - 1))
    return (count - 1) * (float(diagonal.mean()) - pairs)


def shares(model: GCKM, most: int = EXACT_UP_TO) -> list[Tensor]:
    """For every hidden layer of a model at step 0, the share of the variance that each component captures.

    It is an eigenvalue over the trace, which is estimated from so many nodes. Fine-tuning changes later kernel
    matrices, but not the eigenvalues kept.
    """
    return [conv.eigenvalues.detach().double().cpu() / max(centred_trace(conv, most), 1e-30) for conv in model.layers]


def eigenvalues(model: Any, ax: Axes | None = None) -> Axes:
    """Draw the decay of the eigenvalues of every hidden layer, as shares of the variance.

    The model is a ``GCKM`` at step 0, a ``GCKMEnsemble`` or a ``GCKMClassifier``. Where a curve is still high at its
    end, more channels would keep more; where it has fallen by many orders of magnitude, fewer would do.
    """
    return decay([shares(member) for member in Subject.of(model).members], ax)


def decay(members: Sequence[Sequence[Tensor]], ax: Axes | None = None) -> Axes:
    """Draw shares that :func:`shares` found, for one or more models."""
    if not any(members):
        raise InvalidInputError("there are no hidden layers whose eigenvalues could be drawn")
    ax = axes_of(ax)
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for layer in range(max(map(len, members))):
        curves = [member[layer] for member in members if len(member) > layer]
        captured = [min(100.0, 100 * float(curve.sum())) for curve in curves]  # Low-rank traces are a little off.
        low, high = f"{min(captured):.0f}", f"{max(captured):.0f}"
        text = f"layer {layer + 1}: {low} %" if low == high else f"layer {layer + 1}: {low} to {high} %"
        style = _LAYER_STYLES[layer % len(_LAYER_STYLES)]
        look: dict[str, Any] = {"color": COLOURS[layer % len(COLOURS)], "linestyle": style}
        if len(members) == 1:
            look |= {"marker": MARKERS[layer % len(MARKERS)], "markersize": 4}
        for number, curve in enumerate(curves):
            ax.plot(range(1, curve.numel() + 1), curve.numpy(), label=text if number == 0 else None, **look)
    ax.set_yscale("log")
    bottom, top = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if top < 500 * bottom else (1.0,)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    frame(ax)
    ax.set(xlabel="component", ylabel="share of the variance, %")
    ax.legend(frameon=False, title="captured in all")
    return ax
