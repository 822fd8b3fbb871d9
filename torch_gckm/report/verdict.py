"""What a page says first: findings in words, each by one rule."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from torch_gckm.report.graphs import GraphView
from torch_gckm.report.markup import Markup, join, prose, text
from torch_gckm.select import SearchResult
from torch_gckm.select.unseen import Unseen
from torch_gckm.select.withheld import Withheld

_CLEARLY = 2.0  # Standard errors.
_OFF = 0.05  # What certainty and accuracy may differ by.
_HEAVY = 100.0  # The largest edge weight, relative to the median.
_FEW_SETTINGS = 16
_FEW_RIGHT = 0.5  # Of a class whose withheld labels are rarely right.
_FEW_LABELS = 3
_NAMED = 3  # Classes that a sentence names.
_ISOLATED = 0.1
_WORDS = {"good": "Good", "advice": "Advice", "warning": "Warning"}


@dataclass(frozen=True)
class Finding:
    """A sentence, and how it is meant."""

    kind: Literal["good", "advice", "warning"]
    words: Markup


Findings = list[Finding]


def listed(findings: Sequence[Finding]) -> Markup:
    """Findings as a list, what needs attention first after the first sentence."""
    items = (
        f'<li class="{found.kind}"><span class="kind">{_WORDS[found.kind]}</span><span>{text(found.words)}</span></li>'
        for found in findings
    )
    return Markup('<ul class="verdict">\n' + join(map(Markup, items)) + "\n</ul>")


def named(names: Sequence[str]) -> str:
    """A few names in words."""
    shown = [f"\u201c{name}\u201d" for name in names[:_NAMED]]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def accuracy_of_withheld(
    found: Withheld | None, reason: str, *, searched: bool = False, unseen: Unseen | None = None
) -> Findings:
    """How many withheld labels are right, and whether a guess would do as well.

    If they have chosen the settings (``searched``), those that did not (``unseen``) may tell another story.
    """
    if found is None:
        return [Finding("warning", prose("Nothing can be checked with [withheld label]s: {reason}.", reason=reason))]
    count = found.classes.numel()
    right = int((found.predicted == found.classes).sum())
    chance = float(torch.bincount(found.classes).max()) / count
    limit = chance + _CLEARLY * math.sqrt(chance * (1.0 - chance) / count)
    values = {"right": f"{right:,}", "count": f"{count:,}"}
    sentence = "{right} of {count} [withheld label]s are right."
    if right / count > limit:
        if unseen is not None and unseen.is_near_chance:
            sentence += (
                " But they have chosen the [setting]s; of labels that did not, {few} of {all} are right, no better "
                "than by chance: predictions are little more than guesses. Label more nodes."
            )
            return [Finding("warning", prose(sentence, **values, few=f"{unseen.right:,}", all=f"{unseen.count:,}"))]
        if searched:
            sentence += " They have chosen the [setting]s, so expect less of other nodes."
        return [Finding("good" if right / count >= _FEW_RIGHT else "advice", prose(sentence, **values))]
    advice = (
        " Predictions are little better than chance: check that rows of labels and features belong together, that the "
        "edges join like nodes, or label more nodes."
    )
    return [Finding("warning", prose(sentence + advice, **values))]


def trust_in_probabilities(found: Withheld | None) -> Findings:
    """Whether the mean probability of the predicted class is the share that is right."""
    if found is None:
        return []
    top = found.probabilities.max(dim=1)
    sure = float(top.values.mean())
    hits = (top.indices == found.classes[found.drawn]).double()
    right, nodes = float(hits.mean()), found.drawn.unique().numel()
    margin = max(_OFF, _CLEARLY * math.sqrt(max(right * (1.0 - right), 0.01) / nodes))
    values = {"sure": f"{100 * sure:.0f} %", "right": f"{100 * right:.0f} %"}
    if sure > right + margin:
        words = (
            "[probability|Probabilities] are too high: {sure} on average, while {right} of the predictions are right."
        )
        return [Finding("warning", prose(words, **values))]
    if sure < right - margin:
        words = (
            "[probability|Probabilities] are too low: {sure} on average, while {right} of the predictions are right."
        )
        return [Finding("advice", prose(words, **values))]
    words = "[probability|Probabilities] are about right: {sure} on average, and {right} of the predictions are right."
    if nodes < 10 * found.probabilities.size(1):
        words += f" With {nodes} labels this says little."
    return [Finding("good", prose(words, **values))]


def labels_per_class(given: Tensor, predicted: Tensor, names: Sequence[str]) -> Findings:
    """Classes with a single label, and those that are predicted nowhere; from the numbers of nodes per class."""
    found = []
    single = [name for name, count in zip(names, given.tolist(), strict=True) if count == 1]
    if len(single) == 1:
        words = "Class {names} has a single label, which cannot be checked: label more of it."
        found.append(Finding("advice", prose(words, names=named(single))))
    elif single:
        words = "{count} classes have a single label each, which cannot be checked: {names}. Label more of them."
        found.append(Finding("advice", prose(words, count=len(single), names=named(single))))
    absent = [name for name, count in zip(names, predicted.tolist(), strict=True) if count == 0]
    if absent:
        words = "No node is predicted as {names}."
        found.append(Finding("warning", prose(words, names=named(absent))))
    return found


def weak_classes(found: Withheld | None) -> Findings:
    """Classes whose withheld labels are rarely right, and what they are taken for."""
    if found is None:
        return []
    worst: list[tuple[float, int, int, int]] = []
    for number in found.classes.unique().tolist():
        answers = found.predicted[found.classes == number]
        right = int((answers == number).sum())
        if answers.numel() >= _FEW_LABELS and right / answers.numel() < _FEW_RIGHT:
            other = int(answers[answers != number].mode().values)
            worst.append((right / answers.numel(), number, right, other))
    words = "Class {name} is rarely recognised ({right} of {count} [withheld label]s), mostly taken for {other}."
    return [
        Finding(
            "warning",
            prose(
                words, name=named([found.names[number]]), right=right, count=int((found.classes == number).sum()),
                other=named([found.names[other]]),
            ),
        )
        for _, number, right, other in sorted(worst)[:_NAMED]
    ]  # fmt: skip


def edges(graph: GraphView, predicted: Tensor | None) -> Findings:
    """Whether edges join nodes that are predicted alike, how their weights are spread, and which nodes have none."""
    found = []
    if predicted is not None and graph.ends.size(1):
        alike = graph.alike(predicted)
        share = torch.bincount(predicted.cpu()).double() / predicted.numel()
        by_chance = float(share.square().sum())
        words = "Joined nodes are predicted alike ({share} of the edges)."
        kind: Literal["good", "advice"] = "good"
        if alike < by_chance + 0.1 * (1.0 - by_chance):
            words = (
                "Joined nodes are hardly more often predicted alike than any two nodes ({share} of the edges, "
                "{chance} by chance): the edges may tell little about the classes."
            )
            kind = "advice"
        values = {"share": f"{100 * alike:.0f} %", "chance": f"{100 * by_chance:.0f} %"}
        found.append(Finding(kind, prose(words, **values)))
    if graph.weight is not None and graph.weight.numel():
        size = graph.weight.abs().double()
        usual, largest = float(size.median()), float(size.max())
        if largest > _HEAVY * usual:
            words = (
                "The [edge weight]s have a heavy tail (the largest is {largest}, the median {usual}), so few edges "
                "decide much: consider their logarithms, or no weights."
            )
            found.append(Finding("advice", prose(words, largest=f"{largest:,.4g}", usual=f"{usual:,.4g}")))
    if graph.isolated > _ISOLATED * graph.num_nodes:
        words = "{count} of {all} nodes have no edge; what is predicted for them comes from their features alone."
        found.append(Finding("advice", prose(words, count=f"{graph.isolated:,}", all=f"{graph.num_nodes:,}")))
    return found


def length_of_search(result: SearchResult | None) -> Findings:
    """Whether very few settings were tried."""
    if result is None or not 0 < len(result) < _FEW_SETTINGS:
        return []
    words = "Only {count} [setting]s were tried: a longer search may find better ones."
    return [Finding("advice", prose(words, count=len(result)))]


def numbers_explained(share: float, column: str = "") -> Findings:
    """How much of the variance of withheld numbers is explained."""
    values = {"share": f"{100 * share:.0f} %", "of": column}
    if share < 0.1:
        words = (
            "Predictions are little better than the mean of the given numbers ([R²] {r2} on [withheld number]s{of}): "
            "check that rows of numbers and features belong together, or give more numbers."
        )
        return [Finding("warning", prose(words, r2=f"{share:.2f}", **values))]
    words = "{share} of the variance of [withheld number]s{of} is explained ([R²] {r2})."
    return [Finding("good" if share >= 0.5 else "advice", prose(words, r2=f"{share:.2f}", **values))]


def outliers(errors: Tensor, spread: float, names: Sequence[str], column: str = "") -> Findings:
    """Given numbers that are far from what is predicted without them."""
    far = (errors.abs() > 4.0 * spread).nonzero().flatten()
    if not far.numel():
        return []
    far = far[errors[far].abs().argsort(descending=True)]
    words = "{count} given numbers{of} are more than 4 [spread]s from what is predicted without them: check {names}."
    values = {"count": far.numel(), "of": column, "names": named([names[place] for place in far.tolist()])}
    return [Finding("advice", prose(words, **values))]


def labels_withheld(known: Tensor, left_out: Tensor) -> Findings:
    """With several labels per node: how many withheld labels are right, next to the usual answer of each column."""
    is_known = ~known.isnan()
    truth = known > 0.5
    right = int(((left_out > 0.5) == truth)[is_known].sum())
    given = is_known.sum(dim=0)
    positive = (truth & is_known).sum(dim=0)
    usual, count = int(torch.maximum(positive, given - positive).sum()), int(given.sum())
    values = {"right": f"{right:,}", "count": f"{count:,}", "usual": f"{usual:,}"}
    words = "{right} of {count} [withheld label]s are right"
    if right <= usual:
        words += "; always giving the more frequent answer would make {usual} right: label more nodes."
        return [Finding("warning", prose(words, **values))]
    return [Finding("good", prose(words + " (the more frequent answer of each: {usual}).", **values))]


def labels_of_columns(f1: Sequence[float], positive: Sequence[int], names: Sequence[str]) -> Findings:
    """With several labels per node: labels that nobody has, or that are hardly recognised, by F1 and given counts."""
    found = []
    absent = [name for name, count in zip(names, positive, strict=True) if count == 0]
    if absent:
        found.append(
            Finding("warning", prose("No labelled node has {names}, so it is never predicted.", names=named(absent)))
        )
    rare = [name for name, count in zip(names, positive, strict=True) if 0 < count < _FEW_LABELS]
    if rare:
        words = "Fewer than {least} labelled nodes have {names}: label more of them."
        found.append(Finding("advice", prose(words, least=_FEW_LABELS, names=named(rare))))
    weak = [n for n, value, count in zip(names, f1, positive, strict=True) if count >= _FEW_LABELS and value < 0.5]
    if weak:
        words = "Hardly recognised ([F1] below 0.5 on [withheld label]s): {names}."
        found.append(Finding("warning", prose(words, names=named(weak))))
    return found
