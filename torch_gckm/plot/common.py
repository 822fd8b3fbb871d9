"""What all pictures have in common: what is drawn, axes, colours, and matplotlib itself, which is an extra."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.nn import GCKM
from torch_gckm.select import GCKMEnsemble, ValueEnsemble
from torch_gckm.train.labelling import Labelling

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[Any]

# Okabe and Ito's colours without the yellow, which is hardly visible on white, and with a grey instead of the black,
# which is not visible on dark pages. They can be told apart with any kind of colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8A8A8A")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
QUIET = "#8A8A8A"  # Of lines that are there for comparison.
_LONGEST = 20  # Letters of a name.


@dataclass(frozen=True)
class Subject:
    """A fitted model with names for its classes, and what an estimator keeps of its fit."""

    model: GCKM | GCKMEnsemble
    names: list[str]
    graph: Data | None = None  # Its labels are numbered as the model does.
    labels: Labelling | None = None
    nodes: list[str] | None = None  # The names of the nodes.

    @classmethod
    def of(cls, model: Any, names: Sequence[str] | None = None) -> Self:
        """From a ``GCKM``, ``GCKMEnsemble`` or ``GCKMClassifier``; the names default to its classes, else numbers."""
        found, classes = getattr(model, "model_", model), getattr(model, "classes_", None)
        if not isinstance(found, GCKM | GCKMEnsemble):
            kind = type(model).__name__
            raise InvalidInputError(f"a fitted GCKM, GCKMEnsemble or GCKMClassifier is needed, got {kind}")
        if not found.is_fitted:
            raise NotFittedError("the model is not fitted to a graph, so there is nothing to show yet")
        if isinstance(found, ValueEnsemble):
            raise InvalidInputError("pages and pictures are about classes; this model predicts numbers")
        numbers = range(found.out_channels) if classes is None else classes.tolist()
        used = [printable(name) for name in (numbers if names is None else names)]
        if len(used) != found.out_channels:
            raise InvalidInputError(f"there are {found.out_channels} classes, but {len(used)} names for them")
        nodes = getattr(model, "node_names_", None)
        graph, labels = getattr(model, "graph_", None), getattr(model, "labels_", None)
        return cls(found, used, graph, labels, None if nodes is None else [printable(name) for name in nodes])

    @property
    def members(self) -> list[GCKM]:
        """The models of an ensemble, or the one model."""
        return self.model.members if isinstance(self.model, GCKMEnsemble) else [self.model]

    @property
    def labelled(self) -> Tensor:
        """The nodes whose labels were given, without further ones of self-training, ``[b]``."""
        return self.model.labelled if isinstance(self.model, GCKMEnsemble) else self.model.readout.labelled

    @property
    def label_class(self) -> Tensor:
        """The classes of the labelled nodes, ``[b]``."""
        return self.members[0].readout.fit.label_class[self.labelled]

    def data(self, data: Data | None) -> Data:
        """The fitted graph, which a model does not keep and must be given."""
        data = data if self.graph is None else self.graph
        if data is None or data.y is None or not self.model.is_fitted_on(data):
            raise InvalidInputError("the graph that the model was fitted on is needed, with its labels")
        return data

    def labelling(self, data: Data, split: int | None = None) -> Labelling:
        """The labels of the graph; raises if they are not those that the model was given."""
        labels = self.labels or Labelling.of(data, self.model.out_channels, split)
        nodes, classes = labels.targets.labelled, labels.targets.labels
        if not torch.equal(nodes, self.labelled) or not torch.equal(classes, self.label_class):
            raise InvalidInputError(
                f"the graph has {nodes.numel()} labels that are not the {self.labelled.numel()} that the model was "
                "given; pass the same train_mask, and the same split="
            )
        return labels


def printable(name: object) -> str:
    """A name without control characters, which have no place in an SVG file."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(name))


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
