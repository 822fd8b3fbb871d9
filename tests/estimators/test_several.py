import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score

from tests.conftest import make_graph
from torch_gckm import GCKMClassifier
from torch_gckm.cli import main
from torch_gckm.errors import GCKMError, InvalidInputError, InvalidLabelError
from torch_gckm.estimators import label_metrics
from torch_gckm.nn import GCKM
from torch_gckm.select.several_labels import label_probabilities, label_scales, labels_as_values

QUICK = {"search": None, "members": 3, "progress": False}
pytestmark = pytest.mark.filterwarnings("ignore::torch_gckm.errors.LowRankWarning")


def labelled(known=24):
    """Two labels that the clusters have, and one that is noise."""
    data = make_graph(90)
    noise = torch.rand(90, generator=torch.Generator().manual_seed(3)) < 0.5
    data.y = torch.stack([data.y == 0, data.y != 1, noise], dim=1).long()
    data.train_mask = torch.arange(90) < known
    data.test_mask = ~data.train_mask
    return data


@pytest.fixture(scope="module")
def fitted():
    data = labelled()
    return GCKMClassifier(**QUICK).fit(data), data


class TestClassifier:
    def test_labels_and_probabilities(self, fitted):
        classifier, data = fitted
        predicted, probability = classifier.predict(), classifier.predict_proba()
        assert predicted.shape == probability.shape == (90, 3)
        assert torch.equal(predicted, (probability > 0.5).long())
        test = data.test_mask
        right = (predicted == data.y)[test].double().mean(dim=0)
        assert (right[:2] > 0.85).all()
        sure = (probability[test] - 0.5).abs().mean(dim=0)
        assert sure[2] < sure[:2].min()
        found = classifier.score(data)
        assert found == pytest.approx((predicted == data.y).all(dim=1)[test].double().mean().item())

    def test_scores_are_those_of_single_models(self, fitted):
        classifier, data = fitted
        parts = []
        for member in classifier.model_.members:
            one = GCKM.from_settings(member.settings, 8, 3)
            values = data.clone()
            values.y = labels_as_values(data.y)
            parts.append(one.initialize(values).solve(values))
        torch.testing.assert_close(classifier.model_.predict(), torch.stack(parts).mean(dim=0), atol=1e-3, rtol=1e-3)

    def test_rows(self):
        data = labelled()
        y = np.where(data.train_mask[:, None], data.y, -1)
        classifier = GCKMClassifier(**QUICK).fit(data.x.numpy(), y)
        predicted = classifier.predict(data.x.numpy())
        assert isinstance(predicted, np.ndarray)
        assert predicted.shape == (90, 3)
        assert (predicted == data.y.numpy())[24:, :2].mean() > 0.8
        assert classifier.score(data.x.numpy(), y) >= 0.5

    def test_files(self, fitted, tmp_path):
        classifier, data = fitted
        classifier.save(tmp_path / "a.pt")
        classifier.save(tmp_path / "b.pt", inductive=True)
        assert torch.equal(GCKMClassifier.load(tmp_path / "a.pt").predict_proba(), classifier.predict_proba())
        small = GCKMClassifier.load(tmp_path / "b.pt").predict_proba(data)
        torch.testing.assert_close(small, classifier.predict_proba(), atol=2e-2, rtol=0)

    def test_a_label_that_nobody_has(self):
        data = labelled()
        data.y[:24, 1] = 0
        classifier = GCKMClassifier(**QUICK).fit(data)
        assert (classifier.predict()[:, 1] == 0).all()
        assert (classifier.predict_proba()[:, 1] < 0.1).all()

    def test_suggestions_are_refused(self, fitted):
        with pytest.raises(InvalidInputError, match="about classes"):
            fitted[0].suggest(2)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda y: y + 1, r"labels are 0, 1 and -1 \(unknown\)"),
            (lambda y: torch.cat([y[:, :1], torch.full_like(y[:, 1:], -1)], dim=1), "column 1 of the targets is known"),
            (lambda y: torch.full_like(y, -1), "every node is unknown"),
            (lambda y: y[:-1], "have the shape"),
            (lambda y: torch.ones_like(y), "nothing to learn"),
        ],
    )
    def test_bad_labels(self, change, message):
        data = labelled()
        data.y = change(data.y)
        with pytest.raises(GCKMError, match=message):
            GCKMClassifier(**QUICK).fit(data)


class TestScales:
    def test_threshold_lies_between(self):
        scores = torch.tensor([[0.1], [0.2], [0.3], [0.7], [0.8], [0.9]])
        y = (scores > 0.5).double()
        slope, intercept = label_scales(scores, y)
        assert 0.3 < float(-intercept / slope) < 0.7
        assert bool((label_probabilities(scores, label_scales(scores, y)) < 0.99).all())

    def test_threshold_moves_with_the_scores(self):
        scores = torch.linspace(0, 1, 20).unsqueeze(1)
        low, high = ((scores > at).double() for at in (0.25, 0.75))
        (a, b), (c, d) = label_scales(scores, low), label_scales(scores, high)
        assert float(-b / a) < 0.4
        assert float(-d / c) > 0.6

    def test_scale_of_the_scores_does_not_matter(self):
        generator = torch.Generator().manual_seed(0)
        scores = torch.rand(30, 2, generator=generator)
        y = (scores + 0.3 * torch.rand(30, 2, generator=generator) > 0.6).double()
        plain = label_probabilities(scores.double(), label_scales(scores, y))
        moved = label_probabilities(50.0 * scores.double() - 3.0, label_scales(50.0 * scores - 3.0, y))
        torch.testing.assert_close(plain, moved, atol=1e-3, rtol=0)

    def test_three_dimensions_are_refused(self):
        with pytest.raises(InvalidLabelError, match="matrix"):
            labels_as_values(torch.zeros(2, 2, 2))


def test_metrics():
    y = np.array([[0, 1], [1, 1], [1, 0], [0, 0], [-1, -1]])
    p = np.array([[0.2, 0.9], [0.8, 0.4], [0.6, 0.1], [0.7, 0.2], [0.9, 0.9]])
    found = label_metrics(y, p > 0.5, p)
    assert found["macro_f1"] == pytest.approx(np.mean([f1_score(y[:4, j], p[:4, j] > 0.5) for j in (0, 1)]))
    assert found["micro_f1"] == pytest.approx(f1_score(y[:4].ravel(), p[:4].ravel() > 0.5))
    expected = np.mean([average_precision_score(y[:4, j], p[:4, j]) for j in (0, 1)])
    assert found["average_precision"] == pytest.approx(expected)
    assert found["accuracy"] == 0.5
    with pytest.raises(InvalidInputError, match="none of the nodes"):
        label_metrics(-np.ones((3, 2)), p[:3] > 0.5, p[:3])


def test_what_is_about_one_class_per_node_refuses_several(fitted, tmp_path, capsys):
    classifier, _ = fitted
    for ask in (classifier.predict_set, classifier.suggest, lambda: classifier.explain_suggestions([0])):
        with pytest.raises(InvalidInputError, match="classes"):
            ask()
    classifier.save(tmp_path / "model.pt")
    assert main(["predict", str(tmp_path / "model.pt")]) == 2
    assert "several labels per node" in capsys.readouterr().err


class TestKnownInPart:
    def test_predictions_are_those_of_each_label_alone(self):
        data = labelled(40)
        partly = data.clone()
        partly.y = data.y.clone()
        partly.y[:13, 0] = -1
        partly.y[[1, 5, 9], 1:] = -1
        classifier = GCKMClassifier(**QUICK).fit(partly)
        member = classifier.model_.members[0]
        alone = data.clone()
        alone.train_mask = data.train_mask & (partly.y[:, 0] >= 0)
        alone.y = data.y[:, :1].double()
        one = GCKM.from_settings(member.settings, 8, 1)
        scores = one.initialize(alone).solve(alone)
        torch.testing.assert_close(member.readout.scores[:, :1], scores, atol=1e-4, rtol=1e-4)
        right = (classifier.predict() == data.y)[data.test_mask].double().mean(dim=0)
        assert (right[:2] > 0.85).all()

    def test_unknown_labels_do_not_count(self):
        y, p = np.array([[0, 1], [1, -1], [1, 0], [-1, -1]]), np.array([[0.2, 0.9], [0.8, 0.4], [0.3, 0.1], [0.7, 0.2]])
        found = label_metrics(y, p > 0.5, p)
        expected = [f1_score([0, 1, 1], [0, 1, 0]), f1_score([1, 0], [1, 0])]
        assert found["macro_f1"] == pytest.approx(np.mean(expected))
        assert found["micro_f1"] == pytest.approx(f1_score([0, 1, 1, 1, 0], [0, 1, 0, 1, 0]))
        assert found["accuracy"] == pytest.approx(2 / 3)
