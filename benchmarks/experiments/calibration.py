"""Are probabilities right? The expected calibration error on nodes without a label.

    python benchmarks/run.py calibration                               # final splits, for the rule as it is
    python benchmarks/run.py calibration --first-seed 1000 --seeds 2   # development splits

Each row has, for several rules, in percent: the expected calibration error (``ece``: ten bins of the largest
probability, of equal width), the mean certainty, and how far it is above the accuracy (``gap``). ``before`` keeps the
factor of version 0.1, which withheld labels choose before self-training; ``now`` is what ``predict_proba`` says;
``best factor`` has the certainty that test labels ask for. All have the same predictions, by all 48 settings. On graphs
of ``PRIOR`` there is ``class prior`` as well, with the true shares of the classes, which changes predictions.
"""

from __future__ import annotations

import statistics
from functools import cache
from typing import Any

import torch
from tables import in_order, table, title
from torch import Tensor
from torch_geometric.data import Data

from experiments.common import Experiment, Row, Rows, Task, seen_by
from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.select import GCKMEnsemble, SearchResult, search
from torch_gckm.select.calibration import certainty_of, temperature_of
from torch_gckm.select.unlabelled import sureness
from torch_gckm.select.unseen import Unseen

PRIOR = ("minesweeper", "reed98", "wisconsin")
RULES = ("before", "now", "best factor")
TEST_NODES = 5  # A class has at least so many other nodes, or the cell is left out.
DEVELOPMENT = 1000  # Splits with seeds from here on have chosen the rule.


class Calibration(Experiment):
    """Are probabilities right on nodes without a label?"""

    name = "calibration"
    takes = "40 min"
    default_datasets = (
        "cora", "citeseer", "pubmed", "photo", "cora_ml", "chameleon", "squirrel", "actor", "wisconsin", "minesweeper",
        "reed98",
    )  # fmt: skip
    default_labels = (5, 20)
    keys = ("dataset", "labels")
    text = """\
**Probabilities.** The expected calibration error of `predict_proba` is {now} points in the mean over eleven graphs
with 5 and 20 labels per class ({best} with the factor that test labels would choose), on splits that had no part in
the choice of the rule: [calibration](selection.md#calibrated-probabilities).
"""

    def tasks(self) -> list[Task]:
        root = self.options.root
        cells: list[Any] = [(name, labels) for name in self.options.datasets for labels in self.labels]
        cells = [cell for cell in cells if bool((_counts(cell[0], root) >= cell[1] + TEST_NODES).all())]
        return [{"dataset": name, "labels": labels, "split": split} for split in self.seeds for name, labels in cells]

    def run(self, task: Task) -> Row:
        return run(task, self.options.root, 2.0 if self.options.quick else None)

    @staticmethod
    def describe(row: Row) -> str:
        return "  ".join(f"[{rule}] {found['ece']:.1f} ({found['gap']:+.1f})" for rule, found in row["rules"].items())

    @classmethod
    def table(cls, rows: Rows) -> str:
        labels = sorted({row["labels"] for row in rows})
        lines = []
        for name in [*in_order(row["dataset"] for row in rows), "mean"]:
            line = [title(name)]
            for count in labels:
                own = [row for row in rows if name in (row["dataset"], "mean") and row["labels"] == count]
                line += [f"{mean_of(own, rule, 'ece'):.1f}" if own else "" for rule in RULES]
            lines.append(line)
        return table(["", *(f"{rule}, {count}" for count in labels for rule in RULES)], lines)

    @classmethod
    def facts(cls, rows: Rows) -> dict[str, Any]:
        final = [row for row in rows if row["split"] < DEVELOPMENT and row["labels"] in cls.default_labels]
        means = {rule: mean_of(final, rule, "ece") for rule in RULES}
        return {"now": f"{means['now']:.1f}", "best": f"{means['best factor']:.1f}"}


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = 10) -> float:
    """The mean over nodes of the distance of certainty and accuracy in bins of equal width, in percent."""
    certainty, predicted = probabilities.double().max(dim=1)
    place = (bins * certainty).long().clamp(max=bins - 1)
    excess = certainty - (predicted == y).double()
    return 100 * float(torch.zeros(bins).double().index_add_(0, place, excess).abs().sum()) / y.numel()


def judged(probabilities: Tensor, y: Tensor) -> dict[str, float]:
    certainty, predicted = probabilities.double().max(dim=1)
    accuracy, mean = 100 * float((predicted == y).double().mean()), 100 * float(certainty.mean())
    found = {
        "ece": calibration_error(probabilities, y),
        "accuracy": accuracy,
        "certainty": mean,
        "gap": mean - accuracy,
    }
    return {name: round(value, 3) for name, value in found.items()}


def by_rules(former: float, factor: float, scores: Tensor, y: Tensor) -> dict[str, dict[str, float]]:
    """How rules do on nodes with scores ``[n, num_classes]``; the former one knows a certainty."""
    right = float((scores.argmax(dim=1) == y).double().mean())
    factors = (temperature_of(scores, former), factor, temperature_of(scores, right))
    return {rule: judged((own * scores).softmax(dim=1), y) for rule, own in zip(RULES, factors, strict=True)}


def former_certainty(ensemble: GCKMEnsemble, result: SearchResult) -> float:
    """The certainty of version 0.1, before self-training."""
    targets = result.evaluator.labels.targets
    rest = ~targets.is_labelled
    scores, votes = ensemble.scores()[rest], torch.stack([model.predict()[rest] for model in ensemble.members])
    withheld = ensemble._withheld(ensemble._fits_to(targets))
    return certainty_of(scores, sureness(scores, votes, *withheld, targets.partition))


def about(found: Unseen | None) -> Row:
    """What withheld labels say that did not choose the settings."""
    if found is None:
        return {}
    return {"withheld_right": found.right, "withheld": found.count, "warns": found.is_near_chance, "gain": found.gain}


def run(task: Task, root: str | None, budget: float | None) -> Row:
    data = PerClassSplit(task["labels"], seed=task["split"])(graph_of(task["dataset"], root).clone())
    y, rest = data.y[data.test_mask], data.test_mask
    classes = int(data.y.max()) + 1
    result = search(seen_by(data, data.train_mask), budget=budget, num_classes=classes, progress=False)
    ensemble = result.ensemble(self_training=False)
    former = former_certainty(ensemble, result)
    ensemble.self_train_on(result.evaluator.labels.targets)
    rules = by_rules(former, float(ensemble.temperature), ensemble.scores()[rest], y)
    if task["dataset"] in PRIOR:
        shares = data.y[data.y >= 0].bincount(minlength=classes).double()
        informed = result.ensemble(class_prior=shares / shares.sum())
        rules["class prior"] = judged(informed.predict_proba()[rest], y)
    return {"rules": rules, **about(result.unseen())}


def mean_of(rows: Rows, rule: str, name: str) -> float:
    """The mean over cells, of a cell the mean over splits."""
    cells: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if rule in row["rules"]:
            cells.setdefault((row["dataset"], row["labels"]), []).append(row["rules"][rule][name])
    return statistics.fmean(statistics.fmean(values) for values in cells.values())


@cache
def graph_of(name: str, root: str | None) -> Data:
    return load(name, root)


def _counts(name: str, root: str | None) -> Tensor:
    y = graph_of(name, root).y
    return y[y >= 0].bincount()
