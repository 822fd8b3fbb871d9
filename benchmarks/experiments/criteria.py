"""How well criteria that see no test label find good settings, among random ones.

The same random settings are fitted to random splits with 1, 2, 4, 10 and 20 labels per class. For every
split each criterion ranks all settings; what counts is the test accuracy of the one it puts first, that
of the ensemble of its best, and its rank correlation with the test accuracy. A second table is about the
number of the default's best settings that an ensemble combines (here without self-training). Splits have
seeds from 1000: their training labels are not those of another benchmark, though the graphs are the same.
"""

from __future__ import annotations

import math
import statistics
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from tables import table
from torch import Tensor
from torch_geometric.data import Data

from experiments.common import Experiment, Row, Rows, Task, seen_by
from torch_gckm import GCKM
from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.readout import class_similarity
from torch_gckm.select import Space
from torch_gckm.select.criteria import Ranking
from torch_gckm.select.result import choose_members
from torch_gckm.select.search import ROUGH
from torch_gckm.select.trial import Evaluator, PreparedGraphs, SharedFits, Trial, quiet
from torch_gckm.train.labelling import Labelling

CRITERIA = ("cosine", "leave_one_out", "per_class_out", "auto")
BEST = "best there is"
MEMBERS = 20  # Of ensembles.
SIZES = (1, 5, 10, 20, 40)
SETTINGS, SEED = 60, 77


class Criteria(Experiment):
    """Which criterion that sees no test label finds good settings among random ones?"""

    name = "criteria"
    takes = "1 h"
    default_first_seed = 1000
    default_seeds = 2
    default_labels = (1, 2, 4, 10, 20)
    quick_labels = (4,)
    keys = ("dataset", "labels")

    def tasks(self) -> list[Task]:
        settings = 12 if self.options.quick else SETTINGS
        return [
            {"dataset": name, "labels": labels, "split": split, "settings": settings}
            for name in self.options.datasets
            for labels in self.labels
            for split in self.seeds
        ]

    def run(self, task: Task) -> Row:
        data, fits = fits_of(task["dataset"], self.options.root)
        split = PerClassSplit(task["labels"], seed=task["split"])(data.clone())
        labels = Labelling.of(seen_by(split, split.train_mask), fits.num_classes)
        evaluator, trials, scores = KeepingEvaluator(fits, labels), list[Trial](), []
        with quiet():
            for number in range(task["settings"]):
                trial = evaluator(number, Space().setting(number, SEED))
                if trial.is_valid:
                    trials.append(trial)
                    scores.append(evaluator.scores)
        return {"judged": judge(labels, trials, torch.from_numpy(np.stack(scores)), split)}

    @staticmethod
    def describe(row: Row) -> str:
        known = {name: found["top"] for name, found in row["judged"].items() if found["top"] is not None}
        return "  ".join(f"[{name}] {value:.1f}" for name, value in known.items())

    @classmethod
    def table(cls, rows: Rows) -> str:
        """Means over splits and datasets: accuracy of the first, of the ensemble, rank correlation; then sizes."""
        numbers = sorted({row["labels"] for row in rows})
        parts = [[row["judged"] for row in rows if row["labels"] == labels] for labels in numbers]
        lines = [[criterion, *(_cell([part[criterion] for part in own]) for own in parts)] for criterion in
                 (BEST, *CRITERIA)]  # fmt: skip
        header = [f"{labels} per class" for labels in numbers]
        sizes = [
            [str(size), *(f"{statistics.fmean(part['auto']['sizes'][str(size)] for part in own):.1f}" for own in parts)]
            for size in SIZES
        ]
        return table(["criterion", *header], lines) + "\n" + table(["members", *header], sizes)


def _cell(judged: list[Row]) -> str:
    columns = [[part[key] for part in judged] for key in ("top", "ensemble", "correlation")]
    means = ["-" if None in c else f"{statistics.fmean(c):.{d}f}" for c, d in zip(columns, (1, 1, 2), strict=True)]
    return " / ".join(means)


class KeepingEvaluator(Evaluator):
    """Keeps the last model's class scores, divided by their spread."""

    def measure(self, trial: Trial, model: GCKM) -> None:
        super().measure(trial, model)
        scores = class_similarity(model.readout.scores, model.readout.codes)
        self.scores = (scores / scores.std()).half().numpy()


@lru_cache(maxsize=1)
def fits_of(name: str, root: str | None) -> tuple[Data, SharedFits]:
    """A graph, and what fits models to it; layers are the same for all splits."""
    data = load(name, root)
    return data, SharedFits(PreparedGraphs(data), int(data.y.max()) + 1, ROUGH)


def scores_of(criterion: str, labels: Labelling, trials: list[Trial]) -> list[float]:
    if criterion == "per_class_out" and int(labels.targets.counts().max()) < 2:
        return [math.nan] * len(trials)
    return Ranking.of(criterion, labels).scores(trials)  # type: ignore[arg-type]


def judge(labels: Labelling, trials: list[Trial], scores: Tensor, data: Data) -> dict[str, dict[str, Any]]:
    """What every criterion finds among the settings."""
    test = data.test_mask
    hits = (scores.argmax(dim=2) == data.y)[:, test].double().mean(dim=1)

    def together(members: list[Trial]) -> float:
        mean = scores[[place[trial.number] for trial in members]].float().mean(dim=0)
        return 100 * float((mean.argmax(dim=1) == data.y)[test].double().mean())

    place = {trial.number: i for i, trial in enumerate(trials)}
    result: dict[str, dict[str, Any]] = {BEST: {"top": 100 * float(hits.max()), "ensemble": None, "correlation": None}}
    for criterion in CRITERIA:
        values = scores_of(criterion, labels, trials)
        if math.isnan(values[0]):
            result[criterion] = {"top": None, "ensemble": None, "correlation": None}
            continue
        order = sorted(trials, key=lambda trial: -values[place[trial.number]])
        correlation = spearmanr(values, hits).statistic if len(set(values)) > 1 else 0.0
        result[criterion] = {
            "top": 100 * float(hits[place[order[0].number]]),
            "ensemble": together(choose_members(order, MEMBERS)),
            "correlation": float(correlation),
        }
        if criterion == "auto":
            result[criterion]["sizes"] = {str(size): together(choose_members(order, size)) for size in SIZES}
    return result
