"""What the experiments share."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import GCKM, Trainer
from torch_gckm.datasets import load
from torch_gckm.select import SearchResult, Space, search

T = TypeVar("T")
Task = dict[str, Any]
Row = dict[str, Any]
CITATIONS = ("cora", "citeseer", "pubmed")
WIKIPEDIA = ("chameleon", "squirrel")
DATASETS = (*CITATIONS, *WIKIPEDIA)


@dataclass
class Options:
    """What the command line says.

    Attributes:
        datasets: The graphs.
        methods: The methods; none for all.
        seeds: How many seeds.
        budget: Seconds of a search.
        root: The folder of the datasets.
        quick: Whether to cut everything short.
    """

    datasets: list[str]
    methods: list[str]
    seeds: int
    budget: float
    root: str | None
    quick: bool

    @classmethod
    def of(cls, args: argparse.Namespace) -> Options:
        return cls(args.datasets, args.methods or [], args.seeds, args.budget, args.root, args.quick)

    def chosen(self, methods: tuple[str, ...]) -> list[str]:
        """The methods to run of those there are."""
        unknown = set(self.methods) - set(methods)
        if unknown:
            raise SystemExit(f"unknown methods {', '.join(sorted(unknown))}; choose from {', '.join(methods)}")
        return [method for method in methods if not self.methods or method in self.methods]


class Experiment:
    """A table: the tasks that fill it, and how to do one.

    Args:
        options: What the command line says.
    """

    name: str
    default_datasets: tuple[str, ...] = DATASETS

    def __init__(self, options: Options) -> None:
        self.options = options

    def tasks(self) -> list[Task]:
        """All tasks, as plain entries by which a finished one is known again."""
        raise NotImplementedError

    def run(self, task: Task) -> Row:
        """Do one task."""
        raise NotImplementedError

    @staticmethod
    def describe(row: Row) -> str:
        """A finished task in a few words."""
        parts = [f"{kind} " + " ".join(f"{value:.1f}" for value in found) for kind, found in row["accuracy"].items()]
        return f"{', '.join(parts)} ({row['seconds']:.0f} s)"

    def load(self, name: str, split: Any = None, transform: Any = None, undirected: bool = True) -> Data:
        return load(name, self.options.root, split=split, transform=transform, undirected=undirected)


def percent(predicted: Tensor, data: Data) -> float:
    """The accuracy on test nodes, in percent."""
    return 100 * float((predicted == data.y)[data.test_mask].double().mean())


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """What a function returns, and the seconds it took."""
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def seen_by(data: Data, train: Tensor, val: Tensor | None = None) -> Data:
    """The graph with no labels but those of some nodes, which are its training and validation nodes."""
    seen = data.clone()
    seen.y, seen.train_mask = torch.where(train if val is None else train | val, data.y, -1), train
    del seen.test_mask, seen.val_mask
    if val is not None:
        seen.val_mask = val
    return seen


def paper_space(name: str, view: bool, **changes: Any) -> Space:
    """The paper's models: two layers of one hop, its aggregation for the graph, features as they are."""
    settings: dict[str, Any] = {
        "depth": (2,),
        "normalize": (None,),
        "channels": (16, 32, 64),
        "propagations": (("sum" if name in WIKIPEDIA else "gcn", 1),),
        "powers": (0.0,),
        "view": ("rbf",) if view else (None,),
        "class_weight": (None,),
    }
    return Space(**{**settings, **changes})


def searched(seen: Data, data: Data, budget: float, seed: int, space: Space | None, criterion: Any) -> SearchResult:
    """A search that knows how many classes there are."""
    classes = int(data.y.max()) + 1
    return search(seen, space, budget, criterion, seed, num_classes=classes, progress=False)


def fit_authors(data: Data, settings: dict[str, Any], steps: int, monitor: Any = "cosine") -> Row:
    """The authors' settings, fine-tuned, with the state that the monitor keeps."""
    model = GCKM(data.num_features, out_channels=int(data.y.max()) + 1, **settings)
    history, seconds = timed(lambda: Trainer(model, steps=steps, monitor=monitor, progress=False).fit(data))
    start = 100 * history.records[0].test_acc
    found = {"step 0": [start], "kept": [100 * history.best.test_acc]}
    return {"accuracy": found, "seconds": seconds, "kept_step": history.best_step}
