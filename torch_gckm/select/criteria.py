r"""Which of many fitted settings is best, by criteria that see no test label.

==================  ==============================================================================
``leave_one_out``   accuracy on labelled nodes whose own label was withheld; exact, and free
``per_class_out``   the same, withholding one label of every class at a time: with few labels per
                    class, withholding a single one only makes its class weaker than the others
``cosine``          the paper's score: how clearly unlabelled nodes point at a class
``val_acc``         accuracy on ``val_mask``
``combined``        the paper's mean of ``val_acc`` and ``cosine``, weighted by numbers of nodes
``auto``            what withholding labels says, and how well a setting did on other graphs (see
                    :mod:`torch_gckm.select.portfolio`), weighted by the labels per class; without a
                    portfolio, the cosine score takes the place of the latter
==================  ==============================================================================

Equal accuracies are told apart by the log-loss of calibrated probabilities. ``docs/selection.md`` has the
experiment behind ``auto``.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.select.trial import Trial
from torch_gckm.train.labelling import Labelling
from torch_gckm.train.metrics import effective_classes

Array = NDArray[np.float64]
Criterion = Literal["auto", "leave_one_out", "per_class_out", "cosine", "val_acc", "combined"]
_COLLAPSED = 1 / 3  # The effective number of predicted classes beyond one, relative to that of the labels.
_TIE = 1e-4
_TOO_BAD = 0.35  # What a setting's probabilities of withheld labels must be beyond chance, relative to the best one's.
_RANDOM = -1.0  # What a random setting promises, in standard deviations of settings on other graphs.
_PRIOR = 3.0  # How many labels per class say as much about a setting as other graphs do.


class Ranking:
    """Scores trials of one search; higher is better."""

    def __init__(
        self, criterion: Criterion, classes: Tensor, num_val: int, num_unlabelled: int, promises: Sequence[float] = ()
    ) -> None:
        if criterion not in _SCORES:
            raise InvalidInputError(f"unknown criterion {criterion!r}; choose from {', '.join(_SCORES)}")
        if criterion in ("val_acc", "combined") and num_val == 0:
            raise InvalidInputError(f"criterion='{criterion}' needs a val_mask with at least one node")
        if criterion == "cosine" and num_unlabelled == 0:
            raise InvalidInputError("criterion='cosine' needs an unlabelled node")
        counts = panels.counts(classes)
        if criterion == "per_class_out" and int(counts.max()) < 2:
            raise InvalidInputError("criterion='per_class_out' needs a class with two labels; use 'auto' or 'cosine'")
        self.criterion = criterion
        self.fewest, self.num_classes = int(counts[counts > 0].min()), int((counts > 0).sum())
        self.promises, self.labels_per_class = promises, int(counts[counts > 1].sum()) / self.num_classes
        self.least_classes = 1.0 + _COLLAPSED * (effective_classes(classes) - 1.0)

    @classmethod
    def of(cls, criterion: Criterion, labels: Labelling, promises: Sequence[float] = ()) -> Self:
        """For the labels of a graph; the first trials are of the portfolio, with these promises."""
        over = labels.targets.partition
        numbers = panels.count(labels.val, over), panels.count(labels.unlabelled, over)
        return cls(criterion, labels.targets.labels, *numbers, promises)

    @property
    def weight(self) -> float:
        """The weight of withheld labels in ``auto``; a class's only label cannot be withheld."""
        if self.promises:
            return self.labels_per_class / (self.labels_per_class + _PRIOR)
        return 0.0 if self.fewest == 1 else self.fewest / (self.fewest + 1.0)

    def promise(self, trial: Trial) -> float:
        """How well a setting did on other graphs; those beyond the portfolio are random ones."""
        return self.promises[trial.number] if trial.number < len(self.promises) else _RANDOM

    def value(self, trial: Trial) -> float:
        """The score of a trial by itself, for a search that learns from scores."""
        if self.criterion != "auto" or not trial.is_valid:
            return self.scores([trial])[0]
        withheld, cosine = _withheld(trial), trial.measures["cosine"]
        if self.fewest == 1:
            cosine = (cosine + trial.measures["effective_classes"] / self.num_classes) / 2
        mean = withheld if math.isnan(cosine) else self.weight * withheld + (1.0 - self.weight) * cosine
        return mean - self.is_collapsed(trial)

    def is_collapsed(self, trial: Trial) -> bool:
        """Whether a setting puts almost all nodes into a few of the classes."""
        return trial.measures["effective_classes"] < self.least_classes

    def scores(self, trials: Sequence[Trial]) -> list[float]:
        """One score per trial, minus infinity for those that failed; those of ``auto`` are relative to these trials."""
        valid = [trial for trial in trials if trial.is_valid]
        values = _SCORES[self.criterion](self, valid) if valid else []
        found = {trial.number: value for trial, value in zip(valid, values, strict=True)}
        return [found.get(trial.number, -math.inf) for trial in trials]

    def order(self, trials: Sequence[Trial]) -> list[Trial]:
        """The valid trials, best first; of equals, the earlier one."""
        scores = self.scores(trials)
        order = sorted(range(len(trials)), key=lambda i: (-scores[i], trials[i].number))
        return [trials[i] for i in order if trials[i].is_valid]

    def worth_combining(self, trials: Sequence[Trial]) -> list[Trial]:
        """Those of some valid trials that withheld labels do not exclude, in their order.

        After a few settings, most of those tried may be no better than a guess.
        """
        if self.criterion != "auto" or self.labels_per_class == 0 or not trials:
            return list(trials)
        chance = 1.0 / self.num_classes
        beyond = [_withheld(trial) - chance for trial in trials]
        least = _TOO_BAD * max(beyond) if max(beyond) > 0 else -math.inf
        return [trial for trial, value in zip(trials, beyond, strict=True) if value >= least]


def _measured(name: str) -> Callable[[Ranking, list[Trial]], list[float]]:
    def scores(ranking: Ranking, trials: list[Trial]) -> list[float]:
        # With very many labels only single ones are withheld.
        used = "leave_one_out" if math.isnan(trials[0].measures[name]) else name
        loss = used + "_loss" if used + "_loss" in trials[0].measures else "leave_one_out_loss"
        return [trial.measures[used] + _TIE * trial.measures[loss] for trial in trials]

    return scores


def _auto(ranking: Ranking, trials: list[Trial]) -> list[float]:
    """Withheld labels, the cosine score and perhaps evenness, each relative to the other settings."""
    collapsed = np.array([ranking.is_collapsed(trial) for trial in trials])
    if collapsed.all():
        collapsed[:] = False  # Then it tells nothing.
    withheld = _standardised([_withheld(trial) for trial in trials], ~collapsed)
    if ranking.promises:
        promise = _standardised([ranking.promise(trial) for trial in trials], ~collapsed)
        return _below(collapsed, ranking.weight * withheld + (1.0 - ranking.weight) * promise)
    cosine = np.array([trial.measures["cosine"] for trial in trials])
    if np.isnan(cosine).all():  # Without unlabelled nodes.
        scores = withheld
    else:
        rest = _standardised(cosine, ~collapsed)
        if ranking.fewest == 1:
            evenness = [trial.measures["effective_classes"] for trial in trials]
            rest = (rest + _standardised(evenness, ~collapsed)) / 2
        scores = ranking.weight * withheld + (1.0 - ranking.weight) * rest
    return _below(collapsed, scores)


def _below(collapsed: Array, scores: Array) -> list[float]:
    """The scores, those of collapsed settings below all others."""
    lowest = float(scores.min()) - float(scores.max()) - 1.0
    return [float(score) for score in np.where(collapsed, scores + lowest, scores)]


def _withheld(trial: Trial) -> float:
    """The geometric mean of the calibrated probabilities of withheld labels."""
    loss = trial.measures["per_class_out_loss"]
    return math.exp(trial.measures["leave_one_out_loss"] if math.isnan(loss) else loss)


def _standardised(values: Sequence[float] | Array, used: Array) -> Array:
    values = np.asarray(values, dtype=float)
    part = values[used]
    return np.asarray((values - part.mean()) / (part.std() + 1e-12))


_SCORES: dict[str, Callable[[Ranking, list[Trial]], list[float]]] = {
    "auto": _auto,
    **{name: _measured(name) for name in ("leave_one_out", "per_class_out", "cosine", "val_acc", "combined")},
}
