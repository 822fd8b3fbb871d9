"""Whether probabilities mean what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torch_gckm.plot.style import COLOURS, QUIET, axes_of, frame
from torch_gckm.plot.withheld import Withheld

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[Any]
_LEAST = 3  # Different nodes behind a point.
_WIDTH = 1.96  # Of a 95 % interval, in standard deviations.


@dataclass(frozen=True)
class Bins:
    """Predictions grouped by their certainty, in bins of equal width; those about very few nodes are joined.

    Attributes:
        certainty: The mean probability of the predicted class in every bin.
        right: The share of predictions that are right.
        count: The number of predictions.
        nodes: The number of different nodes that they are about.
        low: The lower end of a 95 % interval of the share, for as many different nodes.
        high: Its upper end.
    """

    certainty: Array
    right: Array
    count: Array
    nodes: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, probabilities: Tensor, classes: Tensor, nodes: Tensor, bins: int = 10) -> Bins:
        """Put predictions into bins.

        Args:
            probabilities: Class probabilities, ``[g, num_classes]``.
            classes: The classes that are right, ``[g]``.
            nodes: The nodes that the predictions are about, ``[g]``; one may occur several times.
            bins: The number of bins between 0 and 1.
        """
        top, predicted = (part.cpu().numpy() for part in probabilities.max(dim=1))
        hit, about = predicted == classes.cpu().numpy(), nodes.cpu().numpy()
        place = np.clip(np.ceil(top * bins) - 1, 0, bins - 1).astype(int)
        parts = _join([np.flatnonzero(place == number) for number in np.unique(place)], about)
        right = np.array([hit[part].mean() for part in parts])
        different = np.array([len(np.unique(about[part])) for part in parts])
        low, high = _wilson(right, different)
        certainty, count = np.array([top[part].mean() for part in parts]), np.array([len(part) for part in parts])
        return cls(certainty, right, count, different, low, high)


def reliability(found: Withheld, ax: Axes | None = None, bins: int = 10) -> Axes:
    """Draw how often predictions of a certainty are right, for nodes whose own labels were withheld.

    Points on the diagonal are well calibrated, points below it too sure. Each label is withheld several times in
    different company; the bars are 95 % intervals for as many *different* nodes as there are behind a point,
    and larger points stand for more predictions. One number, the temperature, was fitted to these labels.

    Args:
        found: What :func:`~torch_gckm.plot.withheld` returned.
        ax: Axes to draw on.
        bins: The number of bins between 0 and 1.
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
    ax.scatter(
        drawn.certainty,
        drawn.right,
        s=20 + 120 * drawn.count / drawn.count.sum(),
        color=COLOURS[0],
        zorder=3,
        clip_on=False,
    )
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
    """Join bins to the next one until each is about enough different nodes; what is left joins the last."""
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


def _wilson(share: Array, count: Array) -> tuple[Array, Array]:
    """Wilson's interval of a share."""
    square = _WIDTH**2 / count
    middle = (share + square / 2) / (1 + square)
    reach = _WIDTH * np.sqrt(share * (1 - share) / count + square / (4 * count)) / (1 + square)
    # It holds the share itself, up to rounding.
    return np.minimum(middle - reach, share), np.maximum(middle + reach, share)
