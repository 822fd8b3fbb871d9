import numpy as np
import pytest
import torch

from tests.conftest import make_graph
from tests.select.helpers import quick
from torch_gckm import GCKMClassifier
from torch_gckm.errors import InvalidInputError
from torch_gckm.select import GCKMEnsemble
from torch_gckm.select.class_prior import checked_prior, offset_for

PRIOR = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)


def test_the_mean_of_probabilities_is_the_prior():
    scores = 3.0 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    offset = offset_for(scores, PRIOR)
    torch.testing.assert_close((scores.double() + offset).softmax(dim=1).mean(dim=0), PRIOR, atol=1e-6, rtol=0)
    moved = offset_for(scores + torch.tensor([1.0, -2.0, 0.0]), PRIOR)  # A constant per class changes nothing.
    expected = offset - torch.tensor([1.0, -2.0, 0.0])
    torch.testing.assert_close(moved - moved[0], expected - expected[0], atol=1e-4, rtol=0)


def test_odds_of_equal_scores_are_those_of_the_prior():
    assert torch.allclose(offset_for(torch.zeros(5, 3), PRIOR).softmax(dim=0), PRIOR, atol=1e-6)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]), ({"c": 0.2, "a": 0.5, "b": 0.3}, [0.5, 0.3, 0.2]), (None, None)],
)
def test_shares_by_order_or_name(shares, expected):
    found = checked_prior(shares, ["a", "b", "c"])
    assert found is None if expected is None else found.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([0.5, 0.5], "2 shares for 3 classes"),
        ([0.5, 0.5, 0.0], "must be positive"),
        ([0.5, 0.5, float("nan")], "must be positive"),
        ([50, 30, 20], "add up to 1, got 100"),
        ({"a": 0.5, "b": 0.3, "d": 0.2}, r"names \['a', 'b', 'd'\], but the classes are"),
    ],
)
def test_bad_shares(shares, message):
    with pytest.raises(InvalidInputError, match=message):
        checked_prior(shares, ["a", "b", "c"])


@pytest.fixture(scope="module")
def ensemble():
    return quick(make_graph()).ensemble(3, class_prior=PRIOR)


class TestEnsemble:
    def test_also_after_self_training(self, ensemble):
        torch.testing.assert_close(ensemble.predict_proba().double().mean(dim=0), PRIOR, atol=1e-4, rtol=0)
        assert torch.equal(ensemble.predict(), ensemble.predict_proba().argmax(dim=1))
        plain = quick(make_graph()).ensemble(3)
        assert not plain.offset.any()
        more = (ensemble.predict() == 0).sum() - (plain.predict() == 0).sum()
        assert more >= 0

    def test_files(self, ensemble, tmp_path):
        for name, inductive in (("a.pt", False), ("b.pt", True)):
            ensemble.save(tmp_path / name, inductive=inductive)
            loaded = GCKMEnsemble.load(tmp_path / name)
            torch.testing.assert_close(loaded.offset, ensemble.offset)
            found = loaded.predict_proba(make_graph()) if inductive else loaded.predict_proba()
            torch.testing.assert_close(found, ensemble.predict_proba(), atol=2e-2, rtol=0)


class TestClassifier:
    def test_names(self):
        data = make_graph()
        names = np.array(["x", "y", "z"])[data.y.numpy()].astype(object)
        names[6:] = -1
        options = {"search": None, "members": 2, "progress": False}
        shares = {"z": 0.2, "x": 0.5, "y": 0.3}
        fitted = GCKMClassifier(**options, class_prior=shares).fit(data.x.numpy(), names, edge_index=data.edge_index)
        assert fitted.predict_proba().mean(axis=0) == pytest.approx([0.5, 0.3, 0.2], abs=1e-3)

    def test_several_labels_have_none(self):
        data = make_graph()
        data.y = torch.stack([data.y == 0, data.y == 1], dim=1).long()
        with pytest.raises(InvalidInputError, match="several labels per node"):
            GCKMClassifier(search=None, class_prior=[0.5, 0.5], progress=False).fit(data)
