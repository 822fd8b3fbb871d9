import numpy as np
import torch

from torch_gckm.plot.embedding import plane
from torch_gckm.report import layout
from torch_gckm.report.layout import arrange


def clusters(count):
    generator = torch.Generator().manual_seed(0)
    group = torch.arange(count) % 5
    return 6 * torch.eye(5, 12)[group] + torch.randn(count, 12, generator=generator), group.numpy()


def test_neighbours_of_many_nodes_stay_neighbours(monkeypatch):
    monkeypatch.setattr(layout, "_LANDMARKS", 150)
    h, group = clusters(900)
    points = arrange(h)
    assert points.shape == (900, 2)
    assert np.isfinite(points).all()
    distance = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    assert (group[distance.argmin(axis=1)] == group).mean() > 0.97
    np.testing.assert_array_equal(points, arrange(h))


def test_few_nodes_and_main_directions():
    h, _ = clusters(700)
    np.testing.assert_allclose(arrange(h, "pca"), plane(h, "pca"))
    np.testing.assert_allclose(arrange(h[:60]), plane(h[:60], steps=500))


def test_equal_nodes():
    h = torch.ones(700, 3)
    assert np.isfinite(arrange(h)).all()
