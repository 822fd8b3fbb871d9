"""Are probabilities right? The expected calibration error on nodes without a label.

    python benchmarks/calibration.py --root DATA                              # development splits, a table
    python benchmarks/calibration.py --root DATA --first-split 0 --splits 3   # the final ones, for the rule as it is

Each row has, for several rules, in percent: the expected calibration error (``ece``: ten bins of the largest
probability, of equal width), the mean certainty, and how far it is above the accuracy (``gap``). ``before`` keeps the
factor of version 0.1, which withheld labels choose before self-training; ``now`` is what ``predict_proba`` says;
``best factor`` has the certainty that test labels ask for. All have the same predictions, by all 48 settings. On graphs
of ``PRIOR`` there is ``class prior`` as well, with the true shares of the classes, which changes predictions.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
from experiments.common import seen_by
from make_tables import table
from store import Row, Task, run_tasks
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.select import GCKMEnsemble, SearchResult, search
from torch_gckm.select.calibration import certainty_of, temperature_of
from torch_gckm.select.unlabelled import sureness
from torch_gckm.select.unseen import Unseen

DATASETS = (
    "cora", "citeseer", "pubmed", "photo", "cora_ml", "chameleon", "squirrel", "actor", "wisconsin", "minesweeper",
    "reed98",
)  # fmt: skip
PRIOR = ("minesweeper", "reed98", "wisconsin")
LABELS = (5, 20)
RULES = ("before", "now", "best factor")
TEST_NODES = 5  # A class has at least so many other nodes, or the cell is left out.
RESULTS = Path(__file__).parent / "results" / "calibration.jsonl"


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


@cache
def graph_of(name: str, root: str | None) -> Data:
    return load(name, root)


def run(task: Task, root: str | None) -> Row:
    data = PerClassSplit(task["labels"], seed=task["split"])(graph_of(task["dataset"], root).clone())
    y, rest = data.y[data.test_mask], data.test_mask
    classes = int(data.y.max()) + 1
    result = search(seen_by(data, data.train_mask), budget=None, num_classes=classes, progress=False)
    ensemble = result.ensemble(self_training=False)
    former = former_certainty(ensemble, result)
    ensemble.self_train_on(result.evaluator.labels.targets)
    rules = by_rules(former, float(ensemble.temperature), ensemble.scores()[rest], y)
    if task["dataset"] in PRIOR:
        shares = data.y[data.y >= 0].bincount(minlength=classes).double()
        informed = result.ensemble(class_prior=shares / shares.sum())
        rules["class prior"] = judged(informed.predict_proba()[rest], y)
    return {"rules": rules, **about(result.unseen())}


def describe(row: Row) -> str:
    return "  ".join(f"[{rule}] {found['ece']:.1f} ({found['gap']:+.1f})" for rule, found in row["rules"].items())


def mean_of(rows: list[Row], rule: str, name: str) -> float:
    """The mean over cells, of a cell the mean over splits."""
    cells: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if rule in row["rules"]:
            cells.setdefault((row["dataset"], row["labels"]), []).append(row["rules"][rule][name])
    return statistics.fmean(statistics.fmean(values) for values in cells.values())


def report(rows: list[Row]) -> str:
    labels = sorted({row["labels"] for row in rows})
    lines = []
    for name in [*sorted({row["dataset"] for row in rows}), "mean"]:
        line = [name]
        for count in labels:
            own = [row for row in rows if name in (row["dataset"], "mean") and row["labels"] == count]
            line += [f"{mean_of(own, rule, 'ece'):.1f}" if own else "" for rule in RULES]
        lines.append(line)
    return table(["", *(f"{rule}, {count}" for count in labels for rule in RULES)], lines)


def tasks(args: argparse.Namespace) -> list[Task]:
    splits = range(args.first_split, args.first_split + args.splits)
    cells: list[Any] = [(name, labels) for name in args.datasets for labels in args.labels]
    cells = [cell for cell in cells if bool((_counts(cell[0], args.root) >= cell[1] + TEST_NODES).all())]
    return [{"dataset": name, "labels": labels, "split": split} for split in splits for name, labels in cells]


def _counts(name: str, root: str | None) -> Tensor:
    y = graph_of(name, root).y
    return y[y >= 0].bincount()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--labels", nargs="*", type=int, default=list(LABELS), help="labels per class")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--first-split", type=int, default=1000, help="the first seed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")
    print(report(run_tasks(tasks(args), lambda task: run(task, args.root), args.out, describe)))


if __name__ == "__main__":
    main()
