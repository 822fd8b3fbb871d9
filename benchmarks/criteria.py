"""The experiment behind ``criterion="auto"``: how well criteria that see no test label find good settings.

    python benchmarks/criteria.py --root DATA       # a table, and JSON in out/

The same random settings are fitted to random splits with 1, 2, 4, 10 and 20 labels per class. For every
split each criterion ranks all settings; what counts is the test accuracy of the one it puts first, that
of the ensemble of its best, and its rank correlation with the test accuracy. A second table is about the
number of the default's best settings that an ensemble combines (here without self-training). Splits have
seeds from 1000: their training labels are not those of another benchmark, though the graphs are the same.
"""

import argparse
import json
import math
import multiprocessing
import platform
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments.common import seen_by
from scipy.stats import spearmanr
from torch import Tensor
from torch_geometric.data import Data
from tqdm import tqdm

from torch_gckm import GCKM, __version__
from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.readout import class_similarity
from torch_gckm.select import Space
from torch_gckm.select.criteria import Ranking
from torch_gckm.select.result import MEMBERS, choose_members
from torch_gckm.select.search import ROUGH
from torch_gckm.select.trial import Evaluator, PreparedGraphs, SharedFits, Trial, quiet
from torch_gckm.train.labelling import Labelling

LABELS = (1, 2, 4, 10, 20)
CRITERIA = ("cosine", "leave_one_out", "per_class_out", "auto")
SIZES = (1, 5, 10, 20, 40)  # Of ensembles.
FIRST_SPLIT = 1000


class KeepingEvaluator(Evaluator):
    """Keeps the last model's class scores, divided by their spread."""

    def measure(self, trial: Trial, model: GCKM) -> None:
        super().measure(trial, model)
        scores = class_similarity(model.readout.scores, model.readout.codes)
        self.scores = (scores / scores.std()).half().numpy()


class Setup:
    """A graph and its splits."""

    def __init__(self, name: str, root: str | None, splits: int) -> None:
        self.data = load(name, root)
        self.classes = int(self.data.y.max()) + 1
        self.splits: list[tuple[int, Data]] = [
            (labels, PerClassSplit(labels, seed=FIRST_SPLIT + seed)(self.data.clone()))
            for labels in LABELS
            for seed in range(splits)
        ]

    def labels(self, split: Data) -> Labelling:
        """The training labels of a split, and no others."""
        return Labelling.of(seen_by(split, split.train_mask), self.classes)

    def fit(self, numbers: list[int]) -> list[tuple[int, Trial, Any]]:
        """For every split and setting, the trial and the class scores."""
        torch.set_num_threads(1)
        fits = SharedFits(PreparedGraphs(self.data), self.classes, ROUGH)
        evaluators = [KeepingEvaluator(fits, self.labels(split)) for _, split in self.splits]
        found = []
        with quiet():
            for number in numbers:
                setting = Space().setting(number, seed=77)
                for place, evaluator in enumerate(evaluators):
                    trial = evaluator(number, setting)
                    if trial.is_valid:
                        found.append((place, trial, evaluator.scores))
        return found


SETUP: Setup  # Processes inherit it when they are forked.


def fit(numbers: list[int]) -> list[tuple[int, Trial, Any]]:
    return SETUP.fit(numbers)


def scores_of(criterion: str, labels: Labelling, trials: list[Trial]) -> list[float]:
    if criterion == "per_class_out" and int(labels.targets.counts().max()) < 2:
        return [math.nan] * len(trials)
    return Ranking.of(criterion, labels).scores(trials)  # type: ignore[arg-type]


def judge(labels: Labelling, trials: list[Trial], scores: Tensor, data: Data) -> dict[str, dict[str, Any]]:
    test = data.test_mask
    hits = (scores.argmax(dim=2) == data.y)[:, test].double().mean(dim=1)

    def together(members: list[Trial]) -> float:
        mean = scores[[place[trial.number] for trial in members]].float().mean(dim=0)
        return 100 * float((mean.argmax(dim=1) == data.y)[test].double().mean())

    place = {trial.number: i for i, trial in enumerate(trials)}
    result: dict[str, dict[str, Any]] = {
        "best there is": {"top": 100 * float(hits.max()), "ensemble": None, "correlation": None}
    }
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
            result[criterion]["sizes"] = {size: together(choose_members(order, size)) for size in SIZES}
    return result


def run(name: str, root: str | None, splits: int, settings: int) -> list[dict[str, Any]]:
    global SETUP
    SETUP, bundle = Setup(name, root, splits), Space().readouts
    setup = SETUP
    parts = [list(range(start, min(start + bundle, settings))) for start in range(0, settings, bundle)]
    with multiprocessing.get_context("fork").Pool() as pool:
        found = [item for part in tqdm(pool.imap(fit, parts), name, len(parts)) for item in part]
    rows = []
    for place, (labels, data) in enumerate(setup.splits):
        own = [(trial, scores) for at, trial, scores in found if at == place]
        scores = torch.from_numpy(np.stack([part for _, part in own]))
        judged = judge(setup.labels(data), [trial for trial, _ in own], scores, data)
        seed = FIRST_SPLIT + place % splits
        rows += [{"dataset": name, "labels": labels, "split": seed, "criterion": c, **v} for c, v in judged.items()]
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Means over splits and datasets: accuracy of the first, of the ensemble, rank correlation."""
    lines = ["| criterion | " + " | ".join(f"{n} per class" for n in LABELS) + " |", "|---" * (len(LABELS) + 1) + "|"]
    for criterion in ("best there is", *CRITERIA):
        cells = []
        for labels in LABELS:
            part = [row for row in rows if row["criterion"] == criterion and row["labels"] == labels]
            columns = [[row[key] for row in part] for key in ("top", "ensemble", "correlation")]
            means = [
                "-" if None in c else f"{statistics.fmean(c):.{d}f}" for c, d in zip(columns, (1, 1, 2), strict=True)
            ]
            cells.append(" / ".join(means))
        lines.append(f"| {criterion} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def size_table(rows: list[dict[str, Any]]) -> str:
    """Mean accuracies of ensembles by size."""
    lines = ["| members | " + " | ".join(f"{n} per class" for n in LABELS) + " |", "|---" * (len(LABELS) + 1) + "|"]
    for size in SIZES:
        found = [[row["sizes"][size] for row in rows if row.get("sizes") and row["labels"] == n] for n in LABELS]
        lines.append(f"| {size} | " + " | ".join(f"{statistics.fmean(part):.1f}" for part in found) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--datasets", nargs="*", default=["cora", "citeseer", "pubmed", "chameleon", "squirrel"])
    parser.add_argument("--splits", type=int, default=3, help="splits for each number of labels per class")
    parser.add_argument("--settings", type=int, default=96)
    parser.add_argument("--out", type=Path, default=Path("out/criteria.json"))
    args = parser.parse_args()
    rows = [row for name in args.datasets for row in run(name, args.root, args.splits, args.settings)]
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads"
    content = {"benchmark": "criteria", "version": __version__, "torch": torch.__version__, "machine": machine}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({**content, "settings": args.settings, "results": rows}, indent=1))
    for name in args.datasets:
        print(f"\n{name}\n\n{table([row for row in rows if row['dataset'] == name])}")
    print(f"\nall\n\n{table(rows)}\n\nensembles\n\n{size_table(rows)}")


if __name__ == "__main__":
    main()
