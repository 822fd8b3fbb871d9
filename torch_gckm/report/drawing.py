"""Bokeh's part of a page: how figures look, and scripts that draw them without a network."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch_gckm.report.markup import Markup

if TYPE_CHECKING:
    from bokeh.models.ui.ui_element import UIElement
    from bokeh.plotting import figure

QUIET = "#808890"  # Of text and lines: readable on white and on black, where a page's own colours do not arrive.
SEQUENTIAL = ("#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30")  # Viridis without its ends.
_COMPONENTS: list[Any] = ["bokeh", "bokeh-widgets", "bokeh-tables"]
# What is inside Bokeh's widgets and tables; the page's own style sheet does not reach it, its variables do.
_INSIDE = """
:host { color: var(--ink); font: inherit; }
.bk-input, .bk-btn { background: var(--surface) !important; color: var(--ink) !important;
  border-color: var(--muted) !important; font-size: .95rem; min-height: 2.4rem; }
.bk-input-group > label { color: var(--muted); }
.slick-header, .slick-header-column, .slick-header-columns { background: var(--page) !important;
  color: var(--ink) !important; border-color: var(--grid) !important; }
.slick-row, .slick-cell, .grid-canvas { background: var(--surface) !important; color: var(--ink) !important; }
.slick-cell { border-color: transparent transparent var(--grid) transparent !important; }
.slick-row.odd .slick-cell { background: var(--page) !important; }
.slick-cell.selected { background: var(--chosen) !important; }
.slick-sort-indicator { filter: grayscale(1); }
"""


def require_bokeh() -> None:
    """Raise an error that names the extra if Bokeh is not installed."""
    if importlib.util.find_spec("bokeh") is None:
        raise ImportError("pages need Bokeh; install it with: pip install 'torch_gckm[report]'")


def new_figure(x: str = "", y: str = "", height: int = 330, **options: Any) -> figure:
    """An empty figure, as wide as there is room; nothing catches a finger that scrolls the page."""
    from bokeh.plotting import figure

    tools = options.pop("tools", "pan,box_zoom,wheel_zoom,reset,save")
    drawn = figure(
        height=height, sizing_mode="stretch_width", tools=tools, active_drag=None, toolbar_location="right",
        x_axis_label=plain(x) or None, y_axis_label=plain(y) or None, background_fill_color=None,
        border_fill_color=None, outline_line_color=None, **options,
    )  # fmt: skip
    drawn.toolbar.logo = None
    for axis in drawn.axis:
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_color = axis.major_label_text_color = QUIET
        axis.axis_line_color = axis.major_tick_line_color = QUIET
        axis.minor_tick_line_color = None
    drawn.grid.grid_line_color, drawn.grid.grid_line_alpha = QUIET, 0.25
    return drawn


def legend_below(drawn: figure, items: list[Any], longest: int) -> None:
    """A legend under a figure; a click on an entry mutes what it stands for."""
    from bokeh.models.annotations.legends import Legend

    columns = max(1, min(5, 300 // (40 + 7 * longest)))  # They must fit a phone.
    legend = Legend(items=items, ncols=columns, click_policy="mute", background_fill_color=None, border_line_color=None)
    legend.label_text_color, legend.label_text_font_size, legend.inactive_fill_color = QUIET, "12px", "#808890"
    legend.inactive_fill_alpha, legend.location = 0.35, "center"
    drawn.add_layout(legend, "below")


def styled(widget: Any) -> Any:
    """A widget in the colours of the page."""
    widget.stylesheets = [*widget.stylesheets, _INSIDE]
    return widget


def plain(name: str, longest: int = 60) -> str:
    """Text that Bokeh draws as it is: not too long, and not as a formula, for which it would load a library."""
    short = name if len(name) <= longest else name[: longest - 1] + "\u2026"
    return short.replace("$$", "$\u200b$").replace("\\(", "\\\u200b(").replace("\\[", "\\\u200b[")


class Drawings:
    """The figures and widgets of a page, which are drawn by one script at its end."""

    def __init__(self) -> None:
        self._roots: dict[str, Any] = {}

    def place(self, root: UIElement) -> Markup:
        """The place of a figure or widget in the page."""
        name = f"drawing-{len(self._roots)}"
        self._roots[name] = root
        return Markup(f"<!--{name}-->")

    def finish(self, body: Markup) -> tuple[Markup, Markup]:
        """The page's body with the places filled in, and its scripts: Bokeh itself, and what it draws."""
        from bokeh.document import Document
        from bokeh.embed import components
        from bokeh.resources import Resources

        if not self._roots:
            return body, Markup()
        document = Document()
        with document.models.freeze():  # Else all models are looked through again for every root.
            for root in self._roots.values():
                document.add_root(root)
        script, places = components(self._roots)
        filled: Mapping[str, str] = places
        for name, place in filled.items():
            body = Markup(body.replace(f"<!--{name}-->", place.strip()))
        library = Resources(mode="inline", components=_COMPONENTS).render_js()
        return body, Markup(f"{library}\n{script}")
