"""The page of a model that predicts one class per node."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import GCKMError
from torch_gckm.nn import GCKM
from torch_gckm.nn.prediction_sets import machine_of
from torch_gckm.plot.common import COLOURS, Subject
from torch_gckm.plot.embedding import Method
from torch_gckm.plot.withheld import members_at_step_0
from torch_gckm.report import facts, figures, verdict
from torch_gckm.report.class_nodes import class_explorer
from torch_gckm.report.drawing import Drawings
from torch_gckm.report.graphs import GraphView
from torch_gckm.report.markup import Markup, join, key_numbers, pair, paragraph, prose, section, table, text
from torch_gckm.select import GCKMEnsemble, SearchResult
from torch_gckm.select.look_ahead import look_ahead
from torch_gckm.select.suggestions import explain
from torch_gckm.select.withheld import Withheld, withhold_labels
from torch_gckm.train import History, accuracy
from torch_gckm.train.labelling import Labelling

_SUGGESTED = 10


@dataclass(frozen=True)
class ClassFit:
    """All that a page says about a fit to classes, computed once."""

    subject: Subject
    graph: GraphView
    labels: Labelling
    probabilities: Tensor  # [n, num_classes].
    predicted: Tensor  # [n].
    found: Withheld | None
    reason: str  # Why no label could be withheld.
    captured: list[list[Tensor]]
    suggested: dict[int, float]  # The nodes to label next, and which share of what is open each would settle.
    nodes: Sequence[str] | None  # Their names.

    @classmethod
    def of(
        cls, subject: Subject, data: Data, history: History | None, nodes: Sequence[str] | None, split: int | None
    ) -> "ClassFit":
        """Of a fitted model and its graph."""
        labels = subject.labelling(data, split)
        found, captured, reason = _before_labels(subject, data, labels, history)
        probabilities = subject.model.predict_proba().cpu()
        return cls(
            subject, GraphView.of(data), labels, probabilities, subject.model.predict().cpu(), found, reason, captured,
            _suggested(subject, probabilities), subject.nodes if nodes is None else nodes,
        )  # fmt: skip

    def name(self, node: int) -> str:
        """What a node is called."""
        return str(node) if self.nodes is None else self.nodes[node]


def class_page(
    fit: ClassFit, title: str, making: facts.Making, method: Method, drawings: Drawings
) -> list[Markup]:  # fmt: skip
    """The sections of the page, except for the last ones."""
    subject, found = fit.subject, fit.found
    right = None if found is None else found.member_scores
    members = len(subject.members) if isinstance(subject.model, GCKMEnsemble) else 1
    return [
        _head(fit, title),
        section("In short", verdict.listed(_findings(fit, making.result))),
        section("Nodes", class_explorer(fit, method, drawings)),
        section("Nodes to label next", *_suggestions(fit)),
        pair(
            section("The graph", table(["fact", "value"], _graph_facts(fit), (), "The graph")),
            section("Classes", _classes(fit)),
            uneven=True,
        ),
        section("Withheld labels", *_withheld(fit, making.result, drawings)),
        *facts.how_made(making, right, fit.captured, fit.graph.num_nodes, members, drawings),
    ]


def _before_labels(
    subject: Subject, graph: Data, labels: Labelling, history: History | None
) -> tuple[Withheld | None, list[list[Tensor]], str]:
    """Withheld labels and captured variance before fine-tuning and self-training; or why there is no such state."""
    captured: list[list[Tensor]] = []
    try:
        members = members_at_step_0(subject, graph, labels, history)
        captured = facts.captured_variance(members)
        single = isinstance(subject.model, GCKM)
        return withhold_labels(members, labels.targets, subject.names, single=single), captured, ""
    except GCKMError as error:
        return None, captured, str(error)


def _suggested(subject: Subject, probabilities: Tensor) -> dict[int, float]:
    labelled = subject.labelled.cpu()
    count = min(_SUGGESTED, probabilities.size(0) - labelled.numel())
    if count < 1:
        return {}
    if isinstance(subject.model, GCKMEnsemble):
        return {one.node: one.settled for one in subject.model.suggestions(count)}
    solution = machine_of(subject.model.readout).solution
    doubt, weight = (1.0 - probabilities.amax(dim=1)).cpu(), torch.ones(probabilities.size(0))
    return {one.node: one.settled for one in look_ahead(solution, doubt, labelled, weight, count)}


def _findings(fit: ClassFit, result: SearchResult | None) -> verdict.Findings:
    size = len(fit.subject.names)
    given = torch.bincount(fit.subject.label_class.cpu(), minlength=size)
    predicted = torch.bincount(fit.predicted, minlength=size)
    searched, unseen = result is not None, None if result is None else result.unseen(len(fit.subject.members))
    return [
        *verdict.accuracy_of_withheld(fit.found, fit.reason, searched=searched, unseen=unseen),
        *verdict.trust_in_probabilities(fit.found),
        *verdict.weak_classes(fit.found),
        *verdict.labels_per_class(given, predicted, fit.subject.names),
        *verdict.edges(fit.graph, fit.predicted),
        *verdict.length_of_search(result),
    ]


def _head(fit: ClassFit, title: str) -> Markup:
    """The title, a sentence and a few large numbers."""
    subject, labels = fit.subject, fit.labels
    known, count, classes = subject.labelled.numel(), fit.predicted.numel(), len(subject.names)
    what = f"{len(subject.members)} models" if len(subject.members) > 1 else "One model"
    words = f"{what} of {classes} classes, fitted to {count:,} nodes of which {known:,} were labelled."
    numbers: list[tuple[Any, Any]] = [("nodes", f"{count:,}"), ("labels", f"{known:,}"), ("classes", str(classes))]
    if fit.found is not None:
        numbers.append((prose("[withheld label|withheld labels] right"), f"{100 * fit.found.accuracy:.0f} %"))
    right = accuracy(fit.predicted, labels.y.cpu(), labels.test.cpu())
    if not math.isnan(right):
        tested = f"{int(labels.test.sum()):,}"
        numbers.append((prose("of {count} [test node]s right", count=tested), f"{100 * right:.1f} %"))
    return join([Markup(f"<h1>{text(title)}</h1>"), paragraph(words, muted=True), key_numbers(numbers)])


def _graph_facts(fit: ClassFit) -> list[list[str]]:
    rows = fit.graph.facts()
    if fit.graph.ends.size(1):
        rows.append(["edges within a predicted class", f"{100 * fit.graph.alike(fit.predicted):.0f} %"])
    return rows


def _classes(fit: ClassFit) -> Markup:
    """A table with a row per class."""
    subject, found = fit.subject, fit.found
    certainty, rows = fit.probabilities.amax(dim=1), []
    for number, name in enumerate(subject.names):
        own, right = fit.predicted == number, ""
        count, given = int(own.sum()), int((subject.label_class == number).sum())
        sure = f"{float(certainty[own].mean()):.2f}" if count else ""
        if found is not None and bool((found.classes == number).any()):
            hits = found.predicted[found.classes == number] == number
            right = f"{int(hits.sum())} of {hits.numel()}"
        colour = f'<span class="swatch" style="background: {COLOURS[number % len(COLOURS)]}"></span>'
        share = f"{100 * count / max(fit.predicted.numel(), 1):.1f}"
        rows.append([Markup(f"{colour}{text(name)}"), given, f"{count:,}", share, sure, right])
    head = [
        "class",
        "labels",
        "predicted",
        "% of all",
        prose("mean [probability]"),
        prose("[withheld label|withheld] right"),
    ]
    return table(head, rows, [1, 2, 3, 4, 5], "Classes")


def _withheld(fit: ClassFit, result: SearchResult | None, drawings: Drawings) -> list[Markup]:
    """Figures about withheld labels, or why there are none."""
    found = fit.found
    if found is None:
        return [paragraph(prose("There are no scores of [withheld label]s: {reason}.", reason=fit.reason))]
    state = "fine-tuning" if isinstance(fit.subject.model, GCKM) else "self-training"
    words = (
        "What is predicted for labelled nodes whose own labels were withheld, exactly and in closed form. The numbers "
        f"are about the state before [{state}]: afterwards other nodes have learned from every label, and such numbers "
        "would mean nothing."
    )
    if result is not None:
        words += " [setting|Settings] were chosen by scores of this kind, so expect less of nodes without a label."
    if found.only_labels:
        words += f" The only labels of their classes cannot be withheld; there are {found.only_labels}."
    return [paragraph(prose(words)), pair(figures.confusion(found), figures.reliability(found, drawings))]


def _suggestions(fit: ClassFit) -> list[Markup]:
    """A table of the nodes to label next, with reasons."""
    if not fit.suggested:
        return []
    words = (
        "Nodes whose labels would settle most of what is open on the whole graph, in this order; each is chosen as if "
        "the ones above were labelled. [settled|Settles]: the share of what is open that the label of a node answers."
    )
    if isinstance(fit.subject.model, GCKM):
        words += " Probabilities are those of a single model, which are not [calibrated]."
    rows = [
        [
            fit.name(one.node), one.guess, f"{one.probability:.2f}", one.second, f"{one.second_probability:.2f}",
            f"{100 * fit.suggested[one.node]:.2g}", one.words,
        ]
        for one in explain(fit.probabilities, list(fit.suggested), fit.subject.names)
    ]  # fmt: skip
    mean = float(fit.probabilities.amax(dim=1).mean())
    if math.isfinite(mean):
        words += f" Over all nodes, the mean [probability] of the predicted class is {mean:.2f}."
    head = ["node", "class", "probability", "second", "probability", "settles, %", "why"]
    return [paragraph(prose(words)), table(head, rows, [2, 4, 5], "Nodes to label next")]
