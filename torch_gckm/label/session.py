"""Labelling of one graph: answers, which node to ask for next, and what is known about the rest.

Nothing here runs in the background: :class:`~torch_gckm.label.background.Background` does the tasks of a session in
another process, a notebook calls :meth:`LabellingSession.refit`.
"""

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass

from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError, OutdatedAnswerError
from torch_gckm.estimators import GCKMClassifier
from torch_gckm.files import PathLike
from torch_gckm.label.details import NodeDetails
from torch_gckm.label.findings import Findings, Question, Task, find
from torch_gckm.label.label_file import Answers, LabelFile, checked_class
from torch_gckm.readout import labels_of, pick_mask

_LEFT = "What was suggested is labelled; it is the least certain of the other nodes."
_RANDOM = "It was chosen at random."
_AGAIN = "You chose it."


@dataclass(frozen=True)
class Answer:
    """What was said about a node; without a class, it was skipped."""

    node: int
    name: str | None


@dataclass(frozen=True)
class Record:
    """One refit among all of a session."""

    labels: int  # How many labels it knew.
    right: int  # How many withheld labels it predicted,
    withheld: int  # and how many there were.
    changed: int | None  # How many nodes have another class than after the refit before; None for the first.


class LabellingSession:
    """Asks for labels of nodes, keeps every answer in a file at once, and fits to the answers.

    .. code-block:: python

        session = LabellingSession(data, "labels.csv", classes=["ant", "bee"])
        session.refit()
        session.asked                # the node to label, a Question with a reason
        session.label("ant")         # is in the file when the call returns
        session.undo()

    An answer may say at which :attr:`revision` it was made. If another answer came in between, it is refused, so that
    two people who look at the same question do not answer a question that one of them has not seen.

    Args:
        data: Features ``x`` and edges; labels ``y`` (-1: unknown) and ``train_mask``, if there are labels already.
        output: The file of the labels, those of ``data`` included; one from an earlier session is continued.
        classes: The names of all classes. Without them, classes are those that occur among labels and answers, and a
            node of every group of similar nodes is asked for, in case there are more.
        class_names: The names of the class numbers in ``data.y``.
        node_names: The names of the nodes; by default their numbers.
        feature_names: The names of the features.
        classifier: What to fit; by default a :class:`~torch_gckm.GCKMClassifier` with its defaults.

    Attributes:
        asked: The question to answer, or ``None`` before the first :meth:`refit` and when no node is left.
        findings: What the last refit found, or ``None``.
        error: Why the last refit failed, or ``None``.
        records: One record per refit.
        revision: The number of times that an answer has changed something.
        version: The number of times that anything has changed.
        resumed: How many answers of an earlier session were found in the file,
        overruled: and how many of them are about nodes for which ``data`` has another label.
    """

    def __init__(
        self,
        data: Data,
        output: PathLike,
        *,
        classes: Sequence[str] = (),
        class_names: Sequence[str] | None = None,
        node_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        classifier: GCKMClassifier | None = None,
    ) -> None:
        self.graph = copy.copy(data)
        for name in ("y", "train_mask", "val_mask", "test_mask"):
            if name in self.graph:
                del self.graph[name]
        self.num_nodes = data.num_nodes
        self.node_names = [str(node) for node in range(self.num_nodes)] if node_names is None else list(node_names)
        if len(self.node_names) != self.num_nodes:
            raise InvalidInputError(f"{len(self.node_names)} 'node_names' for {self.num_nodes} nodes")
        self.details = NodeDetails(self.graph, feature_names)
        self.classifier = GCKMClassifier() if classifier is None else classifier
        self._named = list(dict.fromkeys(checked_class(name) for name in (*classes, *(class_names or ()))))
        self._is_complete = bool(classes)  # Classes that occur among labels need not be all.
        self._given = _labels_in(data, class_names)
        self.file = LabelFile(output, self.node_names)
        kept = self.file.read()
        self._answers = [Answer(node, name) for node, name in kept.items() if _is_answer(name, self._given.get(node))]
        self.resumed = len(self._answers)
        self.overruled = sum(answer.node in self._given for answer in self._answers)
        self.asked: Question | None = None
        self.findings: Findings | None = None
        self.error: str | None = None
        self.records: list[Record] = []
        self.revision = self.version = 0
        self._tried: Task | None = None
        self._places = {name: place for place, name in enumerate(self.node_names)}

    @property
    def answers(self) -> list[Answer]:
        """The answers, the latest last; labels of ``data`` are no answers."""
        return list(self._answers)

    @property
    def labels(self) -> dict[int, str]:
        """The class of every labelled node, given or answered."""
        return {node: name for node, name in self._overlaid(self._answers).items() if name is not None}

    @property
    def skipped(self) -> frozenset[int]:
        """Nodes that were skipped."""
        return frozenset(node for node, name in self._overlaid(self._answers).items() if name is None)

    @property
    def classes(self) -> list[str]:
        """All classes: those that were named, then those that answers added."""
        return list(dict.fromkeys([*self._named, *self.labels.values()]))

    def place_of(self, name: str) -> int:
        """The node of a name."""
        if name not in self._places:
            raise InvalidInputError(f"no node is called '{name}'")
        return self._places[name]

    def label(self, name: str, revision: int | None = None) -> None:
        """Give the node that is asked for a class, which may be a new one."""
        node = self._checked(revision).node
        self._answer(Answer(node, checked_class(name)))

    def skip(self, revision: int | None = None) -> None:
        """Leave the node that is asked for as it is, and do not ask for it again."""
        node = self._checked(revision).node
        if node in self.labels:  # It was looked at again, and its label stays.
            self._ask(self._next({node}))
        else:
            self._answer(Answer(node, None))

    def undo(self, revision: int | None = None) -> None:
        """Take back the last answer, and ask for its node again."""
        self._check_revision(revision)
        if not self._answers:
            raise InvalidInputError("there is no answer to undo")
        self._save(self._answers[:-1])
        self._ask(Question(self._answers.pop().node, "The answer was undone."))

    def ask(self, node: int, revision: int | None = None) -> None:
        """Ask for a certain node next, labelled or not."""
        self._check_revision(revision)
        if not 0 <= node < self.num_nodes:
            raise InvalidInputError(f"there is no node {node}; nodes have numbers from 0 to {self.num_nodes - 1}")
        self._ask(Question(node, _AGAIN))

    def task(self) -> Task | None:
        """What is left to find out; ``None`` if the last task, also one that failed, was about the same labels."""
        labels = self.labels
        explore = not self._is_complete or not set(self._named) <= set(labels.values())
        task = Task(labels, self.skipped, len(self.classes), explore)
        if self._tried is not None and task.labels == self._tried.labels:
            return None
        return task

    def begin(self, task: Task) -> None:
        """Say that somebody works on a task."""
        self._tried = task
        self.version += 1

    def take(self, findings: Findings) -> None:
        """Make use of what a task has found; a question that is being asked stays."""
        before = None if self.findings is None else self.findings.predicted
        after = findings.predicted
        self.findings, self.error = findings, None
        if after is not None:
            changed = None if before is None else sum(a != b for a, b in zip(after, before, strict=True))
            self.records.append(Record(len(findings.task.labels), findings.right, findings.withheld, changed))
        if self.asked is None:
            self.asked = self._next()
            self.revision += 1
        self.version += 1

    def fail(self, reason: str) -> None:
        """Say that a task has failed; answers go on."""
        self.error = reason
        if self.asked is None:
            self.asked = self._next()
            self.revision += 1
        self.version += 1

    def refit(self) -> Findings | None:
        """Do the task that is left, here and now; raises what went wrong."""
        task = self.task()
        if task is not None:
            self.begin(task)
            try:
                self.take(find(self.graph, task, self.classifier))
            except Exception as error:
                self.fail(describe(error))
                raise
        return self.findings

    def _checked(self, revision: int | None) -> Question:
        self._check_revision(revision)
        if self.asked is None:
            raise InvalidInputError("no node is asked for at present")
        return self.asked

    def _check_revision(self, revision: int | None) -> None:
        if revision is not None and revision != self.revision:
            raise OutdatedAnswerError(
                "this answer was not used: another one, perhaps in another tab, came first. The page is up to date now"
            )

    def _answer(self, answer: Answer) -> None:
        self._save([*self._answers, answer])  # If this fails, nothing has changed.
        self._answers.append(answer)
        self._ask(self._next())

    def _ask(self, question: Question | None) -> None:
        self.asked = question
        self.revision += 1
        self.version += 1

    def _next(self, without: set[int] | None = None) -> Question | None:
        """The next suggestion, else the least certain node, else a random one."""
        done = self._overlaid(self._answers).keys() | (without or set())
        found = self.findings
        for question in () if found is None else found.questions:
            if question.node not in done:
                return question
        free = [node for node in range(self.num_nodes) if node not in done]
        if not free:
            return None
        if found is None or found.probabilities is None:
            return Question(random.Random(len(free)).choice(free), _RANDOM)
        certainty = found.probabilities.max(axis=1)
        return Question(min(free, key=lambda node: certainty[node]), _LEFT)

    def _overlaid(self, answers: Sequence[Answer]) -> Answers:
        """The given labels and then the answers, the latest last, as they are kept in the file."""
        found: Answers = dict(self._given)
        for answer in answers:
            found.pop(answer.node, None)
            found[answer.node] = answer.name
        return found

    def _save(self, answers: Sequence[Answer]) -> None:
        self.file.write(self._overlaid(answers))


def _is_answer(kept: str | None, given: str | None) -> bool:
    """Whether what a file holds about a node was answered, rather than given."""
    return given is None if kept is None else kept != given


def describe(error: Exception) -> str:
    """What went wrong, in a sentence."""
    kind = type(error)
    return str(error) if kind.__module__.startswith("torch_gckm.") else f"{kind.__name__}: {error}"


def _labels_in(data: Data, class_names: Sequence[str] | None) -> dict[int, str]:
    """The labels that a graph comes with."""
    if data.get("y") is None:
        return {}
    y = labels_of(data)
    if y.dim() != 1 or y.is_floating_point():
        raise InvalidInputError("'y' must hold one class number per node, -1 where it is unknown")
    known = y >= 0
    if data.get("train_mask") is not None:
        known = known & (pick_mask(data.train_mask, data.num_nodes, name="train_mask") > 0)
    numbers = {node: int(y[node]) for node in known.nonzero().flatten().tolist()}
    if class_names is not None and max(numbers.values(), default=-1) >= len(class_names):
        raise InvalidInputError(f"'class_names' has {len(class_names)} names for class {max(numbers.values())}")
    return {node: str(number) if class_names is None else class_names[number] for node, number in numbers.items()}
