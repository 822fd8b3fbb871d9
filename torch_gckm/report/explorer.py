"""Nodes to look at: a picture and a table of the same nodes, with a search, filters and a download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torch_gckm.plot.common import Array
from torch_gckm.plot.embedding import nodes_to_draw
from torch_gckm.report.drawing import QUIET, Drawings, new_figure, plain, styled
from torch_gckm.report.markup import Markup, join

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource, HoverTool, IndexFilter
    from bokeh.models.renderers.glyph_renderer import GlyphRenderer
    from bokeh.plotting import figure

MOST_ROWS = 20_000  # Of the table.
MOST_POINTS = 4_000  # Of the picture.

# All rows whose name contains the text, and that have what was chosen; every list of choices has its column.
_FILTER = """
const wanted = text.value_input.trim().toLowerCase()
const rows = []
for (let i = 0; i < source.length; i++) {
  if (!String(source.data.node[i]).toLowerCase().includes(wanted)) continue
  if (choices.every((choice) => choice.value == "" || source.data[choice.name][i] == choice.value)) rows.push(i)
}
shown.indices = rows
count.text = `${rows.length.toLocaleString("en")} of ${source.length.toLocaleString("en")} nodes match`
"""
# The rows that are shown, as CSV; text that a spreadsheet would take for a formula gets an apostrophe.
_DOWNLOAD = """
const cell = (value) => {
  if (typeof value == "number") return Number.isNaN(value) ? "" : String(Number(value.toPrecision(6)))
  const text = /^[=+@\\-\\t\\r]/.test(value) && Number.isNaN(Number(value)) ? "'" + value : String(value)
  return '"' + text.replaceAll('"', '""') + '"'
}
const rows = shown.indices ?? [...Array(source.length).keys()]
const lines = [titles.map(cell), ...rows.map((i) => fields.map((name) => cell(source.data[name][i])))]
const file = new Blob(["\\ufeff" + lines.map((line) => line.join(",")).join("\\r\\n") + "\\r\\n"], {type: "text/csv"})
const link = document.createElement("a")
link.href = URL.createObjectURL(file)
link.download = "predictions.csv"
link.click()
URL.revokeObjectURL(link.href)
"""


@dataclass
class Explorer:
    """Nodes, as rows of one source of data that a picture and a table share."""

    rows: Tensor  # The nodes in the table, in increasing order.
    is_drawn: Tensor  # Which of them are in the picture.
    num_nodes: int
    titles: dict[str, str] = field(default_factory=dict)  # Of the table's columns.
    data: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, num_nodes: int, always: Tensor, names: Sequence[str] | None) -> Explorer:
        """All nodes, or of many a random choice that has some ``always``."""
        rows = nodes_to_draw(num_nodes, always, MOST_ROWS)
        found = cls(rows, torch.isin(rows, nodes_to_draw(num_nodes, always, MOST_POINTS)), num_nodes)
        found.add("node", [str(node) if names is None else names[node] for node in rows.tolist()], "node")
        return found

    @property
    def drawn(self) -> Tensor:
        """The nodes in the picture."""
        return self.rows[self.is_drawn]

    def add(self, name: str, values: Any, title: str | None = None) -> None:
        """A column, one value per row; with a title it is in the table, too."""
        self.data[name] = values
        if title is not None:
            self.titles[name] = title

    def add_of_drawn(self, name: str, values: Sequence[str]) -> None:
        """A column of words about the nodes in the picture."""
        column = np.full(self.rows.numel(), "", dtype=object)
        column[self.is_drawn.numpy()] = values
        self.data[name] = column.tolist()

    def add_points(self, points: Array) -> None:
        """Where the nodes in the picture are, ``[drawn, 2]``."""
        for axis, name in enumerate("xy"):
            column = np.full(self.rows.numel(), np.nan, dtype=np.float32)
            column[self.is_drawn.numpy()] = points[:, axis]
            self.data[name] = column

    def words_on_choice(self) -> str:
        """What is missing of a large graph."""
        parts = []
        for shown, what in ((self.drawn.numel(), "The picture has"), (self.rows.numel(), "The table has")):
            if shown < self.num_nodes:
                parts.append(f"{what} {shown:,} of {self.num_nodes:,} nodes: labelled ones, and a random choice.")
        return " ".join(parts)


@dataclass
class Picture:
    """The figure of an explorer, and what all that is drawn of it shares."""

    explorer: Explorer
    source: ColumnDataSource
    shown: IndexFilter  # The rows that the search and the choices leave.
    drawn: figure
    hover: HoverTool

    @classmethod
    def of(cls, explorer: Explorer, tooltips: Sequence[tuple[str, str]], height: int = 520) -> Picture:
        """An empty picture whose points say something under the mouse; behind them all nodes, faintly."""
        from bokeh.models import ColumnDataSource, HoverTool, IndexFilter

        hover = HoverTool(tooltips=list(tooltips), renderers=[], limit=1)
        picture = cls(explorer, ColumnDataSource(explorer.data), IndexFilter(), new_figure(height=height), hover)
        picture.drawn.axis.visible = picture.drawn.grid.visible = False
        everything = explorer.is_drawn.nonzero().flatten()
        picture.points(everything, filtered=False, fill_color=QUIET, fill_alpha=0.12, size=4)
        picture.drawn.add_tools(hover)
        return picture

    def points(self, rows: Tensor, *, filtered: bool = True, hover: bool = False, **look: Any) -> GlyphRenderer[Any]:
        """Draw some rows."""
        from bokeh.models import CDSView, IndexFilter, IntersectionFilter

        own: Any = IndexFilter(indices=rows.tolist())
        view = CDSView(filter=IntersectionFilter(operands=[own, self.shown]) if filtered else own)
        look = {"line_color": None, "muted_alpha": 0.04, **look}
        renderer = self.drawn.scatter("x", "y", source=self.source, view=view, **look)
        # A row that is clicked in the table stands out by its size; others do not fade.
        renderer.nonselection_glyph = renderer.glyph
        renderer.selection_glyph = renderer.glyph.clone(size=16, line_color=QUIET, line_width=3, fill_alpha=1.0)
        if hover:
            self.hover.renderers = [*self.hover.renderers, renderer]
        return renderer

    def controls(self, drawings: Drawings, choices: dict[str, tuple[str, list[str]]]) -> Markup:
        """The search and the choices: a title and values for the name of a column."""
        from bokeh.models import CustomJS
        from bokeh.models.widgets.inputs import Select, TextInput
        from bokeh.models.widgets.markups import Div

        text = TextInput(title="Find a node by its name", placeholder="part of a name", sizing_mode="stretch_width")
        count = Div(text="", disable_math=True, stylesheets=[":host { color: var(--muted); }"])
        lists = []
        for name, (title, values) in choices.items():
            options: list[Any] = [("", "all"), *((value, plain(value)) for value in values)]
            lists.append(Select(title=title, name=name, value="", options=options, sizing_mode="stretch_width"))
        arguments = {"text": text, "source": self.source, "shown": self.shown, "choices": lists, "count": count}
        callback = CustomJS(args=arguments, code=_FILTER)
        text.js_on_change("value_input", callback)
        for one in lists:
            one.js_on_change("value", callback)
        placed = [drawings.place(styled(part)) for part in (text, *lists)]
        inner = "\n".join(f"<div>{part}</div>" for part in placed)
        status = f'<div class="status" aria-live="polite">{drawings.place(count)}</div>'
        return Markup(f'<div class="controls">\n{inner}\n</div>\n{status}')

    def table(self, drawings: Drawings, widths: dict[str, int]) -> Markup:
        """The table, which a click on a heading sorts, and a button that saves the rows that are shown."""
        from bokeh.models import CDSView, CustomJS
        from bokeh.models.widgets.buttons import Button
        from bokeh.models.widgets.tables import DataTable, NumberFormatter, StringFormatter, TableColumn

        titles, columns = self.explorer.titles, []
        for name, title in titles.items():
            is_number = isinstance(self.explorer.data[name], np.ndarray)
            formatter: Any = NumberFormatter(format="0[.]0000", nan_format="") if is_number else StringFormatter()
            if name in ("sure", "second_sure"):
                formatter = NumberFormatter(format="0.00", nan_format="")
            width = widths.get(name, max(90, 20 + 7 * min(len(title), 30)))
            columns.append(TableColumn(field=name, title=title, formatter=formatter, width=width))
        table = DataTable(
            source=self.source, columns=columns, view=CDSView(filter=self.shown), index_position=None, height=420,
            autosize_mode="none", sizing_mode="stretch_width", reorderable=False, row_height=30,
        )  # fmt: skip
        button = Button(label="Save these rows as CSV", width=220)
        arguments = {
            "source": self.source,
            "shown": self.shown,
            "fields": list(titles),
            "titles": list(titles.values()),
        }
        button.js_on_click(CustomJS(args=arguments, code=_DOWNLOAD))
        box = f'<div class="grid" role="region" aria-label="Table of predictions">{drawings.place(styled(table))}</div>'
        return join([Markup(box), drawings.place(styled(button))])
