"""The page of a model that predicts numbers, or several labels per node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.nn import GCKM
from torch_gckm.plot.common import printable
from torch_gckm.plot.embedding import Method
from torch_gckm.readout import Targets
from torch_gckm.report import facts, figures, verdict
from torch_gckm.report.drawing import Drawings
from torch_gckm.report.graphs import GraphView
from torch_gckm.report.markup import Markup, join, key_numbers, pair, paragraph, prose, section, table, text
from torch_gckm.report.value_nodes import value_explorer
from torch_gckm.select import SearchResult, ValueEnsemble
from torch_gckm.select.several_labels import label_probabilities
from torch_gckm.select.values import explained, means_of_others
from torch_gckm.train.labelling import Labelling

_DRAWN = 4  # Columns whose errors are drawn.


@dataclass(frozen=True)
class ValueFit:
    """All that a page says about a fit to numbers or to several labels per node, computed once."""

    model: ValueEnsemble
    names: list[str]  # Of the columns.
    graph: GraphView
    labels: Labelling
    labelled: Tensor  # The nodes that were learned from, [b].
    known: Tensor  # What was given for them, [b, p], NaN where unknown.
    alone: list[Tensor]  # What each model predicts for them if it is withheld, [b, p].
    left_out: Tensor  # What all of them predict; probabilities of labels, [b, p].
    values: Tensor  # Predictions; probabilities of labels, [n, p].
    scales: Tensor | None  # What makes probabilities of scores, with several labels per node.
    nodes: Sequence[str] | None  # Their names.

    @classmethod
    def of(
        cls, estimator: Any, data: Data | None, names: Sequence[str] | None, nodes: Sequence[str] | None,
        split: int | None,
    ) -> ValueFit:  # fmt: skip
        """Of a fitted estimator or ensemble and its graph."""
        model: ValueEnsemble = getattr(estimator, "model_", estimator)
        if not model.is_fitted:
            raise NotFittedError("the model is not fitted to a graph, so there is nothing to show yet")
        kept, scales = getattr(estimator, "graph_", None), getattr(estimator, "scales_", None)
        graph = kept if kept is not None and kept.y is not None else data  # A file has a graph without targets.
        if graph is None or graph.y is None or not model.is_fitted_on(graph):
            raise InvalidInputError("the graph that the model was fitted on is needed, with its labels")
        labels = getattr(estimator, "labels_", None) or Labelling.of_values(graph, split)
        if not torch.equal(labels.targets.labelled, model.labelled):
            raise InvalidInputError(
                "the graph has other known numbers than the model was given; pass the same train_mask"
            )
        size, own = model.out_channels, getattr(estimator, "classes_", None)
        used = names or [str(name) for name in (range(size) if own is None else own.tolist())]
        used = ["number"] if names is None and own is None and size == 1 else used
        if len(used) != size:
            raise InvalidInputError(f"there are {size} columns, but {len(used)} names for them")
        alone = _left_out(model.members, labels.targets)
        values, left_out = model.predict(), torch.stack(alone).mean(dim=0)
        if scales is not None:
            values, left_out = (label_probabilities(part, scales) for part in (values, left_out))
        nodes = getattr(estimator, "node_names_", None) if nodes is None else nodes
        return cls(
            model, [printable(name) for name in used], GraphView.of(graph), labels, model.labelled.cpu(),
            model.known().cpu(), alone, left_out, values.detach().cpu(), scales,
            None if nodes is None else [printable(name) for name in nodes],
        )  # fmt: skip

    @property
    def members(self) -> list[GCKM]:
        """The models."""
        return self.model.members

    @property
    def has_labels(self) -> bool:
        """Whether values are probabilities of labels."""
        return self.scales is not None

    @property
    def title(self) -> str:
        """The heading of a page that has no other."""
        return "Report on several labels per node" if self.has_labels else "Report on predicted numbers"

    def column(self, number: int) -> str:
        """Words that say of which column something is, if there are several."""
        return f" of \u201c{self.names[number]}\u201d" if len(self.names) > 1 else ""

    def name(self, node: int) -> str:
        """What a node is called."""
        return str(node) if self.nodes is None else self.nodes[node]

    def checked(self, number: int) -> tuple[list[str], Tensor, Tensor]:
        """The names of the nodes whose number in a column is known, these, and what is predicted without them."""
        where = ~self.known[:, number].isnan()
        nodes = [self.name(node) for node in self.labelled[where].tolist()]
        return nodes, self.known[where, number], self.left_out[where, number]

    def share_of(self, left_out: Tensor, number: int) -> float:
        """How much of the variance of a column's withheld numbers predictions explain."""
        targets = self.labels.targets
        guess = means_of_others(self.known, targets.weight[targets.labelled].cpu())
        column = slice(number, number + 1)
        return explained(left_out[:, column], self.known[:, column], guess[:, column])


@torch.no_grad()
def _left_out(members: Sequence[GCKM], targets: Targets) -> list[Tensor]:
    """What each model predicts for withheld numbers; copies and files of models have no factors and solve again."""
    fits = (model.readout.fit for model in members)
    solved = (
        fit if fit.solution is not None else model.readout.solved_again(targets)
        for fit, model in zip(fits, members, strict=True)
    )  # fmt: skip
    return [fit.leave_one_out().cpu() for fit in solved]


def value_page(
    fit: ValueFit, title: str, making: facts.Making, method: Method, drawings: Drawings
) -> list[Markup]:  # fmt: skip
    """The sections of the page, except for the last ones."""
    captured = facts.captured_variance(fit.members)
    right = None
    if not fit.has_labels:
        right = [float(np.mean([fit.share_of(one, j) for j in range(len(fit.names))])) for one in fit.alone]
    checks = _labels(fit) if fit.has_labels else _numbers(fit, drawings)
    return [
        _head(fit, title),
        section("In short", verdict.listed(_findings(fit, making.result))),
        section("Nodes", value_explorer(fit, method, drawings)),
        section("Withheld labels" if fit.has_labels else "Withheld numbers", *checks),
        section("The graph", table(["fact", "value"], fit.graph.facts(), (), "The graph")),
        *facts.how_made(making, right, captured, fit.graph.num_nodes, len(fit.members), drawings),
    ]


def _head(fit: ValueFit, title: str) -> Markup:
    """The title, a sentence and a few large numbers."""
    known, count, columns = fit.labelled.numel(), fit.graph.num_nodes, len(fit.names)
    what = f"{columns} labels per node" if fit.has_labels else "one number per node"
    if columns > 1 and not fit.has_labels:
        what = f"{columns} numbers per node"
    given = "labels" if fit.has_labels else "numbers"
    words = f"{len(fit.members)} models of {what}, fitted to {count:,} nodes; {given} of {known:,} were given."
    numbers: list[tuple[Any, Any]] = [("nodes", f"{count:,}"), (f"nodes with {given}", f"{known:,}")]
    y, test = fit.labels.y.cpu(), fit.labels.test.cpu()
    tested = f"{int(test.sum()):,}"
    if fit.has_labels:
        entries = ~fit.known.isnan()
        right = ((fit.left_out > 0.5) == (fit.known > 0.5))[entries].double().mean()
        numbers.append((prose("[withheld label|withheld labels] right"), f"{100 * float(right):.0f} %"))
        if bool(test.any()):
            share = float(((fit.values > 0.5) == (y > 0.5))[test].double().mean())
            numbers.append((prose("labels of {count} [test node]s right", count=tested), f"{100 * share:.1f} %"))
    else:
        share = float(np.mean([fit.share_of(fit.left_out, j) for j in range(columns)]))
        numbers.append((prose("[R²] of [withheld number|withheld numbers]"), f"{share:.2f}"))
        if columns == 1:
            numbers.append((prose("[spread]"), f"{float(fit.model.deviation[0]):.3g}"))
        if bool(test.any()):
            rest = (y - y[test].mean(dim=0)).square()[test].sum(dim=0)
            score = float((1.0 - (y - fit.values).square()[test].sum(dim=0) / rest).mean())
            if math.isfinite(score):
                numbers.append((prose("[R²] of {count} [test node]s", count=tested), f"{score:.2f}"))
    return join([Markup(f"<h1>{text(title)}</h1>"), paragraph(words, muted=True), key_numbers(numbers)])


def _findings(fit: ValueFit, result: SearchResult | None) -> verdict.Findings:
    found: verdict.Findings = []
    if fit.has_labels:
        f1 = [row[0] for row in _scores(fit)]
        positive = [int((fit.known[:, j] == 1).sum()) for j in range(len(fit.names))]
        found += verdict.labels_withheld(fit.known, fit.left_out)
        found += verdict.labels_of_columns(f1, positive, fit.names)
    else:
        for number in range(min(len(fit.names), _DRAWN)):
            nodes, known, left_out = fit.checked(number)
            found += verdict.numbers_explained(fit.share_of(fit.left_out, number), fit.column(number))
            spread = float(fit.model.deviation[number])
            found += verdict.outliers(left_out - known, spread, nodes, fit.column(number))
    return [*found, *verdict.edges(fit.graph, None), *verdict.length_of_search(result)]


def _scores(fit: ValueFit) -> list[tuple[float, float]]:
    """F1 and average precision of every label, on withheld labels."""
    from sklearn.metrics import average_precision_score, f1_score  # As the estimator that was fitted.

    rows = []
    for number in range(len(fit.names)):
        _, known, sure = fit.checked(number)
        truth, guess = known.numpy() > 0.5, sure.numpy() > 0.5
        precision = float(average_precision_score(truth, sure.numpy())) if truth.any() else math.nan
        rows.append((float(f1_score(truth, guess, zero_division=0.0)), precision))
    return rows


def _labels(fit: ValueFit) -> list[Markup]:
    """A table with a row per label."""
    assert fit.scales is not None
    thresholds = (-fit.scales[1] / fit.scales[0]).tolist()
    share, rows = (fit.values > 0.5).double().mean(dim=0).tolist(), []
    for number, (name, (f1, precision)) in enumerate(zip(fit.names, _scores(fit), strict=True)):
        _, known, sure = fit.checked(number)
        right = int(((known > 0.5) == (sure > 0.5)).sum())
        rows.append([
            name, int((known > 0.5).sum()), known.numel(), f"{100 * share[number]:.1f}", f"{right} of {known.numel()}",
            f"{f1:.2f}", "" if math.isnan(precision) else f"{precision:.2f}", f"{thresholds[number]:.3g}",
        ])  # fmt: skip
    head = [
        "label", "nodes given it", "nodes checked", "predicted, % of all", prose("[withheld label|withheld] right"),
        prose("[F1]"), prose("[average precision]"), prose("[threshold]"),
    ]  # fmt: skip
    words = (
        "What is predicted for labelled nodes whose own labels were withheld. [setting|Settings] and [threshold]s were "
        "chosen by scores of this kind, so expect less of nodes without a label."
    )
    return [paragraph(prose(words)), table(head, rows, range(1, 8), "Labels")]


def _numbers(fit: ValueFit, drawings: Drawings) -> list[Markup]:
    """Predictions of withheld numbers against these, column by column."""
    words = (
        "What is predicted for nodes whose own numbers were withheld, exactly and in closed form. [setting|Settings] "
        "were chosen by errors of this kind, so expect somewhat larger ones on other nodes."
    )
    rows, pictures = [], []
    for number, name in enumerate(fit.names):
        nodes, known, left_out = fit.checked(number)
        spread, share = float(fit.model.deviation[number]), fit.share_of(fit.left_out, number)
        usual = float((left_out - known).abs().median())
        rows.append([name, known.numel(), f"{share:.3f}", f"{spread:.4g}", f"{usual:.4g}", f"{float(known.std()):.4g}"])
        if number < _DRAWN:
            column = fit.column(number)
            against = figures.against_withheld(known, left_out, nodes, column, drawings)
            pictures.append(pair(against, figures.errors(known, left_out, spread, drawings)))
    head = ["column", "given", prose("[R²]"), prose("[spread]"), "median error", "standard deviation of given"]
    return [paragraph(prose(words)), table(head, rows, range(1, 6), "Withheld numbers"), *pictures]
