"""The figures of a report, with their captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torch_gckm import plot
from torch_gckm.plot.eigenvalues import EXACT_UP_TO, decay
from torch_gckm.plot.embedding import MOST_NODES, Method, method_for
from torch_gckm.plot.reliability import Bins
from torch_gckm.plot.subject import Subject
from torch_gckm.report.page import Markup, figure, pair
from torch_gckm.report.svg import draw
from torch_gckm.select import GCKMEnsemble, SearchResult
from torch_gckm.train import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def embedding_figure(subject: Subject, method: Method, most: int = MOST_NODES) -> Markup:
    """The nodes in the plane."""
    count = subject.predict().numel()
    several = (
        f"the embeddings of all {len(subject.members)} models" if len(subject.members) > 1 else "the last embedding"
    )
    part = f" {most:,} of {count:,} nodes are drawn, chosen at random." if count > most else ""
    how = "by t-SNE" if method_for(method, min(count, most)) == "tsne" else "the two main directions"
    caption = (
        f"A point for every node, from {several} ({how}), coloured by the predicted class; stars are labels that were "
        f"given, in the colours of their classes.{part} Neighbours in the picture are neighbours in the embedding; the "
        "axes, and the distances between groups, mean nothing. Stars amid points of another colour deserve a look."
    )
    names = ", ".join(subject.names[:20])
    describe = f"Scatter plot of {min(count, most)} nodes in two dimensions, coloured by predicted class: {names}."

    def paint(ax: Axes) -> None:
        plot.embedding(subject.model, ax, names=subject.names, method=method, max_nodes=most)

    return figure(draw("embedding", describe, paint, 5.2, 4.7, scale=1.4), caption)


def withheld_figures(found: plot.Withheld) -> Markup:
    """Which classes are confused, and whether probabilities can be trusted."""
    size = len(found.names)
    side = 3.9 + 0.12 * max(0, size - 10) if size <= 30 else 6.0
    right = int((found.predicted == found.classes).sum())
    total = found.classes.numel()
    matrix = draw(
        "confusion",
        f"Confusion matrix of {size} classes: {right} of {total} withheld labels are predicted right.",
        lambda ax: plot.confusion(found, ax),
        side + 1.0,
        side + 0.4,
    )
    bins = Bins.of(found.probabilities, found.classes[found.drawn], found.drawn)
    points = "; ".join(f"{p:.2f}: {r:.2f}" for p, r in zip(bins.certainty, bins.right, strict=True))
    curve = draw(
        "reliability",
        f"Reliability curve, mean probability and share that is right: {points}.",
        lambda ax: plot.reliability(found, ax),
        4.9,
        4.3,
    )
    how = "One label of every class is withheld at a time, in 50 random groups."
    if torch.equal(found.drawn, torch.arange(total)):
        how = "Each label is withheld once."
    own = "" if found.uncalibrated is None else " Grey: what predict_proba of a single model says, uncalibrated."
    return pair(
        figure(matrix, "Each label is withheld once. Rows are the labels, columns what is predicted without them."),
        figure(
            curve,
            f"{how} Points on the dashed line are well "
            "calibrated, points below it too sure; larger points stand for more predictions. Bars are 95\u00a0% "
            f"intervals for as many different nodes as there are behind a point.{own}",
        ),
    )


def search_figure(result: SearchResult, subject: Subject) -> Markup:
    """The settings that were tried."""
    members = len(subject.members) if isinstance(subject.model, GCKMEnsemble) else 1
    svg = draw(
        "search",
        f"Scores of {len(result)} settings in the order in which they were tried.",
        lambda ax: plot.settings(result, ax, members),
        5.2,
        3.9,
        1.2,
    )
    relative = " in standard deviations from the mean" if result.ranking.criterion == "auto" else ""
    return figure(
        svg,
        f"A point for every setting: its score by the criterion '{result.ranking.criterion}'{relative}. If the line "
        "has been level for long, a longer search would hardly help.",
    )


def training_figures(history: History) -> Markup:
    """How a fit went, step by step."""
    last = history.records[-1].step
    scores = draw(
        "scores", f"Accuracies and cosine score over {last} steps.", lambda ax: plot.training(history, ax), 4.9, 3.9
    )
    loss = draw("loss", f"The objective over {last} steps.", lambda ax: plot.training(history, ax, ["loss"]), 4.9, 3.9)
    kept = f"The dashed line marks step {history.best.step}, whose state the model holds."
    return pair(figure(scores, f"Scores after every step. {kept}"), figure(loss, "The objective, which steps lower."))


def decay_figure(shares: Sequence[Sequence[Tensor]], count: int) -> Markup:
    """What the layers keep of the variance."""
    several = f", a curve for each of {len(shares)} models" if len(shares) > 1 else ""
    estimated = f" Shares are estimates from {EXACT_UP_TO:,} nodes." if count > EXACT_UP_TO else ""
    svg = draw(
        "decay", f"Decay of the eigenvalues of {max(map(len, shares))} layers{several}.", lambda ax: decay(shares, ax)
    )
    return figure(
        svg,
        f"Eigenvalues of the layers' centred kernel matrices, as shares of the variance{several}. A curve that ends "
        f"high says that more channels would keep more, one that ends very low that fewer would do.{estimated}",
    )
