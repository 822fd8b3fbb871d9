r"""GRAND, graph random neural networks (Feng et al., 2020), for a fixed number of epochs instead of validation labels.

Every epoch draws augmented features :math:`\bar A (m_s \odot X)`, :math:`s = 1, \ldots, S`: features of half of
all nodes are dropped, and :math:`\bar A = \frac{1}{K + 1} \sum_{k=0}^{K} \hat A^k` averages powers of the normalised
adjacency matrix. A perceptron predicts from each. The loss is the mean cross-entropy of labelled nodes, and
:math:`\lambda` times the mean square distance of all predictions of a node to their mean after sharpening with
temperature :math:`T`.

Two things differ from its authors' program, to make an epoch some twenty times as fast. Input dropout acts on features
before they are averaged, so the graph multiplies hidden units rather than features. And their batch
normalisation of features (PubMed) is a division of each by the spread it has once averaged.

The consistency loss is least if all nodes have one class. On development splits (seeds from 1000) that is what its
authors' recipes came to with few labels: with 1 or 5 per class on CiteSeer, and 1 on Cora. ``FEW`` is a recipe that
learns there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.data import Data
from torch_geometric.nn import Linear

from baselines.linear import unit_length
from baselines.sparse import SparseLinear, SparseMatrix, adjacency, features

HIDDEN, WEIGHT_DECAY, DROP_NODE = 32, 5e-4, 0.5


@dataclass(frozen=True)
class GrandRecipe:
    """How to train GRAND.

    Attributes:
        order: The highest power of the adjacency matrix.
        samples: The number of augmentations.
        consistency: The weight of the consistency loss; it rises from zero over the first ``warm_up`` epochs.
        temperature: The temperature of sharpening.
        drop: The shares of features and of hidden units that are dropped.
        lr: The learning rate of Adam.
        batch_norm: Whether features and hidden units are normalised.
        epochs: The number of epochs.
        warm_up: The number of epochs until the consistency loss has its full weight.
        unit_length: Whether feature rows have unit length; otherwise they sum to one.
    """

    order: int
    samples: int
    consistency: float
    temperature: float
    drop: tuple[float, float]
    lr: float = 0.01
    batch_norm: bool = False
    epochs: int = 200
    warm_up: int = 0
    unit_length: bool = False


RECIPES = {
    "cora": GrandRecipe(8, 4, 1.0, 0.5, (0.5, 0.5)),
    "citeseer": GrandRecipe(2, 2, 0.7, 0.3, (0.0, 0.2)),
    "pubmed": GrandRecipe(5, 4, 1.0, 0.2, (0.6, 0.8), lr=0.2, batch_norm=True),
}
"""Those of its authors, for twenty labels per class; Cora's also serves graphs that they did not treat."""
FEW = GrandRecipe(8, 2, 0.2, 0.5, (0.5, 0.5), warm_up=100, unit_length=True)
"""For fewer labels and all graphs: a weaker consistency loss that comes in slowly, and larger features."""


class Grand(torch.nn.Module):
    """A perceptron on averaged features.

    Args:
        matrix: The adjacency matrix, normalised with self-loops.
        channels: The numbers of features, hidden units and classes.
        recipe: How it is trained.
    """

    def __init__(self, matrix: SparseMatrix, channels: tuple[int, int, int], recipe: GrandRecipe) -> None:
        super().__init__()
        self.first, self.last = SparseLinear(*channels[:2], bias=False), Linear(*channels[1:])
        self.bias = torch.nn.Parameter(torch.zeros(channels[1]))
        self.norm = torch.nn.BatchNorm1d(channels[1]) if recipe.batch_norm else torch.nn.Identity()
        self.matrix, self.recipe = matrix, recipe
        for layer in (self.first, self.last):  # As wide as its authors': narrow ones let all classes become one.
            torch.nn.init.normal_(layer.weight, std=layer.weight.size(0) ** -0.5)

    def forward(self, x: SparseMatrix) -> list[Tensor]:
        """Scores of classes, one matrix for each augmentation; a single one when not training."""
        drop_in, drop_hidden = self.recipe.drop
        samples = self.recipe.samples if self.training else 1
        if self.training and drop_in > 0:
            products = [self.first(x.drop(drop_in, True)) for _ in range(samples)]
        else:
            products = [self.first(x)] * samples
        kept = [self._drop_nodes(product) for product in products]
        hidden = (average(self.matrix, torch.cat(kept, dim=1), self.recipe.order)).split(products[0].size(1), dim=1)
        active = [self.norm((part + self.bias).relu()) for part in hidden]
        return [self.last(dropout(part, drop_hidden, self.training)) for part in active]

    def _drop_nodes(self, z: Tensor) -> Tensor:
        if not self.training:
            return z * (1.0 - DROP_NODE)
        return z * (torch.rand(z.size(0), 1) >= DROP_NODE)


def average(matrix: SparseMatrix, z: Tensor, order: int) -> Tensor:
    """The mean of powers of the matrix from 0 to ``order``, times ``z``."""
    total = z
    for _ in range(order):
        z = matrix @ z
        total = total + z
    return total / (order + 1)


def consistency_loss(scores: Sequence[Tensor], temperature: float) -> Tensor:
    """The mean square distance of predictions to their sharpened mean."""
    chances = torch.stack([part.softmax(dim=1) for part in scores])
    target = (chances.mean(dim=0).clamp(min=1e-12).log() / temperature).softmax(dim=1).detach()
    return (chances - target).square().sum(dim=2).mean()


def train_grand(data: Data, seed: int, recipe: GrandRecipe) -> Tensor:
    """Predicted classes of all nodes.

    Args:
        data: The graph.
        seed: The seed of weights and of what is dropped.
        recipe: How.
    """
    torch.manual_seed(seed)
    x = unit_length(data) if recipe.unit_length else features(data, unit_rows=True)
    matrix, train = adjacency(data, "gcn"), data.train_mask
    if recipe.batch_norm:
        x = SparseMatrix(x.plain.to_dense() / spread(matrix, x, recipe.order))
    network = Grand(matrix, (x.shape[1], HIDDEN, int(data.y[train].max()) + 1), recipe)
    optimizer = torch.optim.Adam(network.parameters(), lr=recipe.lr, weight_decay=WEIGHT_DECAY)
    target = data.y[train].repeat(recipe.samples)
    for epoch in range(recipe.epochs):
        optimizer.zero_grad()
        scores = network(x)
        supervised = cross_entropy(torch.cat([part[train] for part in scores]), target)
        weight = recipe.consistency * min(1.0, (epoch + 1) / max(1, recipe.warm_up))
        (supervised + weight * consistency_loss(scores, recipe.temperature)).backward()
        optimizer.step()
    with torch.no_grad():
        return network.eval()(x)[0].argmax(dim=1)


def spread(matrix: SparseMatrix, x: SparseMatrix, order: int) -> Tensor:
    """The standard deviation of each averaged feature when nodes are dropped."""
    kept = x.plain.to_dense() * (torch.rand(x.shape[0], 1) >= DROP_NODE)
    return average(matrix, kept, order).std(dim=0).clamp(min=1e-6)
