"""Facts about a graph, a model and the machine, as rows of tables."""

import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy
import torch
import torch_geometric
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import is_undirected, to_scipy_sparse_matrix

from torch_gckm._version import __version__
from torch_gckm.graph import canonical_edges, graph_of
from torch_gckm.layouts import to_csr
from torch_gckm.nn import GCKM
from torch_gckm.select import SearchResult
from torch_gckm.train import History

Rows = list[list[Any]]


def graph_facts(data: Data, predicted: Tensor) -> list[tuple[str, str]]:
    """Sizes, degrees and components of a graph, and how alike joined nodes are predicted, ``[n]``."""
    x, adjacency, weight = graph_of(data)
    count = x.size(0)
    edges, weight = canonical_edges(adjacency, weight, count)
    loops = edges[0] == edges[1]
    ends = edges[:, ~loops].cpu()
    total, is_mutual = ends.size(1), is_undirected(ends, num_nodes=count)
    out, into = (int(torch.bincount(side, minlength=count).max()) for side in ends)
    number = f"{total // 2:,} undirected" if is_mutual else f"{total:,} directed"
    weights = "none"
    if weight is not None and weight.numel():
        weights = f"{float(weight.min()):.3g} to {float(weight.max()):.3g}"
    stored = x if x.layout == torch.strided else to_csr(x).values()
    filled = int(torch.count_nonzero(stored)) / max(x.numel(), 1)
    components, place = connected_components(to_scipy_sparse_matrix(ends, num_nodes=count), directed=False)
    facts = [
        ("nodes", f"{count:,}"),
        ("edges", number + (f", {int(loops.sum()):,} self-loops" if bool(loops.any()) else "")),
        ("edge weights", weights),
        ("mean degree", f"{total / max(count, 1):.2f}" + ("" if is_mutual else " in, and out")),
        ("largest degree", f"{out:,}" if is_mutual else f"{into:,} in, {out:,} out"),
        ("isolated nodes", f"{count - ends.unique().numel():,}"),
        ("components", f"{components:,}; the largest has {np.bincount(place).max():,} nodes"),
        ("features", f"{x.size(1):,}, {100 * filled:.3g} % of them not zero"),
    ]
    if total:
        starts, stops = predicted.cpu()[ends]
        facts.append(("edges within a predicted class", f"{100 * float((starts == stops).double().mean()):.0f} %"))
    return facts


def member_rows(number: int, model: GCKM, shares: Sequence[Tensor] | None, right: float | None) -> Rows:
    """The settings of a model, a row per layer and one for the readout; with shares of variance and right labels."""
    settings, rows = model.settings, Rows()
    scaled = f", x scaled by {settings.normalize}" if settings.normalize else ""
    for place, (conv, layer) in enumerate(zip(model.layers, settings.layers, strict=True)):
        kept = "" if shares is None else f"{100 * float(shares[place].sum()):.0f}"
        how = f"{layer.propagation}, power\u00a0{layer.power:g}" + ("" if place else scaled)
        rows.append([f"layer {place + 1}", conv.h.size(1), repr(conv.kernel), how, conv.fit.description, kept])
    fit, readout = model.readout.fit, settings.readout
    how = ", ".join(f"{name}\u00a0{getattr(readout, name):.3g}" for name in ("eta", "lambda1", "lambda2"))
    how += f", {readout.class_weight} classes" if readout.class_weight else ""
    how += "" if model.layers else f", of {settings.propagation} features{scaled}"
    rows.append(["readout", fit.scores.size(1), repr(model.readout.kernel), how, fit.description, ""])
    first = [number, "" if right is None else f"{100 * right:.0f}"]
    return [[*(first if place == 0 else ("", "")), *row] for place, row in enumerate(rows)]


def time_rows(stages: Mapping[str, float], history: History | None, result: SearchResult | None, own: float) -> Rows:
    """How long stages, the search, the fit and the page itself took, in seconds."""
    rows: Rows = [[stage, f"{value:.1f}"] for stage, value in stages.items()]
    if result is not None and len(result):
        total = sum(trial.seconds for trial in result.trials)
        rows.append([f"{len(result):,} settings of the search, added up over all processes", f"{total:.1f}"])
    if history is not None and len(history):
        first, last = history.records[0], history.records[-1]
        rows.append(["kernel PCA and first solve", f"{first.seconds:.1f}"])
        if last.step:
            rows.append([f"fine-tuning, {last.step} steps", f"{last.seconds - first.seconds:.1f}"])
    return [*rows, ["this page", f"{own:.1f}"]]


def version_rows() -> Rows:
    """The versions that the page was made with, and the machine."""
    libraries = {"torch": torch, "PyG": torch_geometric, "NumPy": np, "SciPy": scipy}
    versions = [[name, library.__version__] for name, library in libraries.items()]
    machine = f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads"
    return [["torch_gckm", __version__], ["Python", platform.python_version()], *versions, ["machine", machine]]
