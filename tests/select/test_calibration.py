import math

import pytest
import torch

from torch_gckm.select.withheld import calibrate, temperature_of


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


@pytest.mark.parametrize("certainty", [0.4, 0.7, 0.99])
def test_temperature_makes_for_the_certainty_asked_for(certainty):
    scores = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    probabilities = (temperature_of(scores, certainty) * scores).softmax(dim=1)
    assert float(probabilities.amax(dim=1).mean()) == pytest.approx(certainty, abs=1e-3)
    assert math.isfinite(temperature_of(scores, 0.0))
    assert math.isfinite(temperature_of(scores, 1.0))
