import pytest
import torch

from torch_gckm.datasets import FewLabelSplit, FixedSplit, PercentageSplit, PerClassSplit


@pytest.fixture
def graph(graph):
    graph.y[:3] = -1
    return graph


def counts(data):
    return [int(data[mask].sum()) for mask in ("train_mask", "val_mask", "test_mask")]


def check(data):
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert int(masks.sum(dim=0).max()) == 1
    assert not bool(masks[:, :3].any()), "nodes without a label are in no part"


def test_so_many_a_class(graph):
    data = PerClassSplit(4, num_val=2, seed=1)(graph)
    assert counts(data) == [12, 6, 39]
    assert torch.bincount(data.y[data.train_mask]).tolist() == [4, 4, 4]
    check(data)
    other = PerClassSplit([1, 2, 3], num_test=5)(graph)
    assert torch.bincount(other.y[other.train_mask]).tolist() == [1, 2, 3]
    assert counts(other) == [6, 0, 5]


def test_seeds(graph):
    first, second, third = (PerClassSplit(4, seed=seed)(graph).train_mask for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_a_few_with_every_class_among_them(graph):
    for seed in range(20):
        data = FewLabelSplit(3, num_val=4, seed=seed)(graph)
        assert sorted(data.y[data.train_mask].tolist()) == [0, 1, 2]
        assert counts(data) == [3, 4, 50]
        check(data)


def test_shares(graph):
    data = PercentageSplit(0.1, 0.2)(graph)
    assert counts(data) == [6, 11, 40]
    check(data)


def test_given_nodes(graph):
    mask = torch.zeros(60, dtype=torch.bool)
    mask[5:10] = True
    data = FixedSplit(mask, [20, 21])(graph)
    assert counts(data) == [5, 2, 50]
    assert counts(FixedSplit([7], test=torch.tensor([8, 9]))(graph)) == [1, 0, 2]


@pytest.mark.parametrize(("split", "match"), [
    (PerClassSplit(30), "class 0 has 19 nodes; 30 are asked for"),
    (PerClassSplit([1, 2]), "2 numbers for 3 classes"),
    (PerClassSplit(1, num_test=100), "only 54 nodes are left"),
    (FewLabelSplit(2), "there are 3 classes"),
])  # fmt: skip
def test_splits_that_cannot_be(graph, split, match):
    with pytest.raises(ValueError, match=match):
        split(graph)


def test_shares_that_cannot_be():
    with pytest.raises(ValueError, match="at most 1"):
        PercentageSplit(0.7, 0.6)
