"""GCKM and its peers with 1 to 20 labels per class, and without validation labels.

    python benchmarks/few_labels.py --root DATA                          # everything; interrupt and repeat at will
    python benchmarks/few_labels.py --methods ssgc poisson --datasets cora --labels 1 5
    python benchmarks/few_labels.py --methods gckm_60s sgc --datasets synthetic --labels 10 --splits 3
    python benchmarks/few_labels.py --methods ablations --datasets cora photo chameleon --labels 2 5 --splits 3
    python benchmarks/few_labels_report.py --results out/few_labels.jsonl

A method sees the graph and the labels of a split, and no other labels. Its recipe is fixed, or chosen by withheld
labels of the split. What its authors left open was decided on splits with seeds from 1000 (``--first-split 1000``).
Each row of the results has the accuracy and the balanced accuracy on all other nodes, in percent, and the seconds
from the graph to predictions. Those of ``poisson_knn`` include its neighbour graph, which is made once for a dataset.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from baselines.gnn import MODELS, RECIPES, train_gnn
from baselines.grand import FEW, train_grand
from baselines.grand import RECIPES as GRAND_RECIPES
from baselines.linear import SMOOTHINGS, train_linear
from baselines.poisson import neighbour_graph, train_poisson
from baselines.propagation import propagate_labels
from experiments.common import percent, seen_by, timed
from scale import synthetic_graph
from scipy import sparse
from sklearn.metrics import recall_score
from store import run_tasks
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.estimators import GCKMClassifier
from torch_gckm.select import Space
from torch_gckm.select.space import PROPAGATIONS

DATASETS = ("cora", "citeseer", "pubmed", "photo", "cora_ml", "chameleon", "squirrel", "actor", "wisconsin")
LABELS = (1, 2, 5, 20)
TEST_NODES = 5  # A class has at least so many other nodes, or the cell is left out.
SMOOTHING_SHARE = 0.9
Method = Callable[[Data, int], Tensor]


def gckm(data: Data, seed: int, **settings: Any) -> Tensor:
    result: Tensor = GCKMClassifier(**settings, random_state=seed, progress=False).fit(data).predict()
    return result


RANDOM = Space(depth=(0, 1, 2))  # Not the default space, so there is no portfolio.
random = partial(gckm, budget=None, max_settings=48)
ABLATIONS: dict[str, Method] = {
    "gckm_without_self_training": partial(gckm, budget=None, self_training=False),
    "gckm_random": partial(random, search=RANDOM),
    "gckm_random_power_0": partial(random, search=replace(RANDOM, powers=(0.0,))),
    "gckm_random_few_hops": partial(random, search=replace(RANDOM, propagations=PROPAGATIONS[:6])),
    "gckm_random_with_layers": partial(random, search=replace(RANDOM, depth=(1, 2))),
}
METHODS: dict[str, Method] = {
    "gckm": partial(gckm, budget=None),  # The default's settings, however busy the machine is.
    "gckm_2s": partial(gckm, budget=2.0),
    "gckm_60s": partial(gckm, budget=60.0),
    "gckm_none": partial(gckm, search=None),
    **{name: lambda data, seed, name=name: train_linear(name, data) for name in SMOOTHINGS},
    "poisson": lambda data, seed: train_poisson(data),
    "poisson_knn": lambda data, seed: train_poisson(data, data.near),
    "label_propagation": lambda data, seed: propagate_labels(data, data.train_mask, SMOOTHING_SHARE),
    **{
        f"{model}_{recipe}": lambda data, seed, model=model, recipe=recipe: train_gnn(model, data, seed, recipe)
        for model in MODELS
        for recipe in RECIPES
    },
    "grand": lambda data, seed: train_grand(data, seed, GRAND_RECIPES.get(data.dataset, GRAND_RECIPES["cora"])),
    "grand_few": lambda data, seed: train_grand(data, seed, FEW),
    **ABLATIONS,
}
DEFAULT_METHODS = [name for name in METHODS if name != "gckm_60s" and name not in ABLATIONS]
AT_MOST = {"grand": 3, "grand_few": 3}  # Splits of methods that take long.


def tasks(args: argparse.Namespace) -> list[dict[str, Any]]:
    return [
        {"method": method, "dataset": name, "labels": labels, "split": args.first_split + split}
        for method in args.methods
        for name in args.datasets
        for labels in args.labels
        if bool((counts(name, args.root) >= labels + TEST_NODES).all())
        for split in range(min(args.splits, AT_MOST.get(method, args.splits)))
    ]


@cache
def graph_of(name: str, root: str | None) -> Data:
    if name == "synthetic":
        return synthetic_graph(300_000, 4_800_000, classes=20, features=64)
    return load(name, root)


@cache
def near(name: str, root: str | None) -> tuple[sparse.csr_array, float]:
    """The neighbour graph of a dataset, and the seconds it took."""
    return timed(lambda: neighbour_graph(graph_of(name, root)))


def counts(name: str, root: str | None) -> Tensor:
    y = graph_of(name, root).y
    return y[y >= 0].bincount()


def run(task: dict[str, Any], root: str | None) -> dict[str, Any]:
    data = PerClassSplit(task["labels"], seed=task["split"])(graph_of(task["dataset"], root).clone())
    seen, before = seen_by(data, data.train_mask), 0.0
    seen.dataset = task["dataset"]
    if task["method"] == "poisson_knn":
        seen.near, before = near(task["dataset"], root)
    predicted, seconds = timed(lambda: METHODS[task["method"]](seen, task["split"]))
    return {
        "accuracy": percent(predicted, data),
        "balanced_accuracy": balanced(predicted[data.test_mask], data.y[data.test_mask]),
        "seconds": before + seconds,
    }


def balanced(predicted: Tensor, y: Tensor) -> float:
    """The mean over classes of the share of their nodes that are found, in percent."""
    return 100 * float(recall_score(y, predicted, labels=y.unique(), average="macro", zero_division=0.0))


def describe(row: dict[str, Any]) -> str:
    return f"{row['accuracy']:.1f}, balanced {row['balanced_accuracy']:.1f} ({row['seconds']:.1f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--methods", nargs="*", default=DEFAULT_METHODS, choices=[*METHODS, "ablations"])
    parser.add_argument("--labels", nargs="*", type=int, default=list(LABELS), help="labels per class")
    parser.add_argument("--splits", type=int, default=10, help="splits of a cell; at most 3 of GRAND")
    parser.add_argument("--first-split", type=int, default=0, help="the first seed; from 1000 up for development")
    parser.add_argument("--threads", type=int, help="threads of torch (default: as torch chooses)")
    parser.add_argument("--out", type=Path, default=Path("out/few_labels.jsonl"))
    args = parser.parse_args()
    if "ablations" in args.methods:
        args.methods = [*(method for method in args.methods if method != "ablations"), *ABLATIONS]
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")
    run_tasks(tasks(args), lambda task: run(task, args.root), args.out, describe)


if __name__ == "__main__":
    main()
