"""One setting, fitted and measured without looking at any test label."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch_geometric.data import Data

from torch_gckm.errors import GCKMError, GCKMWarning, IllPosedError, InvalidInputError
from torch_gckm.gram import GramLike
from torch_gckm.nn import GCKM
from torch_gckm.nn.coding import class_similarity, decode
from torch_gckm.nn.labels import parse_labels, pick_mask
from torch_gckm.select.prefix import SharedFits
from torch_gckm.select.space import Setting
from torch_gckm.select.withheld import groups_to_withhold, withheld_similarity
from torch_gckm.train.metrics import (
    accuracy,
    calibrate,
    combined_score,
    cosine_score,
    effective_classes,
)

FIT_ERRORS = (GCKMError, RuntimeError)  # Linear algebra that breaks down is a RuntimeError.


def check_well_posed(model: GCKM) -> None:
    """Reject a readout with some leverage outside (0, 1)."""
    leverage = model.readout.leverage()
    if not bool(((leverage > 0) & (leverage < 1)).all()):
        extremes = float(leverage.min()), float(leverage.max())
        raise IllPosedError(f"ill-posed: leverages from {extremes[0]:.3g} to {extremes[1]:.3g}")


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
    setting: Setting
    measures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    error: str | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the setting was fitted and is well-posed."""
        return self.error is None


class Evaluator:
    """Fits settings to one graph and measures them.

    Args:
        fits: The shared fits to the graph.
        data: The same graph with the labels to use.
        split: The column to use of masks ``[n, splits]``.
    """

    def __init__(self, fits: SharedFits, data: Data, split: int | None = None) -> None:
        self.fits, self.data, self.split = fits, data, split
        count = data.num_nodes
        labels = parse_labels(data.y, data.get("train_mask"), count, fits.num_classes, split, warn=False)
        self.labelled = (labels.classes >= 0).nonzero().squeeze(1)
        self.classes = labels.classes[self.labelled]
        self.unlabelled = labels.classes < 0
        self.groups = groups_to_withhold(self.classes)
        val = data.get("val_mask")
        known = data.y.view(-1) >= 0
        self.val = torch.zeros_like(known) if val is None else (pick_mask(val, count, split, "val_mask") > 0) & known

    @classmethod
    def of(
        cls, data: Data, num_classes: int | None, gram: GramLike, split: int | None, max_bytes: float = 1e9
    ) -> Evaluator:
        """For a graph with labels; there is one class more than the largest label unless a number is given."""
        if data.y is None:
            raise InvalidInputError("the data object has no labels 'y'; use -1 for unlabelled nodes")
        classes = int(data.y.max()) + 1 if num_classes is None else num_classes
        return cls(SharedFits(data, classes, gram, max_bytes), data, split)

    def __call__(self, number: int, setting: Setting) -> Trial:
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
    def solve(self, setting: Setting, *, own_layers: bool = False) -> GCKM:
        """The fitted model of a setting; with layers of its own it may be trained further."""
        model = self.fits.fit(setting)
        if own_layers:
            model = copy.deepcopy(model)
            for conv in model.layers:
                conv.requires_grad_(True)
        model.solve(self.data, split=self.split)
        return model

    @torch.no_grad()
    def _measure(self, trial: Trial, model: GCKM) -> None:
        readout = model.readout
        check_well_posed(model)
        left_out = class_similarity(readout.leave_one_out(), readout.codes)
        predicted = decode(readout.scores, readout.codes)
        every = torch.ones(self.classes.numel(), dtype=torch.bool)
        trial.measures = {
            "leave_one_out": accuracy(left_out.argmax(dim=1), self.classes, every),
            "leave_one_out_loss": -calibrate(left_out, self.classes)[1],
            "cosine": cosine_score(readout.scores, readout.codes, self.unlabelled),
            "effective_classes": effective_classes(predicted),
            "val_acc": accuracy(predicted, self.data.y.view(-1), self.val),
            **self._per_class(model),
        }
        rest = self.unlabelled & ~self.val
        if bool(self.val.any()):
            cosine = cosine_score(readout.scores, readout.codes, rest)
            counts = int(self.val.sum()), int(rest.sum())
            trial.measures["combined"] = combined_score(trial.measures["val_acc"], counts[0], cosine, counts[1])

    def _per_class(self, model: GCKM) -> dict[str, float]:
        """Criteria from withholding one label of every class at a time."""
        if self.groups.size(1) == 0:
            return {"per_class_out": math.nan, "per_class_out_loss": math.nan}
        similarity = withheld_similarity(model.readout, self.groups)
        classes = self.classes[self.groups].flatten()
        every = torch.ones(classes.numel(), dtype=torch.bool)
        return {
            "per_class_out": accuracy(similarity.argmax(dim=1), classes, every),
            "per_class_out_loss": -calibrate(similarity, classes)[1],
        }
