"""Nodes as points in the plane."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.panels import fix_signs
from torch_gckm.plot.common import Array, Subject, axes_of, colour_of, look_of, shown
from torch_gckm.select.unlabelled import embedding_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Method = Literal["auto", "tsne", "pca"]
MOST_NODES = 3000  # t-SNE of so many takes some ten seconds.
_LEAST_NODES = 20  # Fewer have no neighbourhoods that t-SNE could keep.
_DIRECTIONS = 50
_MOST_LABELS = 20  # Classes that are named within the picture.


def method_for(method: Method, count: int) -> Literal["tsne", "pca"]:
    """What ``"auto"`` stands for with so many nodes; the method itself otherwise."""
    if method not in ("auto", "tsne", "pca"):
        raise InvalidInputError(f"'method' must be 'auto', 'tsne' or 'pca', got {method!r}")
    if method != "auto":
        return method
    return "tsne" if importlib.util.find_spec("sklearn") and count >= _LEAST_NODES else "pca"


def plane(h: Tensor, method: Method = "auto", seed: int = 0, steps: int = 1000) -> Array:
    """Points ``[n, 2]`` that show an embedding ``[n, s]``, the same ones every time.

    By PCA, or by so many steps of t-SNE from there.
    """
    method = method_for(method, h.size(0))
    centred = (h - h.mean(dim=0)).double().cpu()
    _, vectors = torch.linalg.eigh(centred.t() @ centred)
    count = 2 if method == "pca" else _DIRECTIONS
    points = fix_signs(centred @ vectors[:, -count:].flip(1))
    points = torch.nn.functional.pad(points, (0, max(0, 2 - points.size(1))))
    if method == "pca" or not bool(points.any()):
        return points[:, :2].numpy()
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise ImportError("t-SNE needs scikit-learn; install it with: pip install 'torch_gckm[sklearn]'") from error
    # An embedding may be on any scale, also on one that is too small for its tolerances.
    points = points / points.std().clamp(min=1e-30)
    perplexity = min(30.0, (len(points) - 1) / 3)
    tsne = TSNE(init="pca", perplexity=perplexity, random_state=seed, max_iter=steps)
    return tsne.fit_transform(points.float().numpy())


def nodes_to_draw(num_nodes: int, labelled: Tensor, most: int, seed: int = 0) -> Tensor:
    """All nodes, or a random choice of so many with the labelled ones among them, in increasing order."""
    if num_nodes <= most:
        return torch.arange(num_nodes)
    order = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))
    first = torch.isin(order, labelled.cpu())
    return torch.cat([order[first], order[~first]])[:most].sort().values


def embedding(
    model: Any,
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    method: Method = "auto",
    max_nodes: int = MOST_NODES,
    seed: int = 0,
) -> Axes:
    """Draw the embedding that the readout reads, coloured by the predicted classes; labelled nodes are stars.

    The embeddings of an ensemble's models are put side by side. Stars have the colours of their labels, not of what
    is predicted. Only neighbourhoods in the picture mean something; distances between groups and axes do not.

    Args:
        model: A ``GCKM``, ``GCKMEnsemble`` or ``GCKMClassifier``.
        ax: Axes to draw on.
        names: Names of the classes.
        method: How to get to two dimensions. ``"pca"``: the two main directions. ``"tsne"``: scikit-learn's t-SNE,
            which keeps neighbours together. ``"auto"``: t-SNE if scikit-learn is there and the nodes are not very few.
        max_nodes: Of larger graphs, draw a random choice of so many nodes, and note it in the title.
        seed: The seed of that choice, and of t-SNE.
    """
    ax = axes_of(ax, 6.0, 5.2)
    subject = Subject.of(model, names)
    predicted, labelled = subject.model.predict().cpu(), subject.labelled.cpu()
    nodes = nodes_to_draw(predicted.numel(), labelled, max_nodes, seed)
    parts = [embedding_of(member).cpu()[nodes] for member in subject.members]
    if len(parts) > 1:  # They may be on any scale, and none should outweigh the others.
        parts = [h / (h - h.mean(dim=0)).norm().clamp(min=1e-30) for h in parts]
    h = torch.cat(parts, dim=1)
    points, shades = plane(h, method, seed), predicted[nodes].numpy()
    size = float(np.clip(30000 / len(points), 8, 40))
    for number, name in enumerate(subject.names):
        at = points[shades == number]
        ax.scatter(at[:, 0], at[:, 1], s=size, alpha=0.75, linewidths=0, label=shown(name), **look_of(number))
    where = np.isin(nodes.numpy(), labelled.numpy())
    given = subject.label_class.cpu()[torch.searchsorted(labelled, nodes[where])].numpy()
    stars: dict[str, Any] = {"s": 110, "marker": "*", "edgecolors": colour_of("text.color"), "linewidths": 0.8}
    ax.scatter(points[where, 0], points[where, 1], c=[look_of(number)["color"] for number in given], **stars)
    _name_groups(ax, points, shades, subject.names)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    if len(nodes) < predicted.numel():
        ax.set_title(f"{len(nodes):,} of {predicted.numel():,} nodes, drawn at random")
    _add_legend(ax, len(subject.names))
    return ax


def _name_groups(ax: Axes, points: Array, shades: Array, names: Sequence[str]) -> None:
    """Write short names where a class is densest: colours need not be told apart then."""
    if len(names) > _MOST_LABELS or max(map(len, names)) > 3:
        return
    width = 0.04 * float(np.ptp(points, axis=0).max() or 1.0)
    behind = colour_of("axes.facecolor")
    box: dict[str, Any] = {"boxstyle": "round,pad=0.2", "facecolor": behind, "edgecolor": "none", "alpha": 0.8}
    for number, name in enumerate(names):
        at = points[shades == number]
        if len(at):
            some = at[:: max(1, len(at) // 500)]
            squared = ((at[:, None] - some[None]) ** 2).sum(axis=2)
            densest = at[np.exp(-squared / (2 * width**2)).sum(axis=1).argmax()]
            ax.text(densest[0], densest[1], shown(name), ha="center", va="center", weight="bold", bbox=box)


def _add_legend(ax: Axes, num_classes: int) -> None:
    """Add a legend below the picture, the stars first."""
    from matplotlib.lines import Line2D

    ink = colour_of("text.color")
    star = Line2D([], [], linestyle="", marker="*", markersize=8, markerfacecolor="none", color=ink)
    handles, texts = ax.get_legend_handles_labels() if num_classes <= _MOST_LABELS else ([], [])
    columns = max(2, min(6, 44 // (max(map(len, texts), default=0) + 4)))
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": columns}
    look: dict[str, Any] = {"frameon": False, "columnspacing": 1.2, "markerscale": 1.4, "handletextpad": 0.3}
    ax.legend([star, *handles], ["label given", *texts], **place, **look)
