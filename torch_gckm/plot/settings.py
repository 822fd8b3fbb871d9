"""The scores of all settings that a search tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torch_gckm.plot.style import COLOURS, QUIET, axes_of, frame, legend_below
from torch_gckm.select import SearchResult
from torch_gckm.select.result import MEMBERS, choose_members

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    scores = ranking.scores(result.trials)
    pairs = list(zip(result.trials, scores, strict=True))
    drawn = [(trial, score) for trial, score in pairs if trial.is_valid and not ranking.is_collapsed(trial)]
    drawn = drawn or [(trial, score) for trial, score in pairs if trial.is_valid]
    chosen = {trial.number for trial in choose_members(result.ranked(), members)}
    if drawn:
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
