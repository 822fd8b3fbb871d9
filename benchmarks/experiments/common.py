"""What the experiments share."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from paper_numbers import Column
from store import Row, Task
from tables import Rows, by_dataset, newest
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import GCKM, Trainer
from torch_gckm.datasets import load
from torch_gckm.select import SearchResult, Space, search

T = TypeVar("T")
CITATIONS = ("cora", "citeseer", "pubmed")
WIKIPEDIA = ("chameleon", "squirrel")
DATASETS = (*CITATIONS, *WIKIPEDIA)
__all__ = ["Row", "Rows", "Task"]


@dataclass
class Options:
    """What the command line says.

    Attributes:
        datasets: The graphs.
        methods: The methods; none for all.
        seeds: How many seeds, splits or draws; ``None`` for as many as the experiment has by default.
        budget: Seconds of a search.
        root: The folder of the datasets.
        quick: Whether to cut everything short.
        labels: Labels per class; none for those of the experiment.
        first_seed: The first seed; ``None`` for that of the experiment.
    """

    datasets: list[str]
    methods: list[str] = field(default_factory=list)
    seeds: int | None = None
    budget: float = 60.0
    root: str | None = None
    quick: bool = False
    labels: list[int] = field(default_factory=list)
    first_seed: int | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Options:
        return cls(
            args.datasets, args.methods or [], args.seeds, args.budget, args.root, args.quick, args.labels or [],
            args.first_seed,
        )  # fmt: skip

    def chosen(self, methods: tuple[str, ...], default: tuple[str, ...] | None = None) -> list[str]:
        """The methods to run of those there are; by default all, or the ``default`` ones."""
        unknown = set(self.methods) - set(methods)
        if unknown:
            raise SystemExit(f"unknown methods {', '.join(sorted(unknown))}; choose from {', '.join(methods)}")
        wanted = self.methods or (methods if default is None else default)
        return [method for method in methods if method in wanted]


class Experiment:
    """Tasks, how to do one, and what the page of results says of their rows.

    The first line of the class's description is the question that it answers.

    Args:
        options: What the command line says.
    """

    name: ClassVar[str]
    takes: ClassVar[str]  # About how long, on one core.
    default_datasets: ClassVar[tuple[str, ...]] = DATASETS
    default_seeds: ClassVar[int] = 3
    default_first_seed: ClassVar[int] = 0
    default_labels: ClassVar[tuple[int, ...]] = ()
    quick_labels: ClassVar[tuple[int, ...]] = (5,)
    text: ClassVar[str] = ""  # Of the page of results, with a place for the table and for each of the facts.
    keys: ClassVar[tuple[str, ...]] = ("dataset", "method")  # What tells cells of the table apart.
    printed: ClassVar[dict[str, Column]] = {}  # The paper's numbers.

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def seeds(self) -> range:
        """The seeds, splits or draws to run."""
        return self.some_seeds(self.default_seeds)

    def some_seeds(self, count: int) -> range:
        """The seeds to run where there are by default so many."""
        given = self.options.seeds
        first = self.default_first_seed if self.options.first_seed is None else self.options.first_seed
        return range(first, first + (count if given is None else given))

    @property
    def labels(self) -> list[int]:
        """The numbers of labels per class."""
        return self.options.labels or list(self.quick_labels if self.options.quick else self.default_labels)

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

    @classmethod
    def table(cls, rows: Rows) -> str:
        """A Markdown table of rows."""
        return by_dataset(rows, cls.printed)

    @classmethod
    def page_table(cls, rows: Rows) -> str:
        """The table of the page of results, if it is a shorter one."""
        return cls.table(rows)

    @classmethod
    def facts(cls, rows: Rows) -> dict[str, Any]:
        """What the text says beside the table, computed from the rows."""
        return {}

    @classmethod
    def draw(cls, rows: Rows, folder: Path) -> None:
        """Write the experiment's pictures, if it has any."""

    @classmethod
    def shown(cls, rows: Rows) -> Rows:
        """The rows to show: of one cell, those of one version."""
        return newest(rows, cls.keys)

    def load(self, name: str, split: Any = None, transform: Any = None, undirected: bool = True) -> Data:
        return load(name, self.options.root, split=split, transform=transform, undirected=undirected)


def isolated(function: Callable[..., T], *arguments: Any) -> T:
    """What a function of a module returns, called in a process of its own, so that its peak memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return pool.apply(function, arguments)


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
