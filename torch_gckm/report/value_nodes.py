"""Nodes with their numbers or labels: the picture of their embedding, coloured by one column, and the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torch_gckm.plot.embedding import Method
from torch_gckm.report.class_nodes import joint_embedding
from torch_gckm.report.drawing import QUIET, SEQUENTIAL, Drawings, legend_below, plain, styled
from torch_gckm.report.explorer import Explorer, Picture
from torch_gckm.report.layout import arrange
from torch_gckm.report.markup import Markup, figure, join, paragraph, prose

if TYPE_CHECKING:
    from torch_gckm.report.values import ValueFit

_COLUMNS = 8  # Of numbers or labels, that the table and the picture have.
_COLOUR = """
const [low, high] = ranges[this.value]
source.data.value = source.data[this.value]
source.data.label = source.data["g" + this.value.slice(1)]
mapper.setv({low, high})
source.change.emit()
"""


def value_explorer(fit: ValueFit, method: Method, drawings: Drawings) -> Markup:
    """The search, the picture and the table, with words on what they show."""
    explorer, shown = _rows(fit), min(len(fit.names), _COLUMNS)
    colours = "the [probability] of the chosen label" if fit.has_labels else "the predicted number"
    words = (
        f"A point per node, placed by the [embedding]s of {len(fit.members)} models: nodes close to each other are "
        f"alike for the models; axes and distances between groups mean nothing. Colours are {colours}, larger points "
        f"with a rim are nodes whose {'labels' if fit.has_labels else 'numbers'} were given, in the colours of these. "
        "Point at a node for details."
    )
    explorer.add_points(arrange(joint_embedding(fit.members, explorer.drawn), method))
    names = [plain(name, 20) for name in fit.names[:shown]] if shown > 1 else ["predicted"]
    tips = [("node", "@node")]
    tips += [(name, f"@v{j}{{0.[000]}} (given: @g{j}{{0.[000]}})") for j, name in enumerate(names)]
    tips += [("without it", "@alone{0.[000]}")] if shown == 1 else []
    picture = Picture.of(explorer, [*tips, ("neighbours", "@near")])
    chooser = _draw(fit, explorer, picture, shown)
    choices = {"what": ("Nodes", sorted(set(explorer.data["what"])))}
    parts = [picture.controls(drawings, choices)]
    if chooser is not None:
        parts.append(Markup(f'<div class="controls"><div>{drawings.place(styled(chooser))}</div></div>'))
    describe = (
        f"Scatter plot of {explorer.drawn.numel()} nodes in two dimensions, coloured by what is predicted. The table "
        "below has the same nodes."
    )
    missing = f" It has the first {shown} of {len(fit.names)} columns." if shown < len(fit.names) else ""
    columns = f"Click on a heading to sort the table, on a row to mark its node in the picture.{missing}"
    return join([
        *parts,
        figure(drawings.place(picture.drawn), describe, prose(words)),
        picture.table(drawings, {"node": 130, "alone": 130}),
        paragraph(f"{columns} {explorer.words_on_choice()}", muted=True),
    ])  # fmt: skip


def _rows(fit: ValueFit) -> Explorer:
    explorer = Explorer.of(fit.graph.num_nodes, fit.labelled, fit.nodes)
    rows, several = explorer.rows, len(fit.names) > 1
    known = torch.full_like(fit.values, torch.nan, dtype=torch.float64)
    known[fit.labelled] = fit.known.double()
    for j, name in enumerate(fit.names[:_COLUMNS]):
        values = _rounded(fit.values[rows, j])
        what = "probability" if fit.has_labels else "predicted"
        explorer.add(f"v{j}", values, f"{name}: {what}" if several else what)
        explorer.add(f"g{j}", _rounded(known[rows, j]), f"{name}: given" if several else "given")
    if not several:
        alone = torch.full((fit.graph.num_nodes,), torch.nan, dtype=torch.float64)
        alone[fit.labelled] = fit.left_out[:, 0].double()
        explorer.add("alone", _rounded(alone[rows]), "predicted without it")
    explorer.add("value", explorer.data["v0"])
    explorer.add("label", explorer.data["g0"])
    given = set(fit.labelled.tolist())
    what = "labels" if fit.has_labels else "number"
    explorer.add("what", [f"{what} given" if node in given else f"no {what}" for node in rows.tolist()])
    if fit.has_labels:
        near = fit.graph.neighbour_labels(explorer.drawn, fit.values > 0.5, fit.names)
    else:
        near = fit.graph.neighbour_means(explorer.drawn, fit.values[:, 0])
    explorer.add_of_drawn("near", near)
    return explorer


def _rounded(values: Any) -> Any:
    """Doubles with some six digits, which say enough."""
    array = values.double().numpy()
    digits = np.floor(np.log10(np.maximum(np.abs(np.nan_to_num(array)), 1e-300)))
    unit = 10.0 ** np.clip(digits - 5, -300, 300)
    return np.round(array / unit) * unit


def _draw(fit: ValueFit, explorer: Explorer, picture: Picture, shown: int) -> Any:
    """Points in the colours of one column, with a bar that explains these; and the choice of the column."""
    from bokeh.models import BasicTicker, CustomJS, LinearColorMapper
    from bokeh.models.annotations.legends import ColorBar
    from bokeh.models.widgets.inputs import Select
    from bokeh.transform import transform

    def ends(j: int) -> list[float]:
        if fit.has_labels:
            return [0.0, 1.0]
        low, high = np.quantile(fit.values[:, j].double().numpy(), [0.01, 0.99]).tolist()
        return [low, high if high > low else low + 1.0]

    low, high = ends(0)
    mapper = LinearColorMapper(palette=_palette(), low=low, high=high)
    rows = explorer.is_drawn.nonzero().flatten()
    size = 6 if explorer.drawn.numel() <= 2500 else 4
    points = picture.points(rows, hover=True, size=size, fill_color=transform("value", mapper), fill_alpha=0.85)
    given = torch.tensor([i for i in rows.tolist() if not explorer.data["what"][i].startswith("no ")], dtype=torch.long)
    look: dict[str, Any] = {"fill_color": transform("label", mapper), "line_color": QUIET, "line_width": 1.5}
    stars = picture.points(given, size=12, marker="circle", **look)
    legend_below(
        picture.drawn, [("predicted", [points]), ("labels given" if fit.has_labels else "number given", [stars])], 12
    )
    bar = ColorBar(
        color_mapper=mapper, ticker=BasicTicker(desired_num_ticks=4), height=12, background_fill_color=None,
        major_label_text_color=QUIET, border_line_color=None, bar_line_color=None, major_tick_line_color=None,
    )  # fmt: skip
    picture.drawn.add_layout(bar, "above")
    if shown < 2:
        return None
    options: list[Any] = [(f"v{j}", plain(fit.names[j])) for j in range(shown)]
    chooser = Select(title="Colours show", value="v0", options=options, sizing_mode="stretch_width")
    ranges = {f"v{j}": ends(j) for j in range(shown)}
    arguments = {"source": picture.source, "mapper": mapper, "ranges": ranges}
    chooser.js_on_change("value", CustomJS(args=arguments, code=_COLOUR))
    return chooser


def _palette() -> list[str]:
    """Colours between those of the scale, in 120 steps."""
    ends = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in SEQUENTIAL])
    at = np.linspace(0, len(SEQUENTIAL) - 1, 120)
    parts = [np.interp(at, np.arange(len(SEQUENTIAL)), ends[:, channel]) for channel in range(3)]
    return ["#" + "".join(f"{round(value):02x}" for value in colour) for colour in np.stack(parts, axis=1)]
