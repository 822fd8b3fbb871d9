"""What is predicted for nodes whose own labels were withheld: which classes are confused, and how often it is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.nn import GCKM
from torch_gckm.plot.common import COLOURS, QUIET, Array, Subject, axes_of, colour_of, frame, shown
from torch_gckm.select.trial import quiet
from torch_gckm.select.withheld import Withheld, at_step_0, withhold_labels
from torch_gckm.train import History
from torch_gckm.train.labelling import Labelling

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NUMBERS = 16  # Classes whose cells have room for a number.
_MOST_NAMES = 30
_DARK = 0.8  # The share from which a cell is too dark for dark letters.
_LEAST = 3  # Different nodes behind a point.
_WIDTH = 1.96  # Of a 95 % interval, in standard deviations.


def withheld(
    model: Any,
    data: Data | None = None,
    *,
    history: History | None = None,
    names: Sequence[str] | None = None,
    split: int | None = None,
) -> Withheld:
    """Withhold labels of a fitted model, in the state before fine-tuning and self-training.

    An ensemble's readouts are solved again for the given labels. A single model is fitted again as far as step
    0, unless its history shows that it is at step 0.

    Args:
        model: A ``GCKM``, ``GCKMEnsemble`` or ``GCKMClassifier``; members of an ensemble are models at step 0.
        data: The graph it was fitted on, with its labels; a ``GCKMClassifier`` keeps it.
        history: The history of the fit, for a single model.
        names: Names of the classes.
        split: The column to use of masks ``[n, splits]``.
    """
    subject = Subject.of(model, names)
    graph = subject.data(data)
    labels = subject.labelling(graph, split)
    with quiet():
        members = members_at_step_0(subject, graph, labels, history)
        return withhold_labels(members, labels.targets, subject.names, single=isinstance(subject.model, GCKM))


def members_at_step_0(subject: Subject, data: Data, labels: Labelling, history: History | None) -> list[GCKM]:
    """The models in a state in which labels have changed nothing but their readouts."""
    model = subject.model
    if not isinstance(model, GCKM) or (history is not None and history.best_step == 0):
        return subject.members
    with quiet():
        return [at_step_0(model, model.prepare(data), labels.targets)]


def confusion_counts(classes: Tensor, predicted: Tensor, num_classes: int) -> Tensor:
    """How often each class (row) is predicted as each (column), ``[num_classes, num_classes]``."""
    places = classes * num_classes + predicted
    return torch.bincount(places, minlength=num_classes**2).view(num_classes, num_classes)


def confusion(found: Withheld, ax: Axes | None = None) -> Axes:
    """Draw the leave-one-out confusion matrix: what is predicted for nodes whose own labels were withheld.

    Rows are the given classes; the depth of a cell is its share of the row.
    """
    ax = axes_of(ax, 5.0, 4.6)
    from matplotlib.colors import to_rgba

    size = len(found.names)
    counts = confusion_counts(found.classes.cpu(), found.predicted.cpu(), size)
    share = counts.double() / counts.sum(dim=1, keepdim=True).clamp(min=1)
    # Depth by transparency suits light and dark pages alike.
    cells = torch.tensor(to_rgba(COLOURS[0])).repeat(size, size, 1)
    cells[..., 3] = share
    ax.pcolormesh(range(size + 1), range(size + 1), cells.numpy(), linewidth=0)
    if size <= _MOST_NUMBERS:
        for row, column in counts.nonzero().tolist():
            colour = "white" if share[row, column] > _DARK else colour_of("text.color")
            ax.text(column + 0.5, row + 0.5, str(int(counts[row, column])), ha="center", va="center", color=colour)
    step = max(1, -(-size // _MOST_NAMES))
    names = [shown(name) for name in found.names[::step]]
    places = [number + 0.5 for number in range(0, size, step)]
    ax.set_xticks(places, names, rotation=90 if max(map(len, names)) * len(names) > 36 else 0)
    ax.set_yticks(places, names)
    ax.tick_params(length=0)
    ax.set(xlim=(0, size), ylim=(size, 0), xlabel="predicted", ylabel="label", aspect="equal")
    ax.set_title(f"{int(counts.diagonal().sum())} of {int(counts.sum())} withheld labels are right")
    return ax


@dataclass(frozen=True)
class Bins:
    """Predictions grouped by their certainty, in bins of equal width; those about very few nodes are joined."""

    certainty: Array  # The mean probability of the predicted class in every bin.
    right: Array  # The share of predictions that are right.
    count: Array  # The number of predictions.
    nodes: Array  # The number of different nodes that they are about.
    low: Array  # The lower end of a 95 % interval of the share, for as many different nodes.
    high: Array  # Its upper end.

    @classmethod
    def of(cls, probabilities: Tensor, classes: Tensor, nodes: Tensor, bins: int = 10) -> Self:
        """Bins of predictions ``[g, num_classes]`` of right classes ``[g]``; one of the nodes ``[g]`` may recur."""
        top, predicted = (part.cpu().numpy() for part in probabilities.max(dim=1))
        hit, about = predicted == classes.cpu().numpy(), nodes.cpu().numpy()
        place = np.clip(np.ceil(top * bins) - 1, 0, bins - 1).astype(int)
        parts = _join([np.flatnonzero(place == number) for number in np.unique(place)], about)
        right = np.array([hit[part].mean() for part in parts])
        different = np.array([len(np.unique(about[part])) for part in parts])
        certainty, count = np.array([top[part].mean() for part in parts]), np.array([len(part) for part in parts])
        # Wilson's interval of the share; it holds the share itself, up to rounding.
        square = _WIDTH**2 / different
        middle = (right + square / 2) / (1 + square)
        reach = _WIDTH * np.sqrt(right * (1 - right) / different + square / (4 * different)) / (1 + square)
        low, high = np.minimum(middle - reach, right), np.maximum(middle + reach, right)
        return cls(certainty, right, count, different, low, high)


def reliability(found: Withheld, ax: Axes | None = None, bins: int = 10) -> Axes:
    """Draw how often predictions of a certainty are right, for nodes whose own labels were withheld.

    Points on the diagonal are well calibrated, points below it too sure. Each label is withheld several times,
    together with different others; the bars are 95 % intervals for as many *different* nodes as there are behind a
    point, and larger points stand for more predictions. One number, the temperature, was fitted to these labels.
    """
    ax = axes_of(ax, 5.0, 4.6)
    classes = found.classes[found.drawn]
    ax.plot([0, 1], [0, 1], linestyle="--", linewidth=1, color=QUIET)
    if found.uncalibrated is not None:
        plain = Bins.of(found.uncalibrated, classes, found.drawn, bins)
        ax.plot(plain.certainty, plain.right, color=QUIET, marker="s", markersize=4, label="predict_proba as it is")
    drawn = Bins.of(found.probabilities, classes, found.drawn, bins)
    bars = np.stack([drawn.right - drawn.low, drawn.high - drawn.right])
    ax.errorbar(drawn.certainty, drawn.right, bars, color=COLOURS[0], capsize=3, elinewidth=1, label="calibrated")
    size = 20 + 120 * drawn.count / drawn.count.sum()
    ax.scatter(drawn.certainty, drawn.right, s=size, color=COLOURS[0], zorder=3, clip_on=False)
    frame(ax)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    ax.set(xlabel="probability of the predicted class", ylabel="share that is right")
    if found.uncalibrated is not None:
        ax.legend(frameon=False, loc="lower right")
    top = found.probabilities.max(dim=1)
    right = float((top.indices == classes).double().mean())
    ax.set_title(f"sure to {100 * float(top.values.mean()):.0f} %, right in {100 * right:.0f} %")
    return ax


def _join(parts: list[Array], nodes: Array) -> list[Array]:
    """Bins, joined to the next one until each is about enough different nodes; what is left joins the last."""
    joined: list[Array] = []
    waiting = np.empty(0, dtype=int)
    for part in parts:
        waiting = np.concatenate([waiting, part])
        if len(np.unique(nodes[waiting])) >= _LEAST:
            joined.append(waiting)
            waiting = waiting[:0]
    if len(waiting):
        joined = [*joined[:-1], np.concatenate([*joined[-1:], waiting])]
    return joined
