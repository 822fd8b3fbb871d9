"""One self-contained page about a fit."""

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
from torch_gckm.plot.common import Subject, require_matplotlib
from torch_gckm.plot.curves import shares
from torch_gckm.plot.embedding import Method
from torch_gckm.plot.withheld import members_at_step_0
from torch_gckm.report import facts, parts
from torch_gckm.report.parts import Markup, join, pair, paragraph, section, table, text
from torch_gckm.select import GCKMEnsemble, SearchResult
from torch_gckm.select.unlabelled import embedding_of, suggest
from torch_gckm.select.withheld import Withheld, withhold_labels
from torch_gckm.train import History, accuracy
from torch_gckm.train.labelling import Labelling

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
    :func:`~torch_gckm.plot.withheld`; where none is valid, the page gives the reason.

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
    labels = subject.labelling(graph, split)
    found, captured, reason = _before_labels(subject, graph, labels, history)
    predicted, probabilities = subject.model.predict(), subject.model.predict_proba()
    sections = [
        _head(subject, predicted, labels, title, found),
        pair(
            section("The graph", table(["fact", "value"], facts.graph_facts(graph, predicted))),
            section("Classes", _classes(subject, probabilities, found)),
            uneven=True,
        ),
        section("Embedding", parts.embedding_figure(subject, embedding, predicted.numel())),
        section("Withheld labels", *_withheld(subject, found, reason, result)),
        section("Search", parts.search_figure(result, subject)) if result is not None and len(result) else "",
        section("Training", parts.training_figures(history)) if history is not None and len(history) > 1 else "",
        section("Settings", *_settings(subject, found, captured)),
        section("Layers", parts.decay_figure(captured, predicted.numel())) if any(captured) else "",
        section("Nodes to label next", *_suggestions(subject, probabilities, nodes)),
    ]
    times = facts.time_rows(seconds or {}, history, result, time.perf_counter() - start)
    sections.append(section("Time", table(["stage", "seconds"], times, [1])))
    made: facts.Rows = [["made on", time.strftime("%Y-%m-%d %H:%M")], *([["seed", seed]] if seed is not None else [])]
    again = paragraph("The settings above make the same models again, before any fine-tuning.")
    if command is not None:
        again = Markup(f'<pre tabindex="0"><code>{text(command)}</code></pre>')
    sections.append(section("How to reproduce", again, table(["what", "value"], [*made, *facts.version_rows()])))
    content = parts.page(title, join(sections))
    write_atomically(path, lambda file: file.write(content.encode()))


def _before_labels(
    subject: Subject, graph: Data, labels: Labelling, history: History | None
) -> tuple[Withheld | None, list[list[Tensor]], str]:
    """Withheld labels and captured variance before fine-tuning and self-training; or why there is no such state."""
    captured: list[list[Tensor]] = []
    try:
        members = members_at_step_0(subject, graph, labels, history)
        captured = [shares(member) for member in members]
        single = isinstance(subject.model, GCKM)
        return withhold_labels(members, labels.targets, subject.names, single=single), captured, ""
    except GCKMError as error:
        return None, captured, str(error)


def _head(subject: Subject, predicted: Tensor, labels: Labelling, title: str, found: Withheld | None) -> Markup:
    """The title, a sentence and a few large numbers."""
    known, count, classes = subject.labelled.numel(), predicted.numel(), len(subject.names)
    what = f"{len(subject.members)} models" if len(subject.members) > 1 else "One model"
    sentence = f"{what} of {classes} classes, fitted to {count:,} nodes of which {known:,} were labelled."
    numbers = [("nodes", f"{count:,}"), ("labels", f"{known:,}"), ("classes", str(classes))]
    if found is not None:
        numbers.append(("withheld labels right", f"{100 * found.accuracy:.0f} %"))
    right = accuracy(predicted, labels.y, labels.test)
    if not math.isnan(right):
        numbers.append((f"of {int(labels.test.sum()):,} test nodes right", f"{100 * right:.1f} %"))
    cells = "\n".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in numbers)
    key = Markup(f'<dl class="key">\n{cells}\n</dl>')
    return join([Markup(f"<h1>{text(title)}</h1>"), paragraph(sentence, muted=True), key])


def _classes(subject: Subject, probabilities: Tensor, found: Withheld | None) -> Markup:
    """A table with a row per class."""
    certainty, predicted = probabilities.max(dim=1)
    rows = []
    for number, name in enumerate(subject.names):
        own, right = predicted == number, ""
        count, given = int(own.sum()), int((subject.label_class == number).sum())
        sure = f"{float(certainty[own].mean()):.2f}" if count else ""
        if found is not None and bool((found.classes == number).any()):
            hits = found.predicted[found.classes == number] == number
            right = f"{int(hits.sum())} of {hits.numel()}"
        rows.append([name, given, f"{count:,}", f"{100 * count / max(predicted.numel(), 1):.1f}", sure, right])
    return table(["class", "labels", "predicted", "% of all", "certainty", "withheld right"], rows, [1, 2, 3, 4, 5])


def _withheld(subject: Subject, found: Withheld | None, reason: str, result: SearchResult | None) -> list[Markup]:
    """Figures about withheld labels, or why there are none."""
    if found is None:
        return [paragraph(f"There are no scores of withheld labels: {reason}.")]
    state = "fine-tuning" if isinstance(subject.model, GCKM) else "self-training"
    words = (
        "What is predicted for labelled nodes whose own labels were withheld, exactly and in closed form. The numbers "
        f"are about the state before {state}: afterwards other nodes have learned from every label, and such numbers "
        "would mean nothing."
    )
    if result is not None:
        words += " Settings were chosen by scores of this kind, so expect less of nodes without a label."
    if found.only_labels:
        words += f" The only labels of their classes cannot be withheld; there are {found.only_labels}."
    return [paragraph(words), parts.withheld_figures(found)]


def _settings(subject: Subject, found: Withheld | None, captured: list[list[Tensor]]) -> list[Markup]:
    """A table of the models' settings; those after the first ones are folded away."""
    members = []
    for number, model in enumerate(subject.members):
        right = None if found is None else found.member_scores[number]
        members.append(facts.member_rows(number + 1, model, captured[number] if captured else None, right))
    rest = members[_SHOWN:]

    def made(rows: list[facts.Rows]) -> Markup:
        head = ["model", "right, %", "part", "channels", "kernel", "how", "kernel matrix", "kept, %"]
        return table(head, [row for part in rows for row in part], [0, 1, 3, 7])

    folded = f"<details>\n<summary>{len(rest)} more models</summary>\n{made(rest)}\n</details>" if rest else ""
    words = (
        "Right: withheld labels that the model alone predicts, as above. Kept: the share of the variance that a "
        "layer's channels capture. The error of a kernel matrix of low rank is what is left of its trace, for layers "
        "relative to the trace of the centred matrix."
    )
    return [made(members[:_SHOWN]), Markup(folded), paragraph(words, muted=True)]


def _suggestions(subject: Subject, probabilities: Tensor, names: Sequence[str] | None) -> list[Markup]:
    """A table of the nodes to label next."""
    labelled = subject.labelled.to(probabilities.device)
    count = min(_SUGGESTED, probabilities.size(0) - labelled.numel())
    if count < 1:
        return []
    words = "Nodes after whose labels the least error is expected on the whole graph, in this order."
    if isinstance(subject.model, GCKMEnsemble):
        chosen = subject.model.suggest(count).tolist()
    else:  # Probabilities of a single model are not calibrated, so no error can be expected from them.
        chosen = suggest(probabilities, [embedding_of(member) for member in subject.members], labelled, count).tolist()
        words = "Uncertain nodes, far from labelled ones and from each other. Probabilities are not calibrated."
    names = subject.nodes if names is None else names
    values, places = probabilities[torch.tensor(chosen)].topk(2, dim=1)
    rows = [
        [node if names is None else names[node], subject.names[a], f"{p:.2f}", subject.names[b], f"{q:.2f}"]
        for node, (a, b), (p, q) in zip(chosen, places.tolist(), values.tolist(), strict=True)
    ]
    mean = float(probabilities.max(dim=1).values.mean())
    if math.isfinite(mean):
        words += f" Over all nodes, the mean probability of the predicted class is {mean:.2f}."
    return [paragraph(words), table(["node", "class", "probability", "second", "probability"], rows, [2, 4])]
