"""One setting, fitted and measured without looking at any test label."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import GCKMError, GCKMWarning
from torch_gckm.nn import GCKM, ModelSettings
from torch_gckm.readout import class_similarity, decode
from torch_gckm.select.calibration import calibrate
from torch_gckm.select.shared_fits import SharedFits
from torch_gckm.select.withheld import check_well_posed, groups_to_withhold, withheld_similarity
from torch_gckm.train.labelling import Labelling
from torch_gckm.train.metrics import accuracy, combined_score, cosine_score, effective_classes

FIT_ERRORS = (GCKMError, RuntimeError)  # Linear algebra that breaks down is a RuntimeError.


def describe_error(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}"


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings of single settings, which are no news to a search."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCKMWarning)
        yield


@dataclass
class Trial:
    """A setting and what became of it.

    Attributes:
        number: Its place in the search.
        setting: The setting.
        measures: Criteria by name, NaN where one has no meaning.
        seconds: The time it took.
        error: Why it failed or was rejected, else ``None``.
    """

    number: int
    setting: ModelSettings
    measures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as files hold them."""
        return {**asdict(self), "setting": self.setting.to_dict()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Trial:
        """From what :meth:`to_dict` returned."""
        return cls(**{**content, "setting": ModelSettings.from_dict(content["setting"])})

    @property
    def is_valid(self) -> bool:
        """Whether the setting was fitted and is well-posed."""
        return self.error is None


class Evaluator:
    """Fits settings to one graph and measures them."""

    def __init__(self, fits: SharedFits, labels: Labelling) -> None:
        self.fits, self.labels = fits, labels
        self.classes = labels.targets.labels
        self.groups = groups_to_withhold(self.classes)

    def __call__(self, number: int, setting: ModelSettings) -> Trial:
        """Fit and measure; a failure is recorded, not raised."""
        start = time.perf_counter()
        trial = Trial(number, setting)
        try:
            model = self.solve(setting)
            self._measure(trial, model)
        except FIT_ERRORS as error:
            trial.error = describe_error(error)
        trial.seconds = time.perf_counter() - start
        return trial

    @torch.no_grad()
    def solve(self, setting: ModelSettings, *, own_layers: bool = False) -> GCKM:
        """The fitted model of a setting; with layers of its own it may be trained further."""
        model = self.fits.fit(setting)
        if own_layers:
            model = copy.deepcopy(model)
            for conv in model.layers:
                conv.requires_grad_(True)
        model.solve_on(self.fits.graph(setting), self.labels.targets)
        return model

    @torch.no_grad()
    def _measure(self, trial: Trial, model: GCKM) -> None:
        readout, labels = model.readout, self.labels
        check_well_posed(readout.fit)
        left_out = class_similarity(readout.leave_one_out(), readout.codes)
        predicted = decode(readout.scores, readout.codes)
        trial.measures = {
            "leave_one_out": _share(left_out.argmax(dim=1), self.classes),
            "leave_one_out_loss": -calibrate(left_out, self.classes)[1],
            "cosine": cosine_score(readout.scores, readout.codes, labels.unlabelled),
            "effective_classes": effective_classes(predicted),
            "val_acc": accuracy(predicted, labels.y, labels.val),
            **self._per_class(model),
        }
        rest = labels.unlabelled & ~labels.val
        if panels.holds_somewhere(labels.val):
            cosine = cosine_score(readout.scores, readout.codes, rest)
            counts = panels.count(labels.val), panels.count(rest)
            trial.measures["combined"] = combined_score(trial.measures["val_acc"], counts[0], cosine, counts[1])

    def _per_class(self, model: GCKM) -> dict[str, float]:
        """Criteria from withholding one label of every class at a time."""
        if self.groups.size(1) == 0:
            return {"per_class_out": math.nan, "per_class_out_loss": math.nan}
        similarity = withheld_similarity(model.readout.fit, model.readout.codes, self.groups)
        classes = self.classes[self.groups].flatten()
        return {
            "per_class_out": _share(similarity.argmax(dim=1), classes),
            "per_class_out_loss": -calibrate(similarity, classes)[1],
        }


def _share(predicted: Tensor, classes: Tensor) -> float:
    return accuracy(predicted, classes, torch.ones_like(classes, dtype=torch.bool))
