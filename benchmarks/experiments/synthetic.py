"""Graphs of any size, made on the spot: degree-corrected blocks with features around a centre per class."""

from __future__ import annotations

import torch
from torch_geometric.data import Data


def synthetic_graph(
    num_nodes: int,
    num_edges: int,
    classes: int = 40,
    features: int = 128,
    homophily: float = 0.65,
    seed: int = 0,
    signal: float = 0.08,
) -> Data:
    """Blocks of unequal size, degrees with a heavy tail, features around a centre per class."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand(classes, generator=generator).square() + 0.1
    y = torch.multinomial(shares, num_nodes, replacement=True, generator=generator)
    y, _ = y.sort()
    start = torch.searchsorted(y, torch.arange(classes + 1))
    # Endpoints with a heavy-tailed popularity, inside the own block or anywhere.
    popularity = (1.0 - torch.rand(num_nodes, generator=generator)).pow(-0.5).clamp(max=50.0)
    cumulative = popularity.double().cumsum(0)

    def draw(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """One node for each pair of bounds, proportionally to popularity."""
        padded = torch.cat([torch.zeros(1, dtype=torch.float64), cumulative])
        target = padded[low] + torch.rand(low.numel(), generator=generator).double() * (padded[high] - padded[low])
        return torch.searchsorted(cumulative, target).clamp(max=num_nodes - 1)

    everywhere = torch.zeros(num_edges, dtype=torch.long)
    source = draw(everywhere, everywhere + num_nodes)
    inside = torch.rand(num_edges, generator=generator) < (homophily - 1 / classes) / (1 - 1 / classes)
    low = torch.where(inside, start[y[source]], 0)
    high = torch.where(inside, start[y[source] + 1], num_nodes)
    edges = torch.stack([source, draw(low, high)])
    x = signal * torch.randn(classes, features, generator=generator)[y]
    x += torch.randn(num_nodes, features, generator=generator)
    train_mask = torch.rand(num_nodes, generator=generator) < 0.025
    order = torch.randperm(num_nodes, generator=generator)
    place = torch.argsort(order)
    edge_index = place[torch.cat([edges, edges.flip(0)], dim=1)]
    return Data(x=x[order], edge_index=edge_index, y=y[order], train_mask=train_mask, test_mask=~train_mask)


def few_labels(y: torch.Tensor, per_class: int) -> torch.Tensor:
    """A mask of the first nodes of every class, whose order is random."""
    mask = torch.zeros_like(y, dtype=torch.bool)
    for number in range(int(y.max()) + 1):
        mask[(y == number).nonzero()[:per_class, 0]] = True
    return mask
