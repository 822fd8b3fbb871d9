"""One self-contained page about a fit."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import GCKMError
from torch_gckm.files import PathLike, write_atomically
from torch_gckm.nn import GCKM
from torch_gckm.plot.eigenvalues import shares
from torch_gckm.plot.embedding import Method
from torch_gckm.plot.style import require_matplotlib
from torch_gckm.plot.subject import Subject
from torch_gckm.plot.withheld import members_at_step_0
from torch_gckm.report.facts import graph_facts, member_rows, time_rows, version_rows
from torch_gckm.report.figures import (
    decay_figure,
    embedding_figure,
    search_figure,
    training_figures,
    withheld_figures,
)
from torch_gckm.report.page import Markup, code, details, join, key_numbers, page, pair, paragraph, section, table, text
from torch_gckm.select import GCKMEnsemble, SearchResult
from torch_gckm.select.suggest import suggest
from torch_gckm.select.withheld import Withheld, withhold_labels
from torch_gckm.train import History, accuracy

_SHOWN = 3  # Models whose settings are not folded away.
_SUGGESTED = 10


def write_report(
    path: PathLike,
    model: Any,
    data: Data | None = None,
    *,
    history: History | None = None,
    result: SearchResult | None = None,
    names: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
    title: str = "Node classification report",
    seconds: Mapping[str, float] | None = None,
    command: str | None = None,
    seed: int | None = None,
    embedding: Method = "auto",
    split: int | None = None,
) -> None:
    """Write a page about a fitted model: one HTML file that needs no other.

    .. code-block:: python

        history = Trainer(model).fit(data)
        write_report("report.html", model, data, history=history)
        write_report("report.html", GCKMClassifier().fit(data))

    Leave-one-out numbers are about the state before fine-tuning and self-training, see
    :func:`~torch_gckm.plot.withheld`; where none is valid, the page says why.

    Args:
        path: The file to write.
        model: A fitted ``GCKM``, ``GCKMEnsemble`` or ``GCKMClassifier``.
        data: The graph it was fitted on, with its labels; a ``GCKMClassifier`` keeps it.
        history: The history of a single model's fit.
        result: The result of the search that an ensemble comes from; a ``GCKMClassifier`` keeps it.
        names: Names of the classes; by default those of a classifier, else numbers.
        nodes: Names of the nodes; by default those of a classifier, else numbers.
        title: The heading of the page.
        seconds: How long stages took, by their names.
        command: The command or code that made the fit.
        seed: Its seed.
        embedding: How to draw embeddings, see :func:`~torch_gckm.plot.embedding`.
        split: The column to use of masks ``[n, splits]``.
    """
    require_matplotlib()
    start = time.perf_counter()
    subject = Subject.of(model, names)
    graph = subject.data(data)
    result = getattr(model, "result_", None) if result is None else result
    seed = getattr(model, "random_state", None) if seed is None else seed
    if command is None and subject.graph is not None:
        command = f"{model!r}.fit(...)"
    found, captured, reason = _before_labels(subject, graph, history, split)
    probabilities = subject.model.predict_proba()
    parts = [
        _head(subject, graph, title, found, split),
        pair(
            section("The graph", table(["fact", "value"], graph_facts(graph, subject.predict()))),
            section("Classes", _classes(subject, probabilities, found)),
            uneven=True,
        ),
        section("Embedding", embedding_figure(subject, embedding)),
        section("Withheld labels", *_withheld(subject, found, reason, result)),
        section("Search", search_figure(result, subject)) if result is not None and len(result) else "",
        section("Training", training_figures(history)) if history is not None and len(history) > 1 else "",
        section("Settings", *_settings(subject, found, captured)),
        section("Layers", decay_figure(captured, graph.num_nodes)) if captured else "",
        section("Nodes to label next", *_suggestions(subject, probabilities, nodes)),
    ]
    own = time.perf_counter() - start
    parts.append(section("Time", table(["stage", "seconds"], time_rows(seconds, history, result, own), [1])))
    made = [["made on", time.strftime("%Y-%m-%d %H:%M")]] + ([["seed", seed]] if seed is not None else [])
    same = "The settings above make the same models again, before any fine-tuning."
    again = code(command) if command is not None else paragraph(same)
    parts.append(section("How to reproduce", again, table(["what", "value"], [*made, *version_rows()])))
    content = page(title, join(parts))
    write_atomically(path, lambda file: file.write(content.encode()))


def _before_labels(
    subject: Subject, graph: Data, history: History | None, split: int | None
) -> tuple[Withheld | None, list[list[Tensor]], str]:
    """Withheld labels and captured variance in the state that no label has touched; or why there is no such state."""
    found, captured, reason = None, list[list[Tensor]](), ""
    try:
        members = members_at_step_0(subject, graph, history, split)
        captured = [shares(member) for member in members]
        single = isinstance(subject.model, GCKM)
        found = withhold_labels(members, subject.labelling(graph, split).targets, subject.names, single=single)
    except GCKMError as error:
        reason = str(error)
    return found, captured, reason


def _head(subject: Subject, graph: Data, title: str, found: Withheld | None, split: int | None) -> Markup:
    labels, count = subject.labelled.numel(), graph.num_nodes
    what = f"{len(subject.members)} models" if len(subject.members) > 1 else "One model"
    sentence = f"{what} of {len(subject.names)} classes, fitted to {count:,} nodes of which {labels:,} were labelled."
    numbers = [("nodes", f"{count:,}"), ("labels", f"{labels:,}"), ("classes", str(len(subject.names)))]
    if found is not None:
        numbers.append(("withheld labels right", f"{100 * found.accuracy:.0f} %"))
    given = subject.labelling(graph, split)
    right = accuracy(subject.predict(), given.y, given.test)
    if not math.isnan(right):
        numbers.append((f"of {int(given.test.sum()):,} test nodes right", f"{100 * right:.1f} %"))
    return join([Markup(f"<h1>{text(title)}</h1>"), paragraph(sentence, muted=True), key_numbers(numbers)])


def _classes(subject: Subject, probabilities: Tensor, found: Withheld | None) -> Markup:
    """A line for every class."""
    certainty, predicted = probabilities.max(dim=1)
    given = subject.label_class
    rows = []
    for number, name in enumerate(subject.names):
        own = predicted == number
        count = int(own.sum())
        sure = f"{float(certainty[own].mean()):.2f}" if count else ""
        right = "" if found is None else _share(found.predicted == number, found.classes == number)
        share = f"{100 * count / max(predicted.numel(), 1):.1f}"
        rows.append([name, int((given == number).sum()), f"{count:,}", share, sure, right])
    head = ["class", "labels", "predicted", "% of all", "certainty", "withheld right"]
    return table(head, rows, [1, 2, 3, 4, 5])


def _share(right: Tensor, among: Tensor) -> str:
    return f"{int(right[among].sum())} of {int(among.sum())}" if bool(among.any()) else ""


def _withheld(subject: Subject, found: Withheld | None, reason: str, result: SearchResult | None) -> list[Markup]:
    if found is None:
        return [paragraph(f"There are no scores of withheld labels: {reason}.")]
    state = "self-training" if isinstance(subject.model, GCKMEnsemble) else "fine-tuning"
    words = (
        "What is predicted for labelled nodes whose own labels were withheld, exactly and in closed form. The numbers "
        f"are about the state before {state}: afterwards other nodes have learned from every label, and such numbers "
        "would mean nothing."
    )
    if result is not None:
        words += " Settings were chosen by scores of this kind, so expect less of nodes without a label."
    if found.only_labels:
        words += f" The only labels of their classes cannot be withheld; there are {found.only_labels}."
    return [paragraph(words), withheld_figures(found)]


def _settings(subject: Subject, found: Withheld | None, captured: list[list[Tensor]]) -> list[Markup]:
    head = ["model", "right, %", "part", "channels", "kernel", "how", "kernel matrix", "kept, %"]
    parts = []
    for number, model in enumerate(subject.members):
        right = None if found is None else found.member_scores[number]
        parts.append(member_rows(number + 1, model, captured[number] if captured else None, right))

    def made(rows: list[list[list[Any]]]) -> Markup:
        return table(head, [row for part in rows for row in part], [0, 1, 3, 7])

    folded = len(parts) - _SHOWN
    words = (
        "Right: withheld labels that the model alone predicts, as above. Kept: the share of the variance that a "
        "layer's channels capture. The error of a kernel matrix of low rank is what is left of its trace, for layers "
        "relative to the trace of the centred matrix."
    )
    shown = [made(parts[:_SHOWN]), paragraph(words, muted=True)]
    if folded > 0:
        shown.insert(1, details(f"{folded} more models", made(parts[_SHOWN:])))
    return shown


def _suggestions(subject: Subject, probabilities: Tensor, names: Sequence[str] | None) -> list[Markup]:
    """The nodes whose labels would tell most."""
    labelled = subject.labelled.to(probabilities.device)
    count = min(_SUGGESTED, probabilities.size(0) - labelled.numel())
    if count < 1:
        return []
    embeddings = [member.embed() for member in subject.members]
    chosen = suggest(probabilities, embeddings, labelled, count).tolist()
    names = subject.nodes if names is None else names
    values, places = probabilities[torch.tensor(chosen)].topk(2, dim=1)
    rows = [
        [node if names is None else names[node], subject.names[a], f"{p:.2f}", subject.names[b], f"{q:.2f}"]
        for node, (a, b), (p, q) in zip(chosen, places.tolist(), values.tolist(), strict=True)
    ]
    words = (
        "Nodes in doubt, far from labelled ones and from each other; their labels would tell most, the first one first."
    )
    if isinstance(subject.model, GCKM):
        words += " Probabilities of a single model are not calibrated."
    mean = float(probabilities.max(dim=1).values.mean())
    if math.isfinite(mean):
        words += f" Over all nodes, the mean probability of the predicted class is {mean:.2f}."
    head = ["node", "class", "probability", "second", "probability"]
    return [paragraph(words), table(head, rows, [2, 4])]
