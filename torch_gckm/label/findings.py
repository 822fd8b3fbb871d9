"""What the labels so far say: a fit, what to ask next and why. Without labels of two classes, nodes to begin with."""

import copy
import math
import time
import warnings
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch_geometric.data import Data

from torch_gckm.errors import GCKMError, GCKMWarning
from torch_gckm.estimators import GCKMClassifier, GCKMClustering
from torch_gckm.estimators.base import seed_of
from torch_gckm.select.withheld import withhold_labels

_QUEUE = 20  # How many nodes are suggested at a time; more labels than these are seldom given during a refit.
_GROUPS = 10  # Groups to take the first nodes from, at least; twice as many as classes.
_USUAL = "Of all labels, this one would settle most of what is open about the other nodes."


@dataclass(frozen=True)
class Task:
    """What to look into."""

    labels: dict[int, str]  # The classes of nodes.
    skipped: frozenset[int] = frozenset()  # Nodes not to ask for.
    num_classes: int = 0  # How many classes have a name.
    explore: bool = True  # Whether there may be classes without a label, which a fit could not suggest nodes of.

    @property
    def classes(self) -> list[str]:
        """The classes that have a label."""
        return sorted(set(self.labels.values()))

    def may_ask(self, node: int) -> bool:
        """Whether a node has no label, and was not skipped."""
        return node not in self.labels and node not in self.skipped


@dataclass(frozen=True)
class Question:
    """A node to ask for."""

    node: int
    reason: str


@dataclass(frozen=True)
class Findings:
    """What was found out about the labels of a task."""

    task: Task
    questions: list[Question]  # The most useful first.
    probabilities: NDArray[np.float32] | None = None  # Of the task's classes, [n, num_classes]; None without a fit.
    right: int = 0  # How many of the withheld labels are predicted,
    withheld: int = 0  # and how many there are.
    notes: list[str] = field(default_factory=list)  # Warnings of the fit.
    seconds: float = 0.0

    @property
    def predicted(self) -> list[str] | None:
        """The likeliest class of every node."""
        if self.probabilities is None:
            return None
        classes = self.task.classes
        return [classes[place] for place in self.probabilities.argmax(axis=1).tolist()]

    def guess(self, node: int) -> list[tuple[str, float]]:
        """The classes of a node and their probabilities, the likeliest first."""
        if self.probabilities is None:
            return []
        pairs = zip(self.task.classes, self.probabilities[node].tolist(), strict=True)
        return sorted(pairs, key=lambda pair: -pair[1])


def find(graph: Data, task: Task, classifier: GCKMClassifier) -> Findings:
    """Fit a classifier like this one to the labels of a task, or choose first nodes if they are too few for a fit."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GCKMWarning)
        first = _middles_of_groups(graph, task, classifier) if task.explore or len(task.classes) < 2 else []
        found = _fitted(graph, task, classifier) if len(task.classes) > 1 else Findings(task, [])
    notes = list(dict.fromkeys(str(warning.message) for warning in caught))
    asked = {question.node for question in first}
    questions = [*first, *(question for question in found.questions if question.node not in asked)]
    return replace(found, questions=questions, notes=notes, seconds=time.perf_counter() - start)


def _fitted(graph: Data, task: Task, classifier: GCKMClassifier) -> Findings:
    """A fit, its guesses and suggestions, and how well it predicts withheld labels."""
    labelled = copy.copy(graph)
    number = {name: place for place, name in enumerate(task.classes)}
    labelled.y = torch.full((graph.num_nodes,), -1)
    labelled.y[list(task.labels)] = torch.tensor([number[name] for name in task.labels.values()])
    fitted = clone(classifier).set_params(progress=False).fit(labelled, class_names=task.classes)
    probabilities = fitted.predict_proba()
    free = graph.num_nodes - len(task.labels)
    # Nodes that were skipped may be suggested again: ask for so many more.
    suggested = fitted.suggest(min(_QUEUE + len(task.skipped), free)).tolist() if free else []
    right, withheld = _withheld(fitted)
    questions = [Question(node, _USUAL) for node in suggested if task.may_ask(node)]
    return Findings(task, questions, probabilities.float().cpu().numpy(), right, withheld)


def _withheld(fitted: GCKMClassifier) -> tuple[int, int]:
    """How many labels the ensemble predicts without having seen them, of how many."""
    try:
        found = withhold_labels(
            fitted.model_.members, fitted.labels_.targets, [str(name) for name in fitted.classes_], single=False
        )
    except GCKMError:  # No class has two labels, or some readout says nothing of withheld labels.
        return 0, 0
    count = found.nodes.numel()
    return round(found.accuracy * count), count


def _middles_of_groups(graph: Data, task: Task, classifier: GCKMClassifier) -> list[Question]:
    """A node of every group without a label, of groups that are found without labels; the largest first."""
    count = min(max(_GROUPS, 2 * task.num_classes), math.ceil(graph.num_nodes / 2))
    if count < 2:
        return []
    found = GCKMClustering(count, random_state=seed_of(classifier.random_state)).fit(graph)
    groups, h, centres = found.labels_, found.embedding_, found.cluster_centers_
    sizes = torch.bincount(groups, minlength=count).tolist()
    left = set(range(count)) - {int(groups[node]) for node in task.labels}
    questions = []
    for group in sorted(left, key=lambda group: -sizes[group]):
        members = (groups == group).nonzero().flatten()
        order = (h[members] - centres[group]).norm(dim=1).argsort()
        near = next((node for node in members[order].tolist() if task.may_ask(node)), None)
        if near is not None:
            text = f"It is in the middle of a group of {sizes[group]:,} similar nodes, none of which has a label."
            questions.append(Question(near, text))
    return questions
