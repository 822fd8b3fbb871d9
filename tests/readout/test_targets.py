import pytest
import torch
from torch_geometric.data import Data

from torch_gckm import GCKM
from torch_gckm.errors import InvalidInputError, InvalidLabelError, UnlabelledClassWarning
from torch_gckm.kernels import RBF
from torch_gckm.nn import SemiSupRKMReadout
from torch_gckm.readout import Targets, labels_of, pick_mask


def test_balanced_weights_have_the_same_sum_for_every_class():
    y = torch.tensor([0, 0, 0, 1, 2, 2, -1, 1])
    mask = torch.tensor([1.0, 1.0, 2.0, 0.5, 1.0, 1.0, 1.0, 0.0])
    labels = Targets.parse(y, mask, 8, 4).balanced()
    sums = [float(labels.weight[labels.classes == c].sum()) for c in range(3)]
    assert sums == pytest.approx([6.5 / 3] * 3)
    assert float(labels.weight[2] / labels.weight[0]) == pytest.approx(2.0)
    assert labels.weight[labels.classes < 0].tolist() == [0.0, 0.0]


def test_readout_with_balanced_classes(graph64):
    """The same as with these label weights; equal counts change nothing."""
    h, y = graph64.x, graph64.y
    mask = graph64.train_mask.clone()
    plain, balanced = (SemiSupRKMReadout(8, 3, RBF(4.0), class_weight=how).double() for how in (None, "balanced"))
    assert torch.allclose(plain(h, y, mask), balanced(h, y, mask))
    mask[9:18:3] = True  # Three more of class 0: five of it, two of either other.
    weight = torch.zeros(60, dtype=torch.float64)
    for c, count in enumerate((5, 2, 2)):
        weight[mask & (y == c)] = 3.0 / count
    assert torch.allclose(balanced(h, y, mask), plain(h, y, weight))


def test_saved_models_keep_it(graph, tmp_path):
    model = GCKM(8, 4, 3, class_weight="balanced")
    model.initialize(graph).solve(graph)
    model.save(tmp_path / "model.pt")
    assert GCKM.load(tmp_path / "model.pt").readout.class_weight == "balanced"
    with pytest.raises(InvalidInputError, match="'class_weight' must be None or 'balanced'"):
        GCKM(8, 4, 3, class_weight="even")


def test_what_a_fit_may_see():
    y = torch.tensor([0, 2, 0, -1, 2, 1])
    targets = Targets.parse(y, torch.tensor([True, True, False, True, True, False]), 6, 4)
    assert targets.num_nodes == 6
    assert targets.num_classes == 4
    assert targets.classes.tolist() == [0, 2, -1, -1, 2, -1]  # Neither hidden labels nor unknown ones.
    assert targets.weight.tolist() == [1.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    assert targets.is_labelled.tolist() == [True, True, False, False, True, False]
    assert targets.labelled.tolist() == [0, 1, 4]
    assert targets.labels.tolist() == [0, 2, 2]
    assert targets.counts().tolist() == [1, 0, 2, 0]
    moved = targets.to(torch.device("cpu"))
    assert torch.equal(moved.classes, targets.classes)


def test_all_forms_of_a_mask(graph):
    expected = Targets.parse(graph.y, graph.train_mask, 60, 3)
    hidden = torch.where(graph.train_mask, graph.y, -1)
    splits = torch.stack([~graph.train_mask, graph.train_mask], dim=1)
    for y, mask, split in (
        (graph.y, graph.train_mask.nonzero().squeeze(1), None),
        (graph.y, graph.train_mask.to(torch.uint8), None),
        (graph.y, graph.train_mask.float(), None),
        (graph.y.unsqueeze(1), graph.train_mask, None),
        (graph.y, splits, 1),
        (hidden, None, None),
    ):
        found = Targets.parse(y, mask, 60, 3, split)
        assert torch.equal(found.classes, expected.classes)
        assert torch.equal(found.weight, expected.weight)


def test_those_of_a_graph(graph):
    assert torch.equal(Targets.of(graph, 3).labelled, graph.train_mask.nonzero().squeeze(1))
    assert Targets.of(Data(x=graph.x, y=graph.y), 3).labelled.numel() == 60  # Without a mask all that are known.
    graph.train_mask = torch.stack([~graph.train_mask, graph.train_mask], dim=1)
    assert Targets.of(graph, 3, split=1).labelled.numel() == 6
    with pytest.raises(InvalidLabelError, match="holds 2 splits"):
        Targets.of(graph, 3)
    with pytest.raises(InvalidInputError, match="no labels 'y'"):
        labels_of(Data(x=graph.x))
    with pytest.raises(InvalidInputError, match="a tensor of class numbers, got a list"):
        labels_of(Data(x=graph.x, y=["a"] * 60))


def test_missing_classes_are_warned_of_where_that_is_asked_for(graph):
    Targets.of(graph, 4)
    with pytest.warns(UnlabelledClassWarning, match=r"class \[3\]"):
        Targets.of(graph, 4, warn=True)


def test_an_error_calls_a_mask_by_its_name():
    with pytest.raises(InvalidLabelError, match="'val_mask' has 5 entries for 6 nodes"):
        pick_mask(torch.ones(5, dtype=torch.bool), 6, name="val_mask")
