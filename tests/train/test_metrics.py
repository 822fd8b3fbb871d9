import math

import pytest
import torch

from torch_gckm.train.metrics import calibrate, effective_classes, one_per_class


class TestCalibrate:
    def test_recovers_the_temperature_of_its_own_probabilities(self):
        generator = torch.Generator().manual_seed(0)
        logits = 2.0 * torch.randn(4000, 3, generator=generator)
        classes = torch.multinomial(logits.softmax(dim=1), 1, generator=generator).squeeze(1)
        factor, loss = calibrate(0.1 * logits, classes)
        assert factor == pytest.approx(10.0, rel=0.1)
        exact = torch.nn.functional.cross_entropy(logits, classes)
        assert loss == pytest.approx(float(exact), abs=0.01)

    def test_loss_is_that_of_the_smoothed_targets(self):
        scores = torch.tensor([[2.0, -1.0, 0.0], [0.5, 1.0, -3.0]])
        classes = torch.tensor([0, 1])
        factor, loss = calibrate(scores, classes)
        exact = torch.nn.functional.cross_entropy(factor * scores, classes, label_smoothing=1 / 3)
        assert loss == pytest.approx(float(exact), rel=1e-5)

    def test_scale_does_not_matter_and_confidence_stays_finite(self):
        scores, classes = torch.eye(4) * 3.0, torch.arange(4)
        factor, loss = calibrate(scores, classes)
        assert math.isfinite(factor)
        assert calibrate(100 * scores, classes)[1] == pytest.approx(loss, rel=1e-6)

    def test_nothing_to_calibrate_on(self):
        assert all(map(math.isnan, calibrate(torch.empty(0, 3), torch.empty(0, dtype=torch.long))))


def test_effective_classes():
    assert effective_classes(torch.arange(9) % 3) == pytest.approx(3.0)
    assert effective_classes(torch.full((9,), 4)) == pytest.approx(1.0)
    assert 1.0 < effective_classes(torch.tensor([0] * 95 + [1] * 5)) < 1.3


def test_groups_have_one_node_of_every_class_with_several():
    classes = torch.tensor([2, 0, 0, 1, 2, 2, 1, 4])
    groups = one_per_class(classes, 30)
    assert groups.shape == (30, 3)
    assert torch.equal(classes[groups], torch.tensor([0, 1, 2]).expand(30, 3))
    assert groups.unique().numel() == 7
    assert torch.equal(groups, one_per_class(classes, 30))
    assert one_per_class(torch.arange(3), 5).shape == (5, 0)
