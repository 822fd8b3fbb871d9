"""What all pictures have in common: axes, colours, and matplotlib itself, which is an extra."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours without the yellow, which is hardly visible on white, and with a grey instead of the black,
# which is not visible on dark pages. They can be told apart with any kind of colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8A8A8A")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
QUIET = "#8A8A8A"  # Of lines that are there for comparison.
_LONGEST = 20  # Letters of a name.


def require_matplotlib() -> None:
    """Raise an error that names the extra if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("pictures need matplotlib; install it with: pip install 'torch_gckm[plot]'")


def axes_of(ax: Axes | None, width: float = 5.6, height: float = 4.2) -> Axes:
    """The given axes, or those of a new figure of this size in inches."""
    require_matplotlib()
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def colour_of(setting: Literal["text.color", "axes.facecolor"]) -> str:
    """The colour of text, or the one behind the data."""
    from matplotlib import rcParams

    return str(rcParams[setting])


def look_of(number: int) -> dict[str, Any]:
    """Colour and marker of a class; after the last colour they begin again with another marker."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number // len(COLOURS) % len(MARKERS)]}


def shown(name: str) -> str:
    """A name as matplotlib should print it: not too long, and never as a formula."""
    short = name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
    return short.replace("$", r"\$")


def legend_below(ax: Axes, columns: int) -> None:
    """Add a legend under the axes, where it covers nothing."""
    ax.legend(frameon=False, ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -0.17), handletextpad=0.4)


def frame(ax: Axes) -> None:
    """Keep only the axes with numbers, and add a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, linewidth=0.6)
    ax.set_axisbelow(True)
