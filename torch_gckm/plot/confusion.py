"""Which classes are taken for which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torch_gckm.plot.style import COLOURS, axes_of, ink, shown
from torch_gckm.plot.withheld import Withheld

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NUMBERS = 16  # Classes whose cells have room for a number.
_MOST_NAMES = 30
_DARK = 0.8  # The share from which a cell is too dark for dark letters.


def confusion_counts(classes: Tensor, predicted: Tensor, num_classes: int) -> Tensor:
    """How often each class (row) is predicted as each (column), ``[num_classes, num_classes]``."""
    places = classes * num_classes + predicted
    return torch.bincount(places, minlength=num_classes**2).view(num_classes, num_classes)


def confusion(found: Withheld, ax: Axes | None = None) -> Axes:
    """Draw the leave-one-out confusion matrix: what is predicted for nodes whose own labels were withheld.

    Rows are the given classes; the depth of a cell is its share of the row.

    Args:
        found: What :func:`~torch_gckm.plot.withheld` returned.
        ax: Axes to draw on.
    """
    from matplotlib.colors import to_rgba

    ax = axes_of(ax, 5.0, 4.6)
    size = len(found.names)
    counts = confusion_counts(found.classes.cpu(), found.predicted.cpu(), size)
    share = counts.double() / counts.sum(dim=1, keepdim=True).clamp(min=1)
    # Depth by transparency suits light and dark pages alike.
    cells = torch.tensor(to_rgba(COLOURS[0])).repeat(size, size, 1)
    cells[..., 3] = share
    ax.pcolormesh(range(size + 1), range(size + 1), cells.numpy(), linewidth=0)
    if size <= _MOST_NUMBERS:
        for row, column in counts.nonzero().tolist():
            colour = "white" if share[row, column] > _DARK else ink()
            ax.text(column + 0.5, row + 0.5, str(int(counts[row, column])), ha="center", va="center", color=colour)
    step = max(1, -(-size // _MOST_NAMES))
    names = [shown(name) for name in found.names[::step]]
    upright = max(map(len, names)) * len(names) > 36
    places = [number + 0.5 for number in range(0, size, step)]
    ax.set_xticks(places, names, rotation=90 if upright else 0)
    ax.set_yticks(places, names)
    ax.tick_params(length=0)
    ax.set(xlim=(0, size), ylim=(size, 0), xlabel="predicted", ylabel="label", aspect="equal")
    right = int(counts.diagonal().sum())
    ax.set_title(f"{right} of {int(counts.sum())} withheld labels are right")
    return ax
