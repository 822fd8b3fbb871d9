"""Figures as SVG within a page, in the colours of the page."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that stand for those of the page, light or dark, and nothing else is drawn in.
_ROLES = {"#1f2328": "var(--ink)", "#fefefe": "var(--surface)", "#d8dee4": "var(--grid)"}
_INK, _SURFACE, _GRID = _ROLES
_STYLE: dict[str, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), _SURFACE),
    "grid.color": _GRID,
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.titlesize": 11,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "legend.title_fontsize": 10,
    "svg.fonttype": "none",  # Text stays text: sharp, and can be found and read aloud.
    "svg.hashsalt": "gckm",
}


def draw(
    key: str,
    describe: str,
    paint: Callable[[Axes], object],
    width: float = 4.9,
    height: float = 3.9,
    scale: float = 1.0,
) -> str:
    """Paint on new axes, and return them as an ``<svg>`` element.

    Args:
        key: A word that no other figure of the page has.
        describe: What the figure shows, for those who do not see it.
        paint: Draws on axes.
        width: The width in inches. On a narrow screen a figure shrinks, so a small one keeps its letters readable.
        height: The height in inches.
        scale: How much larger the figure may get where there is room.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    file = io.StringIO()
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # The reader's fonts draw the text, not matplotlib's.
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure.subplots())
        figure.savefig(file, format="svg", metadata={"Date": None})
    return inline(file.getvalue(), key, describe, scale)


def inline(svg: str, key: str, describe: str, scale: float = 1.0) -> str:
    """What matplotlib wrote, as a part of a page: names of its own, the page's colours and fonts, nothing external."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r"<[^>]*>", lambda tag: tag[0].replace(' id="', f' id="{key}-'), svg)
    svg = re.sub(r'href="#', f'href="#{key}-', svg).replace("url(#", f"url(#{key}-")
    svg = re.sub(r"'DejaVu Sans'.*?sans-serif", "system-ui, sans-serif", svg)
    for colour, role in _ROLES.items():
        svg = svg.replace(colour, role)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box is not None
    width = round(float(box[1]) * scale * 4 / 3)  # Points to pixels.
    opening = (
        f'<svg viewBox="{box[0][9:-1]}" style="max-width: {width}px" role="img" aria-label="{html.escape(describe)}">'
    )
    return re.sub(r"<svg.*?>", lambda _: opening, svg, count=1, flags=re.DOTALL).strip()
