"""Customers of a shop, as CSV files that nobody has prepared: ``gckm fit`` alone, and peers with prepared features.

Columns have different units; there are words, true and false, dates and blanks, names of customers, and edge weights
from 0.6 to 7,000. Of 2,000 customers, 30 have a label. Every seed is another draw of the whole graph. Peers are given
standardised numbers, words one-hot, blanks filled and marked, and choose between edges that are unweighted, weighted by
logarithms or as given, and their own settings, by cross-validation on the 30 labels.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tables import table
from torch_geometric.nn import GCNConv

from experiments.common import Experiment, Row, Rows, Task

COUNT, EDGES, LABELS, SEEDS = 2_000, 9_800, 30, 5
CLASSES = np.array(["bargain hunter", "family", "loyal", "newcomer"])
REGIONS = np.array(["coast", "hills", "north", "south", "town", "valley"])
NUMBERS, WORDS = ["income", "age", "visits", "distance", "basket"], ["region", "channel"]
WEIGHTINGS = ("none", "log", "given")
METHODS = ("gckm fit", "SGC + logistic regression", "random forest", "GCN")
FOLDS = 5


class Shop:
    """A draw of all customers: a table, edges with weights, classes and which of them are known."""

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.y = y = draw.choice(len(CLASSES), size=COUNT, p=[0.35, 0.3, 0.2, 0.15])
        self.names = np.array([f"C{number:05d}" for number in draw.permutation(90_000)[:COUNT]])
        shift = draw.normal(size=(len(CLASSES), 5)) * 0.7
        noise = draw.normal(size=(COUNT, 5)) + shift[y]
        regions = draw.dirichlet(np.full(len(REGIONS), 0.8), size=len(CLASSES))
        channels = draw.dirichlet(np.full(3, 1.5), size=len(CLASSES))
        pick = [draw.choice(len(REGIONS), p=regions[kind]) for kind in y]
        days = (1200 + 500 * draw.normal(size=COUNT) - 400 * (y == 3)).clip(1).astype(int)
        table = pd.DataFrame({
            "customer": self.names,
            "income": np.exp(10.3 + 0.5 * noise[:, 0]).round(2),
            "age": (45 + 12 * noise[:, 1]).round().clip(18, 95),
            "visits": draw.poisson(np.exp(1.5 + 0.5 * noise[:, 2])),
            "distance": np.exp(1.0 + 0.8 * noise[:, 3]).round(1),
            "basket": (60 + 20 * noise[:, 4]).round(2),
            "region": REGIONS[pick],
            "channel": np.array(["app", "phone", "shop"])[[draw.choice(3, p=channels[kind]) for kind in y]],
            "newsletter": draw.random(COUNT) < np.array([0.7, 0.5, 0.6, 0.3])[y],
            "since": (np.datetime64("2024-06-30") - days).astype(str),
        })  # fmt: skip
        for name in ("income", "age", "distance", "region", "since"):
            table[name] = table[name].mask(draw.random(COUNT) < 0.05)
        self.table = table
        homophily = draw.uniform(0.55, 0.75)
        members = [np.flatnonzero(y == kind) for kind in range(len(CLASSES))]
        first = draw.integers(COUNT, size=EDGES)
        same = draw.random(EDGES) < homophily
        second = np.where(same, [draw.choice(members[y[node]]) for node in first], draw.integers(COUNT, size=EDGES))
        self.edges = np.unique(np.sort(np.stack([first, second], axis=1)[first != second], axis=1), axis=0)
        # Within a class, weights are somewhat larger in some shops.
        scale = 1.0 + draw.uniform(0.0, 0.4) * (y[self.edges[:, 0]] == y[self.edges[:, 1]])
        self.weights = (0.6 * np.exp(np.abs(draw.normal(size=len(self.edges))) * 2.0 * scale)).clip(max=7_000).round(1)
        each = [draw.choice(group, 2, replace=False) for group in members]  # Every class has two labels at least.
        rest = draw.permutation(np.setdiff1d(np.arange(COUNT), np.concatenate(each)))
        self.known = np.concatenate([*each, rest[: LABELS - 2 * len(CLASSES)]])

    def write(self, folder: Path) -> list[str]:
        """The files, and the options that name them."""
        self.table.to_csv(folder / "customers.csv", index=False)
        pairs = self.names[self.edges]
        rows = [[a, b, weight] for (a, b), weight in zip(pairs.tolist(), self.weights.tolist(), strict=True)]
        labels = [[self.names[node], CLASSES[self.y[node]]] for node in self.known]
        for name, heading, lines in (
            ("transfers.csv", ["from", "to", "amount"], rows), ("kinds.csv", ["customer", "kind"], labels),
        ):  # fmt: skip
            with (folder / name).open("w", newline="") as file:
                csv.writer(file).writerows([heading, *lines])
        files = {"features": "customers.csv", "edges": "transfers.csv", "labels": "kinds.csv"}
        return [part for option, name in files.items() for part in (f"--{option}", str(folder / name))]

    def features(self) -> Any:
        """What somebody who knows the columns would make of them."""
        table = self.table.assign(since=pd.to_datetime(self.table["since"]).astype("int64").where(
            self.table["since"].notna()) / 8.64e13)  # fmt: skip
        table["region"] = table["region"].astype(object).fillna("blank")
        numeric = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
        parts = ColumnTransformer([
            ("numbers", numeric, [*NUMBERS, "since"]),
            ("words", OneHotEncoder(sparse_output=False), WORDS),
            ("flag", "passthrough", ["newsletter"]),
        ])  # fmt: skip
        return np.asarray(parts.fit_transform(table), dtype=np.float64)

    def adjacency(self, weighting: str, normalize: str) -> scipy.sparse.csr_matrix:
        """The matrix of edges with self-loops, symmetrically normalised or by rows."""
        made = {"none": np.ones_like(self.weights), "log": np.log1p(self.weights / 0.6), "given": self.weights}
        weight, (a, b) = made[weighting], self.edges.T
        matrix = scipy.sparse.coo_matrix((weight, (a, b)), shape=(COUNT, COUNT)).tocsr()
        matrix = matrix + matrix.T
        if normalize == "rows":
            return scipy.sparse.diags_array(1 / np.maximum(np.asarray(matrix.sum(axis=1)).ravel(), 1e-12)) @ matrix
        matrix = matrix + scipy.sparse.diags_array(np.full(COUNT, np.mean(weight)))
        root = scipy.sparse.diags_array(np.asarray(matrix.sum(axis=1)).ravel() ** -0.5)
        return root @ matrix @ root


def gckm_fit(shop: Shop) -> tuple[np.ndarray, dict[str, Any]]:
    """The classes that the command line predicts with its defaults."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output = ["--predictions", str(folder / "classes.csv"), "--quiet"]
        command = [sys.executable, "-m", "torch_gckm", "fit", str(folder / "model.pt"), *shop.write(folder), *output]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        found = pd.read_csv(folder / "classes.csv")
    assert found["node"].tolist() == shop.names.tolist()
    return found["class"].to_numpy(), {"told": told.splitlines()[0]}


def best(options: Iterator[tuple[dict[str, Any], Any, Any]], shop: Shop) -> tuple[np.ndarray, dict[str, Any]]:
    """The classes by the settings, features and model that predict withheld labels best."""
    known, y = shop.known, shop.y[shop.known]
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)

    def score(features: Any, model: Any) -> float:
        return float(np.mean(cross_val_score(model, features[known], y, cv=folds)))

    tried = [(score(features, model), setting, features, model) for setting, features, model in options]
    top = max(tried, key=lambda each: each[0])
    return CLASSES[clone(top[3]).fit(top[2][known], y).predict(top[2])], top[1]


def sgc(shop: Shop) -> tuple[np.ndarray, dict[str, Any]]:
    """Logistic regression on propagated features."""

    def options() -> Iterator[tuple[dict[str, Any], Any, Any]]:
        for weighting in WEIGHTINGS:
            matrix, z = shop.adjacency(weighting, "symmetric"), shop.features()
            for hops in (1, 2, 3, 4):
                z = matrix @ z
                for c in (0.1, 1.0, 10.0, 100.0):
                    model = make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=2_000))
                    yield {"weights": weighting, "hops": hops, "C": c}, z, model

    return best(options(), shop)


def forest(shop: Shop) -> tuple[np.ndarray, dict[str, Any]]:
    """A random forest on features and those of neighbours, and theirs."""
    x = shop.features()

    def options() -> Iterator[tuple[dict[str, Any], Any, Any]]:
        for weighting in WEIGHTINGS:
            matrix = shop.adjacency(weighting, "rows")
            near, far = matrix @ x, matrix @ (matrix @ x)
            for hops, features in ((1, np.hstack([x, near])), (2, np.hstack([x, near, far]))):
                for share in ("sqrt", 0.5):
                    model = RandomForestClassifier(100, max_features=share, n_jobs=1, random_state=0)
                    yield {"weights": weighting, "hops": hops, "max_features": share}, features, model

    return best(options(), shop)


class Network(torch.nn.Module):
    """Two graph convolutions."""

    def __init__(self, channels: int, hidden: int, drop: float) -> None:
        super().__init__()
        self.first, self.second = (
            GCNConv(channels, hidden, normalize=False),
            GCNConv(hidden, len(CLASSES), normalize=False),
        )
        self.drop = drop

    def forward(self, x: torch.Tensor, edges: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.dropout(x, self.drop, self.training)
        h = self.first(x, edges, weight).relu()
        return self.second(torch.nn.functional.dropout(h, self.drop, self.training), edges, weight)


def gcn(shop: Shop) -> tuple[np.ndarray, dict[str, Any]]:
    """PyG's GCN with its usual settings; weights, decay and dropout by withheld labels, three starts averaged."""
    x, y = torch.from_numpy(shop.features()).float(), torch.from_numpy(shop.y)
    graphs = {}
    for weighting in WEIGHTINGS:
        matrix = shop.adjacency(weighting, "symmetric").tocoo()
        graphs[weighting] = (torch.from_numpy(np.stack(matrix.coords)).long(), torch.from_numpy(matrix.data).float())

    def fitted(nodes: np.ndarray, weighting: str, decay: float, drop: float, seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        network, where = Network(x.size(1), 64, drop), torch.from_numpy(nodes)
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=decay)
        for _ in range(150):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(x, *graphs[weighting])[where], y[where])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            return network.eval()(x, *graphs[weighting]).softmax(dim=1)

    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(shop.known, shop.y[shop.known]))

    def score(weighting: str, decay: float, drop: float) -> float:
        right = 0
        for kept, withheld in folds:
            found = fitted(shop.known[kept], weighting, decay, drop, 0).argmax(dim=1).numpy()[shop.known[withheld]]
            right += int((found == shop.y[shop.known[withheld]]).sum())
        return right / len(shop.known)

    tried = {(w, decay, drop): score(w, decay, drop) for w in WEIGHTINGS for decay, drop in ((5e-4, 0.5), (5e-3, 0.5))}
    weighting, decay, drop = max(tried, key=tried.__getitem__)
    mean = torch.stack([fitted(shop.known, weighting, decay, drop, seed) for seed in range(3)]).mean(dim=0)
    return CLASSES[mean.argmax(dim=1).numpy()], {"weights": weighting, "weight_decay": decay, "dropout": drop}


RUN: dict[str, Callable[[Shop], tuple[np.ndarray, dict[str, Any]]]] = dict(
    zip(METHODS, (gckm_fit, sgc, forest, gcn), strict=True)
)


class Customers(Experiment):
    """How accurate is ``gckm fit`` on CSV files that nobody has prepared, next to peers with prepared features?"""

    name = "customers"
    takes = "20 min"
    default_datasets = ("shop",)
    default_first_seed, default_seeds = 20, SEEDS
    text = """\
**Tables that nobody has prepared.** 2,000 customers as CSV files: columns with other units, words, true and false,
dates and blanks, weights of edges from 0.6 to 7,000, and 30 labels. `gckm fit` gets the files alone. Peers get
prepared features, and choose their settings and the use of weights by cross-validation on the labels. Every column is
another draw of the whole graph. Accuracy on the other customers, percent:

{table}
"""
    keys = ("seed", "method")

    def tasks(self) -> list[Task]:
        chosen = self.options.chosen(METHODS, METHODS[:1] if self.options.quick else None)
        return [{"seed": seed, "method": method} for method in chosen for seed in self.seeds]

    def run(self, task: Task) -> Row:
        """The accuracy of a method on the customers without a label."""
        shop, begin = Shop(task["seed"]), time.perf_counter()
        found, chosen = RUN[task["method"]](shop)
        hidden = np.setdiff1d(np.arange(COUNT), shop.known)
        right = float((found == CLASSES[shop.y])[hidden].mean())
        return {"accuracy": round(right, 4), "seconds": round(time.perf_counter() - begin, 1), "chosen": chosen}

    @staticmethod
    def describe(row: Row) -> str:
        return f"{100 * row['accuracy']:.1f} %"

    @classmethod
    def table(cls, rows: Rows) -> str:
        """Accuracies by method and seed, and their means."""
        seeds = sorted({row["seed"] for row in rows})
        lines = []
        for method in METHODS:
            found = {row["seed"]: 100 * row["accuracy"] for row in rows if row["method"] == method}
            if len(found) == len(seeds):
                cells = [f"{found[seed]:.1f}" for seed in seeds]
                lines.append([method, *cells, f"{np.mean(list(found.values())):.1f}"])
        return table(["", *(f"seed {seed}" for seed in seeds), "mean"], lines)
