"""Nodes with their classes: the picture of their embedding, and the table of predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torch_gckm.plot.common import COLOURS
from torch_gckm.plot.embedding import Method
from torch_gckm.report.drawing import QUIET, Drawings, legend_below, plain
from torch_gckm.report.explorer import Explorer, Picture
from torch_gckm.report.layout import arrange
from torch_gckm.report.markup import Markup, figure, join, paragraph, prose
from torch_gckm.select.unlabelled import embedding_of

if TYPE_CHECKING:
    from torch_gckm.report.classes import ClassFit

_IN_LEGEND = 18  # Classes; those with fewer nodes share an entry.
_MARKERS = ("circle", "triangle", "square", "diamond", "inverted_triangle", "hex", "plus")
_WIDTHS = {
    "node": 130, "guess": 125, "sure": 90, "second": 125, "second_sure": 150, "given": 125, "alone": 125, "next": 85,
}  # fmt: skip


def class_explorer(fit: ClassFit, method: Method, drawings: Drawings) -> Markup:
    """The search, the picture and the table, with words on what they show."""
    explorer = _rows(fit)
    models = len(fit.subject.members)
    several = f"the [embedding]s of all {models} models" if models > 1 else "the last [embedding]"
    words = (
        f"A point per node, placed by {several}: nodes close to each other are alike for the models; axes and "
        "distances between groups mean nothing. Colours are predicted classes, stars are labels that were given, in "
        "the colours of their classes; rings are nodes to label next. Stars amid points of another colour deserve a "
        "look. Point at a node for details; click on an entry of the legend to fade a class. The tools beside the "
        "picture move and enlarge it."
    )
    columns = (
        "Click on a heading to sort the table, on a row to mark its node in the picture. \u201cWithout its label\u201d "
        "is what is predicted for a labelled node whose own label is withheld."
    )
    picture = _picture(fit, explorer, method)
    choices = {"guess": ("Class", sorted(set(explorer.data["guess"]), key=fit.subject.names.index))}
    choices["what"] = ("Nodes", sorted(set(explorer.data["what"]) - {""}))
    describe = (
        f"Scatter plot of {explorer.drawn.numel()} nodes in two dimensions, coloured by predicted class. The table "
        "below has the same nodes."
    )
    return join([
        picture.controls(drawings, choices),
        figure(drawings.place(picture.drawn), describe, prose(words)),
        picture.table(drawings, _WIDTHS),
        paragraph(f"{columns} {explorer.words_on_choice()}", muted=True),
    ])  # fmt: skip


def joint_embedding(members: Any, nodes: Tensor) -> Tensor:
    """The embeddings of some nodes by all models, side by side, none of them outweighing the others."""
    parts = [embedding_of(member).detach().cpu()[nodes] for member in members]
    if len(parts) > 1:
        parts = [h / (h - h.mean(dim=0)).norm().clamp(min=1e-30) for h in parts]
    return torch.cat(parts, dim=1)


def _rows(fit: ClassFit) -> Explorer:
    """The columns of the table, and what else the picture needs."""
    subject, names = fit.subject, fit.subject.names
    labelled, suggested = subject.labelled.cpu(), torch.tensor(list(fit.suggested), dtype=torch.long)
    explorer = Explorer.of(fit.graph.num_nodes, torch.cat([labelled, suggested]), fit.nodes)
    rows = explorer.rows
    values, places = fit.probabilities[rows].topk(2, dim=1)
    explorer.add("guess", [names[number] for number in fit.predicted[rows].tolist()], "class")
    explorer.add("sure", np.round(values[:, 0].double().numpy(), 4), "probability")
    explorer.add("second", [names[number] for number in places[:, 1].tolist()], "second")
    explorer.add("second_sure", np.round(values[:, 1].double().numpy(), 4), "probability of second")
    given = dict(zip(labelled.tolist(), subject.label_class.tolist(), strict=True))
    found = fit.found
    alone = {} if found is None else dict(zip(found.nodes.tolist(), found.predicted.tolist(), strict=True))
    order = {node: place + 1 for place, node in enumerate(fit.suggested)}
    what = dict.fromkeys(given, "label given") | dict.fromkeys(order, "to label next")
    what |= {node: "label given, predicted otherwise" for node, guess in alone.items() if guess != given[node]}
    numbers = rows.tolist()
    explorer.add("given", [names[given[node]] if node in given else "" for node in numbers], "label given")
    explorer.add("alone", [names[alone[node]] if node in alone else "" for node in numbers], "without its label")
    explorer.add("next", np.array([order.get(node, np.nan) for node in numbers]), "label next")
    explorer.add("what", [what.get(node, "no label") for node in numbers])
    near = fit.graph.neighbour_classes(explorer.drawn, fit.predicted, names)
    explorer.add_of_drawn("near", near)
    return explorer


def _picture(fit: ClassFit, explorer: Explorer, method: Method) -> Picture:
    """Nodes by their embedding, classes in colours."""
    explorer.add_points(arrange(joint_embedding(fit.subject.members, explorer.drawn), method))
    tips = [
        ("node", "@node"), ("class", "@guess (@sure{0.00})"), ("second", "@second (@second_sure{0.00})"),
        ("label given", "@given"), ("without its label", "@alone"), ("neighbours", "@near"),
    ]  # fmt: skip
    picture = Picture.of(explorer, tips)
    names, drawn = fit.subject.names, explorer.is_drawn
    predicted = fit.predicted[explorer.rows]
    size = 6 if explorer.drawn.numel() <= 2500 else 4
    counts = torch.bincount(predicted[drawn], minlength=len(names))
    shown = counts.argsort(descending=True, stable=True)[:_IN_LEGEND].sort().values.tolist()
    items: list[tuple[str, list[Any]]] = []
    others = []
    for number, name in enumerate(names):
        rows = (drawn & (predicted == number)).nonzero().flatten()
        look: dict[str, Any] = {
            "fill_color": COLOURS[number % len(COLOURS)],
            "marker": _MARKERS[number // len(COLOURS) % len(_MARKERS)],
        }
        points = picture.points(rows, hover=True, size=size, fill_alpha=0.75, **look)
        if number in shown:
            items.append((plain(name, 20), [points]))
        else:
            others.append(points)
    if others:
        items.append((f"{len(others)} other classes", others))
    stars = _stars(picture, explorer, names)
    items.append(("label given", [stars]))
    rings = np.flatnonzero(~np.isnan(explorer.data["next"]))
    if len(rings):
        ring = picture.points(
            torch.from_numpy(rings), size=16, marker="circle", fill_alpha=0.0, line_color=QUIET, line_width=2.5
        )
        items.append(("to label next", [ring]))
    legend_below(picture.drawn, items, max(len(name) for name, _ in items))
    return picture


def _stars(picture: Picture, explorer: Explorer, names: list[str]) -> Any:
    """A star for every label, in the colour of its class."""
    from bokeh.transform import factor_cmap

    used = [name for name in dict.fromkeys(names) if name in set(explorer.data["given"])]
    colours = [COLOURS[names.index(name) % len(COLOURS)] for name in used]
    rows = torch.tensor([place for place, name in enumerate(explorer.data["given"]) if name], dtype=torch.long)
    rows = rows[explorer.is_drawn[rows]]
    colour = factor_cmap("given", palette=colours, factors=used)
    return picture.points(
        rows, size=15, marker="star", fill_color=colour, line_color=QUIET, line_width=1.2, fill_alpha=1.0
    )
