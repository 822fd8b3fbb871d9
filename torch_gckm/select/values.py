"""Settings for real targets: fitted, measured and ranked by the squared errors of withheld targets."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.nn import GCKM, ModelSettings
from torch_gckm.readout import VALUES
from torch_gckm.select.criteria import Criterion, Ranking
from torch_gckm.select.trial import FIT_ERRORS, Evaluator, SharedFits, Trial, describe_error
from torch_gckm.select.withheld import check_well_posed
from torch_gckm.train.labelling import Labelling

# Classes are rarely noise, numbers often are: every setting is also solved with less trust in its targets.
TRUST = (1.0, 5.0, 25.0)
_MUCH = 1.5  # What a setting's squared error may be, relative to the smallest, to be combined with others.


def for_values(setting: ModelSettings) -> ModelSettings:
    """The same setting for real targets."""
    return replace(setting, readout=replace(setting.readout, code=VALUES, class_weight=None))


def explained(predicted: Tensor, y: Tensor, reference: Tensor) -> float:
    r"""The share :math:`1 - \sum (y - \hat y)^2 / \sum (y - y_0)^2` of a reference's squared error, mean of columns.

    Unknown targets, NaN, do not count, nor do columns in which the reference is right everywhere.
    """
    known = ~y.isnan()
    errors = (torch.where(known, y - other, 0.0) for other in (predicted, reference))
    error, usual = (panels.column_sums(part.double().square()) for part in errors)
    counts = usual > 0
    return float(1.0 - panels.mean(error[counts] / usual[counts]))


def means_of_others(y: Tensor, weight: Tensor) -> Tensor:
    """For every labelled node the weighted mean of the other known targets, ``[b, p]``: what a guess would be."""
    share, y = weight.to(y).unsqueeze(1) * ~y.isnan(), y.nan_to_num()
    return (panels.column_sums(share * y) - share * y) / (panels.column_sums(share) - share)


class ValueEvaluator(Evaluator):
    """Fits settings to one graph with real targets and measures them."""

    def __init__(self, fits: SharedFits, labels: Labelling) -> None:
        self.fits, self.labels = fits, labels
        self.known = labels.targets.labels
        self.guess = means_of_others(self.known, self.partition.pick(labels.targets.weight, labels.targets.labelled))

    def __call__(self, number: int, setting: ModelSettings) -> Trial:
        """Fit, solve with more and less trust in the targets, and measure the best of these."""
        start = time.perf_counter()
        best = Trial(number, for_values(setting))
        try:
            with self.partition.agreed():
                model = self.solve(best.setting)
            best = max((self._with_trust(best, model, factor) for factor in TRUST), key=_value)
        except FIT_ERRORS as error:
            best.error = describe_error(error)
        best.seconds = time.perf_counter() - start
        return best

    @torch.no_grad()
    def _with_trust(self, trial: Trial, model: GCKM, factor: float) -> Trial:
        """The same setting with another weight of the targets; the kernel matrix stays."""
        changed = replace(trial.setting.readout, lambda2=trial.setting.readout.lambda2 * factor)
        found = Trial(trial.number, replace(trial.setting, readout=changed))
        try:
            with self.partition.agreed():
                if factor != 1.0:
                    model.readout.lambda2 = changed.lambda2
                    model.readout.solve_again(self.labels.targets)
                self.measure(found, model)
                found.measures = self.partition.processes.of_first(found.measures)
        except FIT_ERRORS as error:
            found.error = describe_error(error)
        return found

    @torch.no_grad()
    def measure(self, trial: Trial, model: GCKM) -> None:
        """Write down how well a solved model predicts withheld targets."""
        check_well_posed(model.readout.fit)
        share = explained(model.readout.leave_one_out(), self.known, self.guess)
        if not math.isfinite(share):
            raise InvalidInputError("predictions of withheld targets are not finite")
        trial.measures = {"leave_one_out": share}


def _value(trial: Trial) -> float:
    return trial.measures["leave_one_out"] if trial.is_valid else -math.inf


class ValueRanking(Ranking):
    """Scores trials by the squared errors of withheld targets; higher is better."""

    def __init__(self, criterion: Criterion, promises: Sequence[float] = ()) -> None:
        if criterion not in ("auto", "leave_one_out"):
            raise InvalidInputError(f"criterion={criterion!r} is about classes; choose 'auto' for real targets")
        self.criterion, self.promises = criterion, promises

    def value(self, trial: Trial) -> float:
        """The score of a trial by itself."""
        return _value(trial)

    def scores(self, trials: Sequence[Trial]) -> list[float]:
        """One score per trial, minus infinity for those that failed."""
        return [_value(trial) for trial in trials]

    def worth_combining(self, trials: Sequence[Trial]) -> list[Trial]:
        """Those of some valid trials whose squared errors are not much above the smallest, in their order."""
        most = _MUCH * min((1.0 - _value(trial) for trial in trials), default=math.inf)
        return [trial for trial in trials if 1.0 - _value(trial) <= most]
