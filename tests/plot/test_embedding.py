import importlib.util

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from torch_gckm import GCKM, Trainer, plot
from torch_gckm.errors import InvalidInputError
from torch_gckm.plot.common import COLOURS, look_of
from torch_gckm.plot.embedding import nodes_to_draw, plane


def without(monkeypatch, *missing):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in missing else find(name, *a))


def test_main_directions_of_an_embedding():
    h = torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * torch.arange(1, 6)
    points = plane(h, "pca")
    u, s, _ = torch.linalg.svd(h - h.mean(dim=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(points), (u * s)[:, :2].abs().numpy(), atol=1e-8)
    assert plane(h[:, :1], "pca").shape == (30, 2)
    with pytest.raises(InvalidInputError, match="umap"):
        plane(h, "umap")


def test_the_same_picture_every_time(start):
    first, second = (plane(start.embed(), "tsne") for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.shape == (60, 2)


def test_points_and_stars(data, start):
    ax = plot.embedding(start, method="pca", names=["ant", "a $b$", "c"])
    ax.figure.canvas.draw()
    points = plane(start.embed(), "pca")
    for number in range(3):
        drawn = ax.collections[number].get_offsets()
        np.testing.assert_allclose(drawn, points[(start.predict() == number).numpy()])
    stars = ax.collections[3]
    np.testing.assert_allclose(stars.get_offsets(), points[data.train_mask.numpy()])
    colours = [tuple(colour) for colour in stars.get_facecolors()]
    assert len(set(colours)) == 3
    assert colours[:3] == colours[3:]  # The labels are 0, 1, 2, 0, 1, 2.
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["label given", "ant", r"a \$b\$", "c"]


def test_large_graphs_are_thinned_out(start):
    labelled = torch.tensor([3, 50, 59])
    nodes = nodes_to_draw(60, labelled, 20)
    assert nodes.numel() == nodes.unique().numel() == 20
    assert torch.isin(labelled, nodes).all()
    assert nodes.equal(nodes_to_draw(60, labelled, 20))
    ax = plot.embedding(start, max_nodes=20, method="pca")
    assert ax.get_title() == "20 of 60 nodes, drawn at random"
    assert sum(len(part.get_offsets()) for part in ax.collections[:3]) == 20
    assert len(ax.collections[3].get_offsets()) == 6


def test_stars_of_ensembles_are_given_labels(ensembles):
    ax = plot.embedding(ensembles[1], method="pca")
    assert len(ax.collections[3].get_offsets()) == 6
    with pytest.raises(InvalidInputError, match="3 classes, but 2 names"):
        plot.embedding(ensembles[1], names=["a", "b"])


def test_many_classes_differ_in_colour_or_marker():
    looks = {tuple(look_of(number).values()) for number in range(40)}
    assert len(looks) == 40
    assert len(set(COLOURS)) == len(COLOURS)


def test_extras_are_named(monkeypatch, tuned, start):
    without(monkeypatch, "matplotlib")
    with pytest.raises(ImportError, match=r"torch_gckm\[plot\]"):
        plot.training(tuned[1])
    without(monkeypatch, "sklearn")
    np.testing.assert_array_equal(plane(start.embed()), plane(start.embed(), "pca"))


def test_one_column_and_no_edges():
    model = GCKM(2, 1, 2)
    x = torch.tensor([[0.0, 0.1], [0.2, 0.0], [3.0, 3.1], [3.2, 3.0]])
    data = Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long), y=torch.tensor([0, -1, 1, -1]))
    Trainer(model, steps=0, progress=False).fit(data)
    assert len(plot.embedding(model).collections) == 3
    assert len(plot.eigenvalues(model).lines) == 1
