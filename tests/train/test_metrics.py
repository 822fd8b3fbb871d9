import math

import pytest
import sklearn.metrics
import torch

from torch_gckm.train import accuracy, balanced_accuracy, combined_score, cosine_score, roc_auc
from torch_gckm.train.metrics import effective_classes


def test_cosine_score_by_hand():
    codes = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    assert cosine_score(torch.tensor([[3.0, -3.0], [-1.0, 1.0]]), codes) == pytest.approx(1.0)
    assert cosine_score(torch.tensor([[1.0, 0.0]]), codes) == pytest.approx(math.sqrt(0.5))
    half = torch.tensor([True, False])
    assert cosine_score(torch.tensor([[3.0, -3.0], [1.0, 1.0]]), codes, half) == pytest.approx(1.0)
    assert math.isnan(cosine_score(torch.zeros(2, 2), codes, torch.tensor([False, False])))
    generator = torch.Generator().manual_seed(0)
    codes, scores = 2 * torch.eye(4) - 1, torch.randn(30, 4, generator=generator)
    mean = codes.mean(dim=0)
    expected = [
        max(float(torch.nn.functional.cosine_similarity(c - mean, e - mean, dim=0)) for c in codes) for e in scores
    ]
    assert cosine_score(scores, codes) == pytest.approx(sum(expected) / 30, abs=1e-6)


def test_accuracy_and_combined_score():
    y, mask = torch.tensor([0, 1, 2]), torch.tensor([True, True, False])
    assert accuracy(torch.tensor([0, 2, 2]), y, mask) == 0.5
    assert math.isnan(accuracy(y, y, torch.zeros(3, dtype=torch.bool)))
    assert combined_score(0.5, 10, 0.9, 30) == pytest.approx(0.8)
    assert combined_score(0.5, 10, math.nan, 0) == 0.5


def test_effective_classes():
    assert effective_classes(torch.arange(9) % 3) == pytest.approx(3.0)
    assert effective_classes(torch.full((9,), 4)) == pytest.approx(1.0)
    assert 1.0 < effective_classes(torch.tensor([0] * 95 + [1] * 5)) < 1.3


@pytest.mark.parametrize("classes", [2, 4])
def test_balanced_accuracy_and_roc_auc_are_those_of_scikit_learn(classes):
    generator = torch.Generator().manual_seed(classes)
    y = torch.randint(classes, (80,), generator=generator)
    scores = (torch.randn(80, classes, generator=generator) + torch.eye(classes)[y]).mul(4).round().div(4)  # With ties.
    mask = torch.rand(80, generator=generator) < 0.7
    predicted = scores.argmax(dim=1)
    ours = balanced_accuracy(predicted, y, mask)
    assert ours == pytest.approx(sklearn.metrics.balanced_accuracy_score(y[mask], predicted[mask]))
    assert ours != accuracy(predicted, y, mask)
    p = scores.double().softmax(dim=1)
    theirs = sklearn.metrics.roc_auc_score(y[mask], p[mask][:, 1] if classes == 2 else p[mask], multi_class="ovr")
    assert roc_auc(p, y, mask) == pytest.approx(theirs)


def test_roc_auc_of_one_column_and_of_nothing():
    y = torch.tensor([0, 0, 1, 1, 1])
    assert roc_auc(torch.tensor([0.1, 0.4, 0.4, 0.8, 0.2]), y) == pytest.approx((2 + 1.5 + 1 - 0) / 6, abs=1e-9)
    assert math.isnan(roc_auc(torch.rand(5, 2), torch.ones(5, dtype=torch.long)))
    assert math.isnan(balanced_accuracy(y, y, torch.zeros(5, dtype=torch.bool)))
    assert balanced_accuracy(torch.zeros(5, dtype=torch.long), y) == 0.5  # Of one class, whatever its share.
