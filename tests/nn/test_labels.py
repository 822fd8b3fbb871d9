import pytest
import torch

from torch_gckm import GCKM
from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels import RBF
from torch_gckm.nn import SemiSupRKMReadout
from torch_gckm.nn.labels import balance, parse_labels


def test_balanced_weights_have_the_same_sum_for_every_class():
    y = torch.tensor([0, 0, 0, 1, 2, 2, -1, 1])
    mask = torch.tensor([1.0, 1.0, 2.0, 0.5, 1.0, 1.0, 1.0, 0.0])
    labels = balance(parse_labels(y, mask, 8, 4, warn=False))
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
