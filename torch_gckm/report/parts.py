"""The parts of a page: HTML, in which whatever is not :class:`Markup` is escaped, and figures as SVG in its colours."""

import html
import importlib.resources
import io
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from string import Template
from typing import Any

import torch
from torch import Tensor

from torch_gckm import plot
from torch_gckm.plot.common import Subject
from torch_gckm.plot.curves import EXACT_UP_TO, decay
from torch_gckm.plot.embedding import MOST_NODES, Method, method_for
from torch_gckm.plot.withheld import Bins
from torch_gckm.select import GCKMEnsemble, SearchResult
from torch_gckm.train import History

_LONG = 16  # Letters of a cell that should not be squeezed.
# Colours that stand for those of the page, light or dark, and nothing else is drawn in.
_ROLES = {"#1f2328": "var(--ink)", "#fefefe": "var(--surface)", "#d8dee4": "var(--grid)"}
_INK, _SURFACE, _GRID = _ROLES
_STYLE: dict[str, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), _SURFACE),
    "grid.color": _GRID,
    "font.family": "sans-serif",
    **dict.fromkeys(("font.size", "axes.titlesize"), 11),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize", "legend.title_fontsize"), 10),
    "svg.fonttype": "none",  # Text stays text: sharp, and can be found and read aloud.
    "svg.hashsalt": "gckm",
}
_SIZE = (4.9, 3.9)  # In inches. On a narrow screen a figure shrinks, so a small one keeps its letters readable.


class Markup(str):
    """Text that is HTML already."""


def text(content: Any) -> Markup:
    """Anything as HTML."""
    return content if isinstance(content, Markup) else Markup(html.escape(str(content)))


def join(parts: Iterable[Any]) -> Markup:
    """Parts, one after the other."""
    return Markup("\n".join(text(part) for part in parts if part))


def paragraph(content: Any, *, muted: bool = False) -> Markup:
    """A paragraph."""
    return Markup(f'<p class="muted">{text(content)}</p>' if muted else f"<p>{text(content)}</p>")


def section(title: str, *parts: Any) -> Markup:
    """A heading and what is below it; nothing if there is nothing below it."""
    body = join(parts)
    return Markup(f"<section>\n<h2>{text(title)}</h2>\n{body}\n</section>") if body else Markup()


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[int] = ()) -> Markup:
    """A table in a box that scrolls; the first cell of a row names it, an empty one continues the row above."""

    def cell(tag: str, column: int, content: Any, scope: str = "") -> str:
        kind = ' class="n"' if column in numeric else ' class="long"' if len(str(content)) > _LONG else ""
        return f"<{tag}{kind}{scope}>{text(content)}</{tag}>"

    def line(row: Sequence[Any]) -> str:
        first = cell("th", 0, row[0], ' scope="row"')
        rest = "".join(cell("td", column, content) for column, content in enumerate(row[1:], start=1))
        return f'<tr class="more">{first}{rest}</tr>' if row[0] == "" else f"<tr>{first}{rest}</tr>"

    names = "".join(cell("th", column, name, ' scope="col"') for column, name in enumerate(head))
    inside = "\n".join(["<thead>", f"<tr>{names}</tr>", "</thead>", "<tbody>", *map(line, rows), "</tbody>"])
    return Markup(f'<div class="scroll" tabindex="0"><table>\n{inside}\n</table></div>')


def figure(svg: str, caption: Any) -> Markup:
    """A picture, which has a description for those who do not see it, and a caption."""
    return Markup(f"<figure>\n{svg}\n<figcaption>{text(caption)}</figcaption>\n</figure>")


def pair(*parts: Markup, uneven: bool = False) -> Markup:
    """Figures or sections side by side where there is room."""
    return Markup("\n".join([f'<div class="pair{" uneven" if uneven else ""}">', *parts, "</div>"]))


def page(title: str, body: Markup) -> str:
    """The whole page; it needs nothing from anywhere else."""
    template = importlib.resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=text(title), body=body)


def draw(
    key: str, describe: str, paint: Callable[..., object], size: tuple[float, float] = _SIZE, scale: float = 1.0
) -> str:
    """What ``paint`` draws on new axes, as SVG; the key is unique on the page, a wide page enlarges it by the scale."""
    from matplotlib import style
    from matplotlib.figure import Figure

    file = io.StringIO()
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # The reader's fonts draw the text, not matplotlib's.
        drawn = Figure(figsize=size, layout="constrained")
        paint(drawn.subplots())
        drawn.savefig(file, format="svg", metadata={"Date": None})
    return _inline(file.getvalue(), key, describe, scale)


def _inline(svg: str, key: str, describe: str, scale: float) -> str:
    """What matplotlib wrote, as a part of a page: names of its own, the page's colours and fonts, nothing external."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r"<[^>]*>", lambda tag: tag[0].replace(' id="', f' id="{key}-'), svg)
    svg = svg.replace('href="#', f'href="#{key}-').replace("url(#", f"url(#{key}-")
    svg = re.sub(r"'DejaVu Sans'.*?sans-serif", "system-ui, sans-serif", svg)
    for colour, role in _ROLES.items():
        svg = svg.replace(colour, role)
    box = re.search(r'viewBox="0 0 ([\d.]+) [\d.]+"', svg)
    assert box is not None
    width = round(float(box[1]) * scale * 4 / 3)  # Points to pixels.
    opening = f'<svg {box[0]} style="max-width: {width}px" role="img" aria-label="{html.escape(describe)}">'
    return re.sub(r"<svg.*?>", lambda _: opening, svg, count=1, flags=re.DOTALL).strip()


def embedding_figure(subject: Subject, method: Method, count: int) -> Markup:
    """So many nodes in the plane."""
    models, used = len(subject.members), min(count, MOST_NODES)
    several = f"the embeddings of all {models} models" if models > 1 else "the last embedding"
    part = f" {used:,} of {count:,} nodes are drawn, chosen at random." if count > used else ""
    how = "by t-SNE" if method_for(method, used) == "tsne" else "the two main directions"
    caption = (
        f"A point for every node, from {several} ({how}), coloured by the predicted class; stars are labels that were "
        f"given, in the colours of their classes.{part} Neighbours in the picture are neighbours in the embedding; the "
        "axes, and the distances between groups, mean nothing. Stars amid points of another colour deserve a look."
    )
    names = ", ".join(subject.names[:20])
    describe = f"Scatter plot of {used} nodes in two dimensions, coloured by predicted class: {names}."
    options: dict[str, Any] = {"names": subject.names, "method": method}
    svg = draw("embedding", describe, lambda ax: plot.embedding(subject.model, ax, **options), (5.2, 4.7), 1.4)
    return figure(svg, caption)


def withheld_figures(found: plot.Withheld) -> Markup:
    """Which classes are confused, and whether probabilities can be trusted."""
    size, total = len(found.names), found.classes.numel()
    side = 3.9 + 0.12 * max(0, size - 10) if size <= 30 else 6.0
    right = int((found.predicted == found.classes).sum())
    describe = f"Confusion matrix of {size} classes: {right} of {total} withheld labels are predicted right."
    matrix = draw("confusion", describe, lambda ax: plot.confusion(found, ax), (side + 1.0, side + 0.4))
    bins = Bins.of(found.probabilities, found.classes[found.drawn], found.drawn)
    points = "; ".join(f"{p:.2f}: {r:.2f}" for p, r in zip(bins.certainty, bins.right, strict=True))
    describe = f"Reliability curve, mean probability and share that is right: {points}."
    curve = draw("reliability", describe, lambda ax: plot.reliability(found, ax), (4.9, 4.3))
    how = "One label of every class is withheld at a time, in 50 random groups."
    if torch.equal(found.drawn, torch.arange(total)):
        how = "Each label is withheld once."
    own = "" if found.uncalibrated is None else " Grey: predict_proba of a single model, uncalibrated."
    caption = (
        f"{how} Points on the dashed line are well calibrated, points below it too sure; larger points stand for more "
        "predictions. Bars are 95\u00a0% intervals for as many different nodes as there are behind a point."
    )
    words = "Each label is withheld once. Rows are the labels, columns what is predicted without them."
    return pair(figure(matrix, words), figure(curve, caption + own))


def search_figure(result: SearchResult, subject: Subject) -> Markup:
    """The settings that were tried."""
    members = len(subject.members) if isinstance(subject.model, GCKMEnsemble) else 1
    describe = f"Scores of {len(result)} settings in the order in which they were tried."
    svg = draw("search", describe, lambda ax: plot.settings(result, ax, members), (5.2, 3.9), 1.2)
    relative = " in standard deviations from the mean" if result.ranking.criterion == "auto" else ""
    caption = (
        f"A point for every setting: its score by the criterion '{result.ranking.criterion}'{relative}. If the line "
        "has been level for long, a longer search would hardly help."
    )
    return figure(svg, caption)


def training_figures(history: History) -> Markup:
    """How a fit went, step by step."""
    over = f"over {history.records[-1].step} steps."
    scores = draw("scores", f"Accuracies and cosine score {over}", lambda ax: plot.training(history, ax))
    loss = draw("loss", f"The objective {over}", lambda ax: plot.training(history, ax, ["loss"]))
    kept = f"The dashed line marks step {history.best.step}, whose state the model holds."
    return pair(figure(scores, f"Scores after every step. {kept}"), figure(loss, "The objective, which steps lower."))


def decay_figure(shares: Sequence[Sequence[Tensor]], count: int) -> Markup:
    """What the layers keep of the variance."""
    several = f", a curve for each of {len(shares)} models" if len(shares) > 1 else ""
    estimated = f" Shares are estimates from {EXACT_UP_TO:,} nodes." if count > EXACT_UP_TO else ""
    describe = f"Decay of the eigenvalues of {max(map(len, shares))} layers{several}."
    caption = (
        f"Eigenvalues of the layers' centred kernel matrices, as shares of the variance{several}. Where a curve ends "
        f"high, more channels would keep more; where it ends very low, fewer would do.{estimated}"
    )
    return figure(draw("decay", describe, lambda ax: decay(shares, ax)), caption)
