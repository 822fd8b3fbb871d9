"""Withheld labels that have not chosen the settings either.

A search prefers settings that predict the withheld labels well, some of them by luck. So an ensemble is right about
these labels more often than about other nodes: on a graph that tells nothing, by 80 % of ten labels. What the choice
gains is measured by splitting the labels in three parts, with labels of every class in each. Settings are ranked
by all parts but one, and those chosen predict this one. It costs next to nothing, because no setting is fitted again.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import GCKMWarning
from torch_gckm.select.calibration import calibrate
from torch_gckm.select.trial import Trial

_PARTS = 3
_REPEATS = 3
_CLEARLY = 2.0  # Standard errors.
_FACTORS = torch.linspace(-4.0, 4.0, 65, dtype=torch.float64).exp()

Choice = Callable[[Sequence[Trial]], Sequence[Trial]]


@dataclass(frozen=True)
class Unseen:
    """How labels are predicted that were withheld from the fit and from the choice of settings."""

    right: int  #: How many are predicted.
    count: int  #: Of how many.
    chance: float  #: The share that would be right by chance, if classes were predicted as often as they are.
    gain: float  #: The factor of scores that fits them, relative to that of labels that have chosen the settings; <= 1.

    @property
    def is_near_chance(self) -> bool:
        """Whether they are predicted no better than by chance, up to two standard errors."""
        error = math.sqrt(self.chance * (1.0 - self.chance) / self.count)
        return self.right < self.count * (self.chance + _CLEARLY * error)

    def warn(self, stacklevel: int) -> None:
        """Warn if predictions are little more than guesses."""
        if self.is_near_chance:
            text = (
                f"withheld labels are predicted no better than by chance ({self.right} of {self.count} right): "
                "predictions are little more than guesses"
            )
            warnings.warn(text, GCKMWarning, stacklevel=stacklevel + 1)


@torch.no_grad()
def unseen(trials: Sequence[Trial], classes: Tensor, choose: Choice) -> Unseen | None:
    """Choose settings by a part of the withheld labels, and predict the others.

    Args:
        trials: The settings that were tried.
        classes: The classes of the labels that were withheld, ``[b]``.
        choose: Which of some valid trials are combined.

    Returns:
        ``None`` if no label was withheld, or so many that trials do not keep their scores.
    """
    trials = [trial for trial in trials if trial.is_valid]
    if not trials or any(trial.withheld is None for trial in trials):
        return None
    classes = classes.cpu()
    scores = torch.tensor([trial.withheld for trial in trials], dtype=torch.float64)
    losses, places = _Losses(scores, classes), {trial.number: place for place, trial in enumerate(trials)}

    def combined(chosen: Sequence[Trial]) -> Tensor:
        return panels.accumulate(scores[places[trial.number]] for trial in chosen) / len(chosen)

    factor = calibrate(combined(choose(trials)), classes)[0]
    right, factors, chances = 0, [], []
    for repeat in range(_REPEATS):
        part, found = parts(classes, repeat), torch.empty_like(scores[0])
        for number in range(int(part.max()) + 1):
            own = part == number
            found[own] = combined(choose(losses.ranked_by(trials, ~own)))[own]
        predicted = found.argmax(dim=1)
        right += panels.count(predicted == classes)
        chances.append(chance_of(predicted, classes, scores.size(2)))
        factors.append(calibrate(found, classes)[0])
    mean = float(torch.tensor(factors).log().mean().exp())
    return Unseen(round(right / _REPEATS), classes.numel(), sum(chances) / _REPEATS, min(1.0, mean / factor))


def chance_of(predicted: Tensor, classes: Tensor, count: int) -> float:
    """The share of predictions that would be right if they were permuted at random, as in Cohen's kappa."""
    shares = [panels.counts(part, count).double() / part.numel() for part in (predicted, classes)]
    return float((shares[0] * shares[1]).sum())


def parts(classes: Tensor, seed: int) -> Tensor:
    """The part of every label, ``[b]``; each class is spread over the parts evenly, at random."""
    generator = torch.Generator().manual_seed(seed)
    chance = torch.rand(classes.numel(), generator=generator)  # Of labels, so that classes may be renumbered.
    part = torch.empty_like(classes)
    for number in classes.unique().tolist():
        members = panels.rows_where(classes == number)
        part[members[chance[members].argsort()]] = torch.arange(members.numel()) % _PARTS
    return part


class _Losses:
    """The losses of all withheld labels by all settings at many factors, from which those of a part are found."""

    def __init__(self, scores: Tensor, classes: Tensor) -> None:
        scores = scores - scores.mean(dim=2, keepdim=True)
        self.right = scores.argmax(dim=2) == classes
        self.true = scores[:, torch.arange(classes.numel()), classes]
        self.normaliser = torch.stack([(factor * scores).logsumexp(dim=2) for factor in _FACTORS], dim=1)

    def ranked_by(self, trials: Sequence[Trial], used: Tensor) -> list[Trial]:
        """The trials with measures of some of the labels; see :func:`~torch_gckm.select.calibration.calibrate`."""
        count = panels.count(used)
        right = self.right[:, used].double().mean(dim=1)
        true = _FACTORS * self.true[:, used].mean(dim=1, keepdim=True)
        loss = (self.normaliser[:, :, used].mean(dim=2) - (1.0 - 1.0 / (count + 1)) * true).amin(dim=1)
        return [
            replace(trial, measures=trial.measures | _measures(float(share), -float(least)))
            for trial, share, least in zip(trials, right, loss, strict=True)
        ]


def _measures(right: float, loss: float) -> dict[str, float]:
    return {
        f"{name}{end}": value
        for name in ("leave_one_out", "per_class_out")
        for end, value in (("", right), ("_loss", loss))
    }
