"""Is it worth labelling the nodes that ``suggest`` names? Accuracies after labelling them, or others.

    python benchmarks/suggest.py --root DATA      # a table; rows in benchmarks/results/suggest.jsonl

An ensemble of the first four settings of the portfolio starts from one label per class at random. Five times a node per
class is asked for and labelled, and the readouts are solved again; layers do not depend on labels and are fitted once.
Ways to ask: at random; the smallest gap between the two largest probabilities (``uncertainty``); doubted nodes far from
labelled ones and each other (``doubt and distance``); the nodes nearest to centres of k-means on propagated features,
with as many centres as there will be labels (``k-means``, FeatProp); ``suggest``, the nodes whose labels settle most
(``look-ahead``). Accuracies are of all nodes that have no label.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import store
import torch
from sklearn.cluster import KMeans
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.errors import GCKMWarning
from torch_gckm.graph import Propagation
from torch_gckm.nn import GCKM
from torch_gckm.readout import Targets
from torch_gckm.select import GCKMEnsemble
from torch_gckm.select.portfolio import portfolio
from torch_gckm.select.trial import PreparedGraphs, SharedFits
from torch_gckm.select.unlabelled import embedding_of

DATASETS = ("cora", "citeseer", "pubmed", "photo")
WAYS = ("random", "uncertainty", "k-means", "doubt and distance", "look-ahead")
ROUNDS = 5
FIRST_SEED = 1000
RESULTS = Path(__file__).parent / "results" / "suggest.jsonl"


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


def run(task: dict[str, Any], root: str | None) -> dict[str, Any]:
    data, models, x = fitted(task["dataset"], root)
    count = models[0].out_channels
    mask = PerClassSplit(1, seed=task["seed"])(data).train_mask
    targets = Targets.parse(data.y, mask, data.num_nodes, count)
    every = centres(x, targets.labelled, ROUNDS * count, task["seed"]) if task["way"] == "k-means" else None
    accuracy, seconds = [], 0.0
    for number in range(ROUNDS + 1):
        ensemble, free = solved(models, targets), ~targets.is_labelled
        accuracy.append(round(100 * float((ensemble.predict() == data.y)[free].double().mean()), 3))
        if number == ROUNDS:
            break
        start = time.perf_counter()
        if every is None:
            nodes = chosen_by(task["way"], ensemble, count, 100 * task["seed"] + number)
        else:  # All centres at once would be the same in the end; their order is random.
            nodes = every[number::ROUNDS]
        seconds += time.perf_counter() - start
        free = torch.zeros_like(free).index_fill(0, nodes, True)
        targets = replace(
            targets, weight=torch.where(free, 1.0, targets.weight), classes=torch.where(free, data.y, targets.classes)
        )
    return {"accuracy": accuracy, "seconds": seconds / ROUNDS}


def table(rows: list[dict[str, Any]], rounds: int) -> str:
    """Mean accuracies after so many rounds, and the mean difference to random choice with its standard error."""
    found = {(row["dataset"], row["way"], row["seed"]): row["accuracy"][rounds] for row in rows}
    names, seeds = list(dict.fromkeys(row["dataset"] for row in rows)), sorted({row["seed"] for row in rows})
    ways = [way for way in dict.fromkeys(row["way"] for row in rows) if way != "random"]
    lines = [f"| labels asked per class: {rounds} | starts | random | " + " | ".join(ways) + " |"]
    lines.append("|---" * (3 + len(ways)) + "|")
    for name in names:
        own = [seed for seed in seeds if (name, "random", seed) in found]
        cells = [f"{statistics.mean(found[name, 'random', seed] for seed in own):.1f}"]
        for way in ways:
            gain = [found[name, way, seed] - found[name, "random", seed] for seed in own]
            error = statistics.stdev(gain) / len(gain) ** 0.5 if len(gain) > 1 else float("nan")
            mean = statistics.mean(found[name, way, seed] for seed in own)
            cells.append(f"{mean:.1f} ({statistics.mean(gain):+.1f} ± {error:.1f})")
        lines.append(f"| {name} | {len(own)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    warnings.simplefilter("ignore", GCKMWarning)
    tasks = [
        {"dataset": name, "seed": FIRST_SEED + start, "way": way}
        for name in args.datasets
        for start in range(args.starts)
        for way in args.ways
    ]
    rows = store.run_tasks(tasks, lambda task: run(task, args.root), args.out, lambda row: str(row["accuracy"]))
    for rounds in (1, 2, ROUNDS):
        print(table(rows, rounds), end="\n\n")


if __name__ == "__main__":
    main()
