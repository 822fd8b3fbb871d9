"""Is it worth labelling the nodes that ``suggest`` names? Accuracies after labelling them, or others.

An ensemble of the first four settings of the portfolio starts from one label per class at random. Five times a node per
class is asked for and labelled, and the readouts are solved again; layers do not depend on labels and are fitted once.
Ways to ask: at random; the smallest gap between the two largest probabilities (``uncertainty``); doubted nodes far from
labelled ones and each other (``doubt and distance``); the nodes nearest to centres of k-means on propagated features,
with as many centres as there will be labels (``k-means``, FeatProp); ``suggest``, the nodes whose labels settle most
(``look-ahead``). Accuracies are of all nodes that have no label.
"""

from __future__ import annotations

import statistics
import time
import warnings
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from sklearn.cluster import KMeans
from tables import datasets_of, table, title, unique
from torch import Tensor
from torch_geometric.data import Data

from experiments.common import Experiment, Row, Rows, Task
from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.errors import GCKMWarning
from torch_gckm.graph import Propagation
from torch_gckm.nn import GCKM
from torch_gckm.readout import Targets
from torch_gckm.select import GCKMEnsemble
from torch_gckm.select.portfolio import portfolio
from torch_gckm.select.trial import PreparedGraphs, SharedFits
from torch_gckm.select.unlabelled import embedding_of

WAYS = ("random", "uncertainty", "k-means", "doubt and distance", "look-ahead")
ROUNDS = 5


class Suggest(Experiment):
    """Is it worth labelling the nodes that ``suggest`` names, rather than others?"""

    name = "suggest"
    takes = "30 min"
    default_datasets = ("cora", "citeseer", "pubmed", "photo")
    default_seeds = 10
    default_first_seed = 1000
    keys = ("dataset", "way")
    text = """\
**Which node to label next.** After labelling the nodes that `suggest` names, {rounds} times one per class, the
accuracy is {gains} points above that after random ones ({starts} starts): [prediction
sets](prediction_sets.md#which-node-to-label-next).
"""

    def tasks(self) -> list[Task]:
        ways = self.options.chosen(WAYS, ("random", "look-ahead") if self.options.quick else None)
        return [
            {"dataset": name, "seed": seed, "way": way}
            for name in self.options.datasets
            for seed in self.seeds
            for way in ways
        ]

    def run(self, task: Task) -> Row:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GCKMWarning)
            return run(task, self.options.root, 1 if self.options.quick else ROUNDS)

    @staticmethod
    def describe(row: Row) -> str:
        return str(row["accuracy"])

    @classmethod
    def table(cls, rows: Rows) -> str:
        last = min(len(row["accuracy"]) for row in rows) - 1
        return "\n".join(table_after(rows, rounds) for rounds in sorted({1, 2, last}) if rounds <= last)

    @classmethod
    def facts(cls, rows: Rows) -> dict[str, Any]:
        gains = {name: statistics.mean(gain_of(rows, name, "look-ahead", ROUNDS)) for name in datasets_of(rows)}
        return {
            "rounds": ROUNDS,
            "gains": ", ".join(f"{gain:.1f} ({title(name)})" for name, gain in gains.items()),
            "starts": len({row["seed"] for row in rows}),
        }


def gain_of(rows: Rows, name: str, way: str, rounds: int) -> list[float]:
    """How far a way is above random choice after so many rounds, for every start that both have."""
    found = {(r["way"], r["seed"]): r["accuracy"][rounds] for r in rows if r["dataset"] == name}
    seeds = sorted(seed for known, seed in found if known == "random" and (way, seed) in found)
    return [found[way, seed] - found["random", seed] for seed in seeds]


def table_after(rows: Rows, rounds: int) -> str:
    """Mean accuracies after so many rounds, and the mean difference to random choice with its standard error."""
    ways, lines = unique(row["way"] for row in rows), []
    for name in datasets_of(rows):
        line = [title(name)]
        for way in ways:
            own = [row["accuracy"][rounds] for row in rows if (row["dataset"], row["way"]) == (name, way)]
            gain = gain_of(rows, name, way, rounds)
            error = f" ± {statistics.stdev(gain) / len(gain) ** 0.5:.1f}" if len(gain) > 1 else ""
            against = "" if way == "random" or not gain else f" ({statistics.mean(gain):+.1f}{error})"
            line.append(f"{statistics.mean(own):.1f}{against}" if own else "")
        lines.append(line)
    return table([f"labels asked per class: {rounds}", *ways], lines)


@lru_cache(maxsize=1)
def fitted(name: str, root: str | None) -> tuple[Data, list[GCKM], Tensor]:
    """A graph, models with fitted layers, and its features propagated twice."""
    data = load(name, root)
    graphs = PreparedGraphs(data)
    fits = SharedFits(graphs, int(data.y.max()) + 1)
    models = []
    for settings, _ in portfolio(graphs)[:4]:
        model = fits.fit(settings)
        start = Targets.parse(data.y, None, data.num_nodes, model.out_channels)
        model.solve_on(graphs.scaled(settings.normalize), start)
        models.append(model)
    return data, models, Propagation("gcn", 2)(graphs.scaled("l2").x.to_dense(), data.edge_index)


def solved(models: list[GCKM], targets: Targets) -> GCKMEnsemble:
    for model in models:
        model.readout.solve_again(targets)
    return GCKMEnsemble(models).self_train_on(targets)


def chosen_by(way: str, ensemble: GCKMEnsemble, count: int, seed: int) -> Tensor:
    if way == "look-ahead":
        return ensemble.suggest(count)
    if way == "doubt and distance":
        return doubted_and_distant(ensemble, count)
    free = torch.ones(ensemble.scores().size(0)).index_fill(0, ensemble.labelled, torch.inf)
    if way == "uncertainty":
        top = ensemble.predict_proba().topk(2, dim=1).values
        return (free * (top[:, 0] - top[:, 1] + 1e-9)).argsort()[:count]
    return (free * torch.rand(free.numel(), generator=torch.Generator().manual_seed(seed))).argsort()[:count]


def doubted_and_distant(ensemble: GCKMEnsemble, count: int) -> Tensor:
    """Greedy: the largest product of doubt and squared distance to the nearest labelled or chosen node."""
    top = ensemble.predict_proba().topk(2, dim=1).values
    doubt = (1.0 - (top[:, 0] - top[:, 1])).index_fill(0, ensemble.labelled, -1.0)
    embeddings = [embedding_of(model) for model in ensemble.members]
    directions = torch.cat([torch.nn.functional.normalize(h - h.mean(dim=0), dim=1) for h in embeddings], dim=1)
    directions = directions.to(doubt.dtype) / len(embeddings) ** 0.5
    nearest = (1.0 - directions @ directions[ensemble.labelled].t()).amin(dim=1)
    chosen = list[int]()
    for _ in range(count):
        chosen.append(int((doubt * nearest.clamp(min=1e-6)).argmax()))
        doubt[chosen[-1]] = -1.0
        nearest = torch.minimum(nearest, 1.0 - directions @ directions[chosen[-1]])
    return torch.tensor(chosen)


def centres(x: Tensor, labelled: Tensor, count: int, seed: int) -> Tensor:
    """The nodes nearest to centres of k-means, without those that are labelled."""
    means = torch.from_numpy(KMeans(count, n_init=1, random_state=seed).fit(x.numpy()).cluster_centers_)
    distance = torch.cdist(x, means.to(x)).index_fill(0, labelled, torch.inf)
    nodes = list[int]()
    for column in distance.t():
        column[nodes] = torch.inf
        nodes.append(int(column.argmin()))
    return torch.tensor(nodes)


def run(task: Task, root: str | None, rounds: int) -> Row:
    data, models, x = fitted(task["dataset"], root)
    count = models[0].out_channels
    mask = PerClassSplit(1, seed=task["seed"])(data).train_mask
    targets = Targets.parse(data.y, mask, data.num_nodes, count)
    every = centres(x, targets.labelled, rounds * count, task["seed"]) if task["way"] == "k-means" else None
    accuracy, seconds = [], 0.0
    for number in range(rounds + 1):
        ensemble, free = solved(models, targets), ~targets.is_labelled
        accuracy.append(round(100 * float((ensemble.predict() == data.y)[free].double().mean()), 3))
        if number == rounds:
            break
        start = time.perf_counter()
        if every is None:
            nodes = chosen_by(task["way"], ensemble, count, 100 * task["seed"] + number)
        else:  # All centres at once would be the same in the end; their order is random.
            nodes = every[number::rounds]
        seconds += time.perf_counter() - start
        free = torch.zeros_like(free).index_fill(0, nodes, True)
        targets = replace(
            targets, weight=torch.where(free, 1.0, targets.weight), classes=torch.where(free, data.y, targets.classes)
        )
    return {"accuracy": accuracy, "seconds": seconds / rounds}
