"""How often do prediction sets hold the true class, and how large are they?

    python benchmarks/run.py coverage --methods ensemble --labels 5 --datasets cora

One model per graph with settings that no label has chosen, the same for all graphs but for the propagation. Labels are
drawn uniformly: as many as 20 per class, on the Wikipedia graphs 2.5 % of the nodes. Layers are fitted once; every draw
solves the readout again. The ensembles are those of ``GCKMClassifier()`` without a limit of time, whose members the
labels have chosen, for fewer draws; with labels drawn uniformly, and with 5 and 20 per class.
"""

from __future__ import annotations

import statistics
import time
import warnings
from functools import lru_cache
from typing import Any

import torch
from tables import table
from torch import Tensor
from torch_geometric.data import Data

from experiments.common import Experiment, Row, Rows, Task
from torch_gckm import GCKM, GCKMClassifier
from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.errors import GCKMWarning
from torch_gckm.kernels import RBF
from torch_gckm.readout import Targets, sets_of

COVERAGES = (0.8, 0.9, 0.95)
DRAWS = {"fixed": 100, "ensemble": 5}


class Coverage(Experiment):
    """How often do prediction sets hold the true class, and how large are they?"""

    name = "coverage"
    takes = "1 min; ensembles 20 min"
    default_first_seed = 1000
    default_labels = (5, 20)
    keys = ("model", "labels", "dataset")
    text = """\
**Prediction sets.** Of a model that the labels have not chosen, sets for {asked} % hold the class in {least} to
{greatest} % of the nodes of five graphs, in the mean over {draws} draws of the labels: [prediction
sets](prediction_sets.md#what-was-measured).
"""

    def tasks(self) -> list[Task]:
        options, quick = self.options, self.options.quick
        kinds = {"fixed": ["uniform"], "ensemble": ["uniform", *map(str, [] if quick else self.labels)]}
        return [
            {"model": model, "labels": labels, "dataset": name, "seed": seed}
            for model in options.chosen(tuple(DRAWS))
            for labels in kinds[model]
            for name in options.datasets
            for seed in self.some_seeds(DRAWS[model])
        ]

    def run(self, task: Task) -> Row:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GCKMWarning)
            return run(task, self.options.root, 2.0 if self.options.quick else None)

    @staticmethod
    def describe(row: Row) -> str:
        return f"held {row['held']}, size {row['size']}"

    @classmethod
    def table(cls, rows: Rows) -> str:
        """Mean coverage with its standard error, and set size, in percent and classes."""
        groups: dict[tuple[str, str, str], Rows] = {}
        for row in rows:
            groups.setdefault((row["model"], row["labels"], row["dataset"]), []).append(row)
        lines = []
        for (model, labels, name), part in groups.items():
            cells = []
            for place in range(len(COVERAGES)):
                held = [100 * row["held"][place] for row in part]
                error = statistics.stdev(held) / len(held) ** 0.5 if len(held) > 1 else float("nan")
                size = statistics.mean(row["size"][place] for row in part)
                cells.append(f"{statistics.mean(held):.1f} ± {error:.1f}, {size:.2f}")
            accuracy = 100 * statistics.mean(row["accuracy"] for row in part)
            lines.append([model, labels, name, str(len(part)), f"{accuracy:.1f}", *cells])
        return table(["model", "labels", "graph", "draws", "accuracy", *(f"{100 * c:g} %" for c in COVERAGES)], lines)

    @classmethod
    def facts(cls, rows: Rows) -> dict[str, Any]:
        fixed = [row for row in rows if row["model"] == "fixed"]
        names = {row["dataset"] for row in fixed}
        held = [statistics.mean(row["held"][1] for row in fixed if row["dataset"] == name) for name in names]
        return {
            "asked": f"{100 * COVERAGES[1]:g}",
            "least": f"{100 * min(held):.1f}",
            "greatest": f"{100 * max(held):.1f}",
            "draws": len(fixed) // len(names),
        }


@lru_cache(maxsize=1)
def fixed_model(name: str, root: str | None) -> tuple[Data, GCKM]:
    """A graph, and a model whose layers are fitted to it."""
    data = load(name, root)
    kind, hops = ("gcn", 2) if name in ("chameleon", "squirrel") else ("ssgc", 16)
    kernels = [RBF(), RBF(scale=10.0)]
    options: dict[str, Any] = {"aggregation": kind, "hops": hops, "eta": [1.0, 1.05], "normalize": "l2"}
    model = GCKM(data.num_features, 32, int(data.y.max()) + 1, kernel=kernels, **options)
    with torch.no_grad():
        model.initialize(data)
    return data, model


def uniform(data: Data, name: str, seed: int) -> Tensor:
    """Labelled nodes as a mask, drawn uniformly."""
    wikipedia = name in ("chameleon", "squirrel")
    count = round(0.025 * data.num_nodes) if wikipedia else 20 * (int(data.y.max()) + 1)
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(seed))
    return torch.zeros(data.num_nodes, dtype=torch.bool).index_fill(0, order[:count], True)


def measured(p: Tensor, y: Tensor) -> dict[str, Any]:
    """Coverages, set sizes, shares of empty sets and of those with one class, from p-values of unlabelled nodes."""
    sets = [sets_of(p, coverage) for coverage in COVERAGES]
    mean = {
        "held": [part.gather(1, y.unsqueeze(1)).double().mean() for part in sets],
        "size": [part.sum(dim=1).double().mean() for part in sets],
        "empty": [(part.sum(dim=1) == 0).double().mean() for part in sets],
        "single": [(part.sum(dim=1) == 1).double().mean() for part in sets],
    }
    return {key: [round(float(value), 5) for value in values] for key, values in mean.items()}


def run(task: Task, root: str | None, budget: float | None) -> Row:
    name, seed, start = task["dataset"], task["seed"], time.perf_counter()
    if task["model"] == "fixed":
        data, model = fixed_model(name, root)
        mask = uniform(data, name, seed)
        targets = Targets.parse(data.y, mask, data.num_nodes, model.out_channels)
        if model.is_fitted:
            model.readout.solve_again(targets)
        else:
            model.solve_on(model.prepare(data), targets)
        p, predicted = model.p_values(randomize=True, seed=10_000 + seed), model.predict()
    else:
        data = load(name, root)
        data.train_mask = uniform(data, name, seed)
        if task["labels"] != "uniform":
            data = PerClassSplit(int(task["labels"]), seed=seed)(data)
        mask, data.val_mask, data.test_mask = data.train_mask, None, None
        classifier = GCKMClassifier(budget=budget, workers=1, progress=False).fit(data)
        place = {int(number): at for at, number in enumerate(classifier.classes_)}
        p, predicted = classifier.model_.p_values(randomize=True, seed=10_000 + seed), classifier.predict()
        if len(place) < int(data.y.max()) + 1:  # Classes that were not drawn are never in a set.
            whole = p.new_zeros(p.size(0), int(data.y.max()) + 1)
            whole[:, list(place)] = p
            p = whole
    result = measured(p[~mask], data.y[~mask])
    accuracy = round(float((predicted == data.y)[~mask].double().mean()), 5)
    return {**result, "accuracy": accuracy, "num_labels": int(mask.sum()), "seconds": time.perf_counter() - start}
