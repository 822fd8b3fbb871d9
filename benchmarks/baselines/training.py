"""Train networks: with early stopping on validation nodes, or for so many epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from baselines.networks import NETWORKS, Network
from baselines.sparse import SparseMatrix, features

MAX_EPOCHS, PATIENCE = 200, 30
LARGE = 300_000  # Entries of features and graph beyond which an epoch takes a tenth of a second.


@contextmanager
def at_most(epochs: int) -> Iterator[None]:
    """Train no network for longer than that."""
    global MAX_EPOCHS
    before, MAX_EPOCHS = MAX_EPOCHS, min(MAX_EPOCHS, epochs)
    try:
        yield
    finally:
        MAX_EPOCHS = before


@dataclass(frozen=True)
class Recipe:
    """How to train a network.

    Attributes:
        lr: The learning rate of Adam.
        weight_decay: The weight decay.
        drop: The shares of features and of hidden units that are dropped.
        unit_rows: Whether the features of a node are divided by their sum.
        hidden: The number of hidden units.
        decay_last: Whether the last layer decays, too.
    """

    lr: float = 0.01
    weight_decay: float = 5e-4
    drop: tuple[float, float] = (0.5, 0.5)
    unit_rows: bool = False
    hidden: int = 64
    decay_last: bool = True

    def config(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


GRID = [
    Recipe(lr, decay, drop, unit_rows)
    for unit_rows in (False, True)
    for lr, decay, drop in ((0.01, 5e-4, (0.0, 0.5)), (0.01, 5e-4, (0.5, 0.5)), (0.05, 5e-3, (0.5, 0.5)))
]
"""The settings that every network is tuned over."""


def grid_for(data: Data) -> list[Recipe]:
    """The settings to tune over on a graph: every second one on a large graph, to keep tuning affordable."""
    return GRID[:: 2 if int((data.x.to_dense() != 0).sum()) + data.num_edges > LARGE else 1]


@dataclass
class Run:
    """A trained network.

    Attributes:
        predicted: The predicted classes of all nodes.
        probabilities: Their probabilities.
        epoch: The epoch whose weights were kept.
        val: The accuracy on validation nodes, NaN without any.
        network: The network, with the weights of the last epoch.
    """

    predicted: Tensor
    probabilities: Tensor
    epoch: int
    val: float
    network: Network


class NetworkTrainer:
    """Trains networks on one graph, whose sparse matrices it makes once.

    Args:
        data: The graph.
        build: Makes a network from the graph, channels and shares to drop; or the name of one.
    """

    def __init__(self, data: Data, build: str | Callable[..., Network]) -> None:
        self.data, self.build = data, NETWORKS[build] if isinstance(build, str) else build
        self.classes = int(data.y.max()) + 1
        self._features: dict[bool, SparseMatrix] = {}

    def train(self, recipe: Recipe, seed: int, train: Tensor, val: Tensor | None = None, epochs: int = 0) -> Run:
        """Train a network.

        Args:
            recipe: How.
            seed: The seed of weights and dropout.
            train: The training nodes, a mask.
            val: Nodes to stop early by, a mask; ``None`` to train for so many epochs.
            epochs: The number of epochs without validation nodes.
        """
        torch.manual_seed(seed)
        if recipe.unit_rows not in self._features:
            self._features[recipe.unit_rows] = features(self.data, recipe.unit_rows)
        x, y = self._features[recipe.unit_rows], self.data.y
        network = self.build(self.data, (x.shape[1], recipe.hidden, self.classes), recipe.drop)
        optimizer = _adam(network, recipe)
        best = Run(torch.empty(0), torch.empty(0), 0, -1.0, network)
        lowest, limit = float("inf"), MAX_EPOCHS if val is not None else epochs
        for epoch in range(1, limit + 1):
            network.train()
            optimizer.zero_grad()
            cross_entropy(network(x)[train], y[train]).backward()
            optimizer.step()
            if val is None:
                continue
            scores = _scores(network, x)
            hits, loss = float((scores.argmax(1) == y)[val].double().mean()), float(cross_entropy(scores[val], y[val]))
            if hits > best.val or (hits == best.val and loss < lowest):
                best = Run(scores.argmax(dim=1), scores.softmax(dim=1), epoch, hits, network)
                lowest = loss
            elif epoch - best.epoch >= PATIENCE:
                break
        if val is None:
            scores = _scores(network, x)
            best = Run(scores.argmax(dim=1), scores.softmax(dim=1), limit, float("nan"), network)
        return best


def _adam(network: Network, recipe: Recipe) -> torch.optim.Adam:
    last = [] if recipe.decay_last else list(cast(Any, network).layers[-1].parameters())
    others = [p for p in network.parameters() if p.requires_grad and not any(p is q for q in last)]
    groups = [{"params": others, "weight_decay": recipe.weight_decay}]
    if last:
        groups.append({"params": last, "weight_decay": 0.0})
    return torch.optim.Adam(groups, lr=recipe.lr)


@torch.no_grad()
def _scores(network: Network, x: SparseMatrix) -> Tensor:
    result: Tensor = network.eval()(x)
    return result
