"""How a fit went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch_gckm.errors import InvalidInputError
from torch_gckm.plot.style import COLOURS, QUIET, axes_of, frame, legend_below
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


def training(history: History, ax: Axes | None = None, names: Sequence[str] = SCORES) -> Axes:
    """Draw quantities of a history against the step; the step that was kept is marked.

    Leave-one-out accuracy has no curve: it means nothing after step 0.

    Args:
        history: What :meth:`Trainer.fit <torch_gckm.Trainer.fit>` returned.
        ax: Axes to draw on.
        names: Attributes of :class:`~torch_gckm.train.history.Record`; those that were not measured are left out.
    """
    from matplotlib.ticker import MaxNLocator

    unknown = [name for name in names if name not in LABELS]
    if unknown:
        raise InvalidInputError(f"no curve of {unknown[0]!r}; choose from {', '.join(LABELS)}")
    if not len(history):
        raise InvalidInputError("the history is empty")
    ax = axes_of(ax)
    steps = [record.step for record in history]
    for number, name in enumerate(names):
        values = [getattr(record, name) for record in history]
        if all(math.isnan(value) for value in values):
            continue
        style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "linestyle": _STYLES[number % len(_STYLES)]}
        ax.plot(steps, values, label=LABELS[name], marker="o", markersize=4, **style)
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
