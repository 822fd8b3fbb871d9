"""Figures about how a fit went: withheld labels and numbers, the search, the training, the layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torch_gckm.plot.common import COLOURS
from torch_gckm.plot.curves import LABELS, SCORES
from torch_gckm.plot.withheld import Bins, confusion_counts
from torch_gckm.report.drawing import QUIET, Drawings, legend_below, new_figure
from torch_gckm.report.markup import Markup, figure, prose, scrolled, table, text
from torch_gckm.select import SearchResult
from torch_gckm.select.result import choose_members
from torch_gckm.select.withheld import Withheld
from torch_gckm.train import History

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

_MOST_CELLS = 30  # Classes of a confusion matrix; of more, the most frequent confusions are listed.
_LISTED = 20
_DASHES = ("solid", "dashed", "dotted", "dotdash")


def confusion(found: Withheld) -> Markup:
    """Which class each withheld label is predicted as: a matrix, or a list of the most frequent mistakes."""
    size = len(found.names)
    counts = confusion_counts(found.classes.cpu(), found.predicted.cpu(), size)
    if size > _MOST_CELLS:
        wrong = counts.clone().fill_diagonal_(0)
        rows = [
            [found.names[place // size], found.names[place % size], int(wrong.view(-1)[place])]
            for place in wrong.view(-1).argsort(descending=True, stable=True)[:_LISTED].tolist()
            if int(wrong.view(-1)[place])
        ]
        return table(["label", "predicted as", "times"], rows, [2], "Most frequent mistakes") if rows else Markup()
    share = counts.double() / counts.sum(dim=1, keepdim=True).clamp(min=1)
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in found.names)
    lines = []
    for row, name in enumerate(found.names):
        cells = "".join(
            f'<td style="--share: {100 * float(share[row, column]):.0f}%">{int(counts[row, column]) or ""}</td>'
            for column in range(size)
        )
        lines.append(f'<tr><th scope="row">{text(name)}</th>{cells}</tr>')
    corner = '<tr><th scope="col">label</th>'
    body = f'<table class="matrix">\n<thead>{corner}{head}</tr></thead>\n<tbody>{"".join(lines)}</tbody>\n</table>'
    words = "Rows are labels, columns what is predicted when they are withheld. Darker cells have more of their row."
    box = scrolled(Markup(body), "Confusion matrix")
    return Markup(f"<figure>\n{box}\n<figcaption>{text(words)}</figcaption>\n</figure>")


def reliability(found: Withheld, drawings: Drawings) -> Markup:
    """How often predictions of a probability are right."""
    classes = found.classes[found.drawn]
    bins = Bins.of(found.probabilities, classes, found.drawn)
    drawn = new_figure(
        "probability of the predicted class", "share that is right", x_range=(0, 1.02), y_range=(0, 1.02)
    )
    drawn.line([0, 1], [0, 1], line_dash="dashed", line_color=QUIET)
    drawn.segment(bins.certainty, bins.low, bins.certainty, bins.high, line_color=COLOURS[0], line_width=2, alpha=0.6)
    data: dict[str, Any] = {"x": bins.certainty, "y": bins.right, "predictions": bins.count, "nodes": bins.nodes}
    drawn.line("x", "y", source=data, line_color=COLOURS[0])
    size = 6 + 12 * np.sqrt(bins.count / bins.count.sum())
    hovered = _points(drawn, {**data, "size": size}, size="size", fill_color=COLOURS[0])
    tips = [("probability", "@x{0.00}"), ("right", "@y{0.00}"), ("predictions", "@predictions"), ("nodes", "@nodes")]
    _hover(drawn, hovered, tips)
    if found.uncalibrated is not None:
        own = Bins.of(found.uncalibrated, classes, found.drawn)
        drawn.line(own.certainty, own.right, line_color=QUIET, line_dash="dotted", line_width=2)
    points = "; ".join(f"{p:.2f}: {r:.2f}" for p, r in zip(bins.certainty, bins.right, strict=True))
    how = "One label of every class is withheld at a time, in 50 random groups."
    if torch.equal(found.drawn, torch.arange(found.classes.numel())):
        how = "Each label is withheld once."
    caption = (
        f"{how} Points on the dashed line are well [calibrated], points below it too sure; larger points stand for "
        "more predictions. Bars are 95 % intervals for as many different nodes as there are behind a point."
    )
    if found.uncalibrated is not None:
        caption += " Dotted: predict_proba of a single model, not calibrated."
    describe = f"Reliability curve, mean probability and share that is right: {points}."
    return figure(drawings.place(drawn), describe, prose(caption))


def search(result: SearchResult, members: int, drawings: Drawings) -> Markup:
    """The score of every setting, in the order in which they were tried."""
    ranking = result.ranking
    pairs = zip(result.trials, ranking.scores(result.trials), strict=True)
    valid = [(trial, score) for trial, score in pairs if trial.is_valid]
    is_collapsed = getattr(ranking, "least_classes", None) is not None
    used = [(t, s) for t, s in valid if not (is_collapsed and ranking.is_collapsed(t))] or valid
    if not used:
        return Markup()
    chosen = {trial.number for trial in choose_members(result.ranked(), members)}
    numbers = np.array([trial.number + 1 for trial, _ in used])
    scores = np.array([score for _, score in used])
    right = [100 * trial.measures["leave_one_out"] for trial, _ in used]
    names = [str(trial.setting) for trial, _ in used]
    marked = np.array([trial.number in chosen for trial, _ in used])
    drawn = new_figure("setting", f"score ({ranking.criterion})")
    best = drawn.step(numbers, np.maximum.accumulate(scores), mode="after", line_color=COLOURS[1], line_width=2)
    items = [("best so far", [best])]
    for what, where, colour in (("combined", marked, COLOURS[0]), ("others", ~marked, QUIET)):
        if where.any():
            data = {"x": numbers[where], "y": scores[where]}
            data |= {
                "right": [right[i] for i in np.flatnonzero(where)],
                "what": [names[i] for i in np.flatnonzero(where)],
            }
            points = _points(drawn, data, size=9, fill_color=colour, fill_alpha=0.8)
            _hover(
                drawn, points, [("setting", "@x"), ("score", "@y{0.00}"), ("withheld", "@right{0} %"), ("", "@what")]
            )
            items.append((what, [points]))
    legend_below(drawn, items, 11)
    missing = len(result) - len(used)
    relative = ", in standard deviations from the mean" if ranking.criterion == "auto" and is_collapsed else ""
    caption = (
        f"A point for every [setting]: its score by the [criterion] '{ranking.criterion}'{relative}. If the line of "
        "the best so far has been level for long, a longer search would hardly help."
    )
    if missing:
        caption += (
            f" {missing} of {len(result)} settings failed or predict hardly more than one class; they are not shown."
        )
    describe = f"Scores of {len(used)} settings in the order in which they were tried."
    return figure(drawings.place(drawn), describe, prose(caption))


def training(history: History, drawings: Drawings) -> list[Markup]:
    """How a fit went, step by step."""
    over = f"over {history.records[-1].step} steps."
    kept = f"The dashed line marks step {history.best.step}, whose state the model holds."
    parts = []
    for names, words in (
        (SCORES, f"Scores after every step. {kept}"),
        (("loss",), "The objective, which steps lower."),
    ):
        drawn, items = new_figure("step", LABELS["loss"] if names == ("loss",) else "score"), []
        steps = [record.step for record in history]
        for number, name in enumerate(names):
            values = [float(getattr(record, name)) for record in history]
            if all(math.isnan(value) for value in values):
                continue
            colour, dash = COLOURS[number], _DASHES[number]
            line = drawn.line(steps, values, line_color=colour, line_width=2, line_dash=dash)
            points = _points(drawn, {"x": steps, "y": values}, size=7, fill_color=colour)
            _hover(drawn, points, [("step", "@x"), (LABELS[name], "@y{0.000}")])
            items.append((LABELS[name], [line, points]))
        _mark(drawn, history.best.step)
        if len(items) > 1:
            legend_below(drawn, items, 30)
        parts.append(figure(drawings.place(drawn), f"{words.split('.')[0]} {over}", words))
    return parts


def decay(shares: Sequence[Sequence[Tensor]], estimated_from: int | None, drawings: Drawings) -> Markup:
    """What the layers keep of the variance, a curve for every layer of every model."""
    drawn = new_figure("direction", "share of the variance, %", y_axis_type="log")
    items = []
    for layer in range(max(map(len, shares))):
        curves = [member[layer] for member in shares if len(member) > layer]
        captured = [min(100.0, 100 * float(curve.sum())) for curve in curves]  # Low-rank traces are a little off.
        low, high = f"{min(captured):.0f}", f"{max(captured):.0f}"
        name = f"layer {layer + 1}: {low} % kept" if low == high else f"layer {layer + 1}: {low} to {high} % kept"
        look: dict[str, Any] = {"line_color": COLOURS[layer % len(COLOURS)], "line_dash": _DASHES[layer % len(_DASHES)]}
        lines = [
            drawn.line(np.arange(1.0, curve.numel() + 1), 100 * curve.numpy().clip(min=1e-12), line_width=2, **look)
            for curve in curves
        ]
        items.append((name, lines))
    legend_below(drawn, items, max(len(name) for name, _ in items))
    several = f", a curve for each of {len(shares)} models" if len(shares) > 1 else ""
    estimated = "" if estimated_from is None else f" Shares are estimates from {estimated_from:,} nodes."
    caption = (
        f"How much of the variance each direction of the [layer]s holds{several}. Where a curve ends high, more "
        f"[channels] would keep more; where it ends very low, fewer would do.{estimated}"
    )
    describe = f"Decay of the eigenvalues of {max(map(len, shares))} layers{several}."
    return figure(drawings.place(drawn), describe, prose(caption))


def against_withheld(known: Tensor, left_out: Tensor, names: Sequence[str], column: str, drawings: Drawings) -> Markup:
    """Predictions of withheld numbers ``[b]`` against these, and the errors."""
    y, predicted = known.double().numpy(), left_out.double().numpy()
    drawn = new_figure("given number", "predicted without it", height=360)
    low, high = float(min(y.min(), predicted.min())), float(max(y.max(), predicted.max()))
    drawn.line([low, high], [low, high], line_dash="dashed", line_color=QUIET)
    data = {"x": y, "y": predicted, "error": predicted - y, "node": list(names)}
    points = _points(drawn, data, size=8, fill_color=COLOURS[0], fill_alpha=0.7)
    _hover(drawn, points, [("node", "@node"), ("given", "@x"), ("predicted", "@y"), ("error", "@error")])
    words = prose("Each [withheld number]{of} and its prediction. Points on the dashed line are right.", of=column)
    return figure(drawings.place(drawn), f"Scatter plot of {y.size} withheld numbers and their predictions.", words)


def errors(known: Tensor, left_out: Tensor, spread: float, drawings: Drawings) -> Markup:
    """How large the errors on withheld numbers are."""
    found = (left_out - known).double().numpy()
    counts, edges = np.histogram(found, bins=min(30, max(5, round(math.sqrt(found.size)) + 2)))
    drawn = new_figure("error (predicted - given)", "nodes", height=360)
    bars: dict[str, Any] = {"left": edges[:-1], "right": edges[1:], "top": counts}
    shown = drawn.quad("left", "right", "top", 0, source=bars, fill_color=COLOURS[0], fill_alpha=0.7, line_color=QUIET)
    _hover(drawn, shown, [("errors", "@left to @right"), ("nodes", "@top")])
    for place in (-2 * spread, 2 * spread):
        _mark(drawn, place)
    words = "The errors on [withheld number]s. Dashed lines mark twice the [spread]; few errors should be beyond."
    return figure(drawings.place(drawn), f"Histogram of {found.size} errors.", prose(words))


def _points(drawn: Figure, data: dict[str, Any], **look: Any) -> Any:
    return drawn.scatter("x", "y", source=data, line_color=None, **look)


def _hover(drawn: Figure, renderer: Any, tooltips: list[tuple[str, str]]) -> None:
    from bokeh.models import HoverTool

    drawn.add_tools(HoverTool(renderers=[renderer], tooltips=tooltips, visible=False))


def _mark(drawn: Figure, place: float) -> None:
    """A dashed vertical line."""
    from bokeh.models.annotations.geometry import Span

    drawn.add_layout(Span(location=place, dimension="height", line_color=QUIET, line_dash="dashed"))
