import math

import pytest
import torch

from torch_gckm.select.calibration import agreement_of, calibrate, certainty_of, expected_accuracy, temperature_of


def labelled_scores(count=4000, sharpness=2.0, seed=0):
    """Scores whose softmax gives the chances of the classes."""
    generator = torch.Generator().manual_seed(seed)
    scores = sharpness * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return scores, torch.multinomial(scores.softmax(dim=1), 1, generator=generator).squeeze(1)


class TestCalibrate:
    def test_recovers_the_temperature_of_its_own_probabilities(self):
        logits, classes = labelled_scores()
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

    def test_a_node_of_weight_two_is_two_nodes(self):
        scores, classes = labelled_scores(200)
        twice = torch.arange(200) < 50
        factor = calibrate(torch.cat([scores, scores[twice]]), torch.cat([classes, classes[twice]]))[0]
        assert calibrate(scores, classes, 1.0 + twice)[0] == pytest.approx(factor, rel=0.02)  # Smoothing differs.

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
    assert certainty_of(scores, temperature_of(scores, certainty)) == pytest.approx(certainty, abs=1e-3)
    assert math.isfinite(temperature_of(scores, 0.0))
    assert math.isfinite(temperature_of(scores, 1.0))


def test_agreement_is_the_share_of_pairs():
    votes = torch.tensor([[0, 1, 2, 0], [0, 1, 1, 1], [0, 2, 0, 1]])
    assert agreement_of(votes) == pytest.approx((1 + 1 / 3 + 0 + 1 / 3) / 4)


NO_LABELS = torch.empty(0, 3, dtype=torch.float64), torch.empty(0, dtype=torch.long)


class TestExpectedAccuracy:
    scores, classes = labelled_scores()
    votes = torch.stack([scores.argmax(dim=1), scores.roll(1, dims=0).argmax(dim=1)])  # They agree by chance.

    def test_is_the_accuracy_if_there_are_many_labels(self):
        withheld, labels = labelled_scores(seed=1)
        right = float((self.scores.argmax(dim=1) == self.classes).double().mean())
        found = expected_accuracy(0.1 * self.scores, self.votes, 0.1 * withheld, labels, 3)
        assert found == pytest.approx(right, abs=0.02)
        probabilities = (temperature_of(0.1 * self.scores, found) * 0.1 * self.scores).softmax(dim=1)
        certainty, predicted = probabilities.max(dim=1)
        for low in torch.arange(4, 10) / 10:  # Also among nodes of the same certainty.
            own = (certainty >= low) & (certainty < low + 0.1)
            assert float(certainty[own].mean()) == pytest.approx(
                float((predicted == self.classes)[own].double().mean()), abs=0.06
            )

    def test_without_labels_it_is_the_squared_agreement(self):
        same = torch.stack([self.votes[0], self.votes[0], self.votes[0]])
        assert expected_accuracy(self.scores, same, *NO_LABELS, 3) == pytest.approx(1.0)
        same[2] = (same[2] + 1) % 3
        expected = 1 / 3 + 2 / 3 * 0.0  # One pair in three agrees, as by chance.
        assert expected_accuracy(self.scores, same, *NO_LABELS, 3) == pytest.approx(expected)

    def test_labels_and_agreement_are_weighed(self):
        withheld, labels = (part[:30] for part in labelled_scores(seed=1))
        same = torch.stack([self.votes[0]] * 2)
        alone = expected_accuracy(self.scores, self.votes[:1], withheld, labels, 3)
        both = expected_accuracy(self.scores, same, withheld, labels, 3)
        assert both == pytest.approx((alone + 1.0) / 2, rel=1e-6)  # 30 labels, which count as much as agreement.

    def test_less_is_expected_if_labels_chose_the_settings(self):
        withheld, labels = (part[:30] for part in labelled_scores(seed=1))
        found = [expected_accuracy(self.scores, self.votes, withheld, labels, 3, gain) for gain in (1.0, 0.5, 0.01)]
        assert found[0] > found[1] > found[2] >= 1 / 3

    def test_neither_scale_nor_numbers_of_classes_matter(self):
        withheld, labels = (part[:30] for part in labelled_scores(seed=1))
        found = expected_accuracy(self.scores, self.votes, withheld, labels, 3)
        assert expected_accuracy(7 * self.scores, self.votes, 7 * withheld, labels, 3) == pytest.approx(found, rel=1e-3)
        order = torch.tensor([2, 0, 1])
        place = order.argsort()
        renamed = expected_accuracy(self.scores[:, order], place[self.votes], withheld[:, order], place[labels], 3)
        assert renamed == pytest.approx(found, rel=1e-6)
