"""What all pages have: how models were made, how long it took, and how to make them again."""

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import torch
import torch_geometric
from torch import Tensor

from torch_gckm._version import __version__
from torch_gckm.nn import GCKM
from torch_gckm.plot.curves import shares
from torch_gckm.report import figures
from torch_gckm.report.drawing import Drawings
from torch_gckm.report.markup import Markup, folded, paragraph, prose, section, table, text
from torch_gckm.select import SearchResult
from torch_gckm.train import History

Rows = list[list[Any]]
_SHOWN = 3  # Models whose settings are not folded away.
_TRACE_NODES = 1000  # Of large graphs, so many serve to estimate the variance of a layer's features.


@dataclass(frozen=True)
class Making:
    """How a model came about."""

    members: Sequence[GCKM]
    result: SearchResult | None
    history: History | None
    seconds: Mapping[str, float]
    command: str | None
    seed: Any


def captured_variance(members: Sequence[GCKM]) -> list[list[Tensor]]:
    """For every model and layer at step 0 the shares of the variance; estimates, of large graphs."""
    return [shares(member, _TRACE_NODES) for member in members]


def how_made(
    making: Making,
    right: Sequence[float] | None,
    captured: Sequence[Sequence[Tensor]],
    num_nodes: int,
    num_members: int,
    drawings: Drawings,
) -> list[Markup]:
    """The sections on search, training, settings and layers; ``right`` is each model's score on withheld labels."""
    result, history, parts = making.result, making.history, []
    if result is not None and len(result):
        parts.append(section("Search", figures.search(result, num_members, drawings)))
    if history is not None and len(history) > 1:
        steps = figures.training(history, drawings)
        parts.append(section("Training", Markup('<div class="pair">\n' + "\n".join(steps) + "\n</div>")))
    parts.append(section("Settings", *_settings(making.members, right, captured)))
    if any(captured):
        estimated = _TRACE_NODES if num_nodes > _TRACE_NODES else None
        parts.append(section("Layers", figures.decay(captured, estimated, drawings)))
    return parts


def tail(making: Making, own: float) -> list[Markup]:
    """The sections on time and on how to make it again."""
    again = paragraph("The settings above make the same models again, before any fine-tuning.")
    if making.command is not None:
        label = 'role="region" aria-label="Command"'
        again = Markup(f'<pre tabindex="0" {label}><code>{text(making.command)}</code></pre>')
    made: Rows = [["made on", time.strftime("%Y-%m-%d %H:%M")]]
    made += [["seed", making.seed]] if making.seed is not None else []
    return [
        section("Time", table(["stage", "seconds"], _time_rows(making, own), [1], "Time")),
        section("How to reproduce", again, table(["what", "value"], [*made, *_version_rows()], (), "Versions")),
    ]


def _settings(members: Sequence[GCKM], right: Sequence[float] | None, captured: Sequence[Any]) -> list[Markup]:
    """A table of the models' settings; those after the first ones are folded away."""
    parts = []
    for number, model in enumerate(members):
        kept = captured[number] if captured else None
        parts.append(_member_rows(number + 1, model, kept, None if right is None else right[number]))
    rest = parts[_SHOWN:]

    def made(rows: list[Rows]) -> Markup:
        head = ["model", "right, %", "part", "channels", "kernel", "how", "kernel matrix", "kept, %"]
        return table(head, [row for part in rows for row in part], [0, 1, 3, 7], "Settings")

    words = (
        "Every model has [layer]s, which find an [embedding] with so many [channels], and a [readout]; each has its "
        "[kernel]. Right: how many [withheld label|withheld labels], or how much of the variance of withheld numbers, "
        "the model alone predicts. [kept|Kept]: the share of the variance that the channels hold. The error of a "
        "[kernel matrix] of low rank is what is left of its trace, for layers relative to that of the centred matrix."
    )
    shown = [made(parts[:_SHOWN]), folded(f"{len(rest)} more models", made(rest)) if rest else ""]
    return [Markup(part) for part in (*shown, paragraph(prose(words), muted=True))]


def _member_rows(number: int, model: GCKM, captured: Sequence[Tensor] | None, right: float | None) -> Rows:
    """The settings of a model, a row per layer and one for the readout; with shares of variance and right labels."""
    settings, rows = model.settings, Rows()
    scaled = f", x scaled by {settings.normalize}" if settings.normalize else ""
    for place, (conv, layer) in enumerate(zip(model.layers, settings.layers, strict=True)):
        kept = "" if captured is None else f"{100 * min(1.0, float(captured[place].sum())):.0f}"
        how = f"{layer.propagation}, power\u00a0{layer.power:g}" + ("" if place else scaled)
        rows.append([f"layer {place + 1}", conv.h.size(1), repr(conv.kernel), how, conv.fit.description, kept])
    fit, readout = model.readout.fit, settings.readout
    how = ", ".join(f"{name}\u00a0{getattr(readout, name):.3g}" for name in ("eta", "lambda1", "lambda2"))
    how += f", {readout.class_weight} classes" if readout.class_weight else ""
    how += "" if model.layers else f", of {settings.propagation} features{scaled}"
    rows.append(["readout", fit.scores.size(1), repr(model.readout.kernel), how, fit.description, ""])
    first = [number, "" if right is None else f"{100 * right:.0f}"]
    return [[*(first if place == 0 else ("", "")), *row] for place, row in enumerate(rows)]


def _time_rows(making: Making, own: float) -> Rows:
    """How long stages, the search, the fit and the page itself took, in seconds."""
    rows: Rows = [[stage, f"{value:.1f}"] for stage, value in making.seconds.items()]
    result, history = making.result, making.history
    if result is not None and len(result):
        total = sum(trial.seconds for trial in result.trials)
        rows.append([f"{len(result):,} settings of the search, added up over all processes", f"{total:.1f}"])
    if history is not None and len(history):
        first, last = history.records[0], history.records[-1]
        rows.append(["kernel PCA and first solve", f"{first.seconds:.1f}"])
        if last.step:
            rows.append([f"fine-tuning, {last.step} steps", f"{last.seconds - first.seconds:.1f}"])
    return [*rows, ["this page", f"{own:.1f}"]]


def _version_rows() -> Rows:
    """The versions that the page was made with, and the machine."""
    libraries = {"torch": torch, "PyG": torch_geometric, "NumPy": np, "SciPy": scipy}
    versions = [[name, library.__version__] for name, library in libraries.items()]
    machine = f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads"
    return [["torch_gckm", __version__], ["Python", platform.python_version()], *versions, ["machine", machine]]
