import copy

import pytest
import torch

from tests.conftest import make_graph
from tests.plot.conftest import new_model
from torch_gckm import GCKMClassifier, Trainer, plot
from torch_gckm.errors import IllPosedError, InvalidInputError, NotFittedError
from torch_gckm.kernels import RBF
from torch_gckm.plot.withheld import Bins, confusion_counts
from torch_gckm.readout import class_similarity
from torch_gckm.select.calibration import calibrate
from torch_gckm.select.withheld import groups_to_withhold, withheld_similarity


def test_fine_tuned_layers_are_asked_before_they_were(data, tuned):
    """Brute force: without a node's label, kernel PCA and one solve predict the same class."""
    model, history = tuned
    found = plot.withheld(model, data, history=history)
    assert found.nodes.tolist() == list(range(6))
    predicted = []
    for node in range(6):
        without = copy.copy(data)
        without.train_mask = data.train_mask.clone()
        without.train_mask[node] = False
        other = new_model()
        Trainer(other, steps=0, progress=False).fit(without)
        predicted.append(int(other.predict()[node]))
    assert found.predicted.tolist() == predicted
    # What the fine-tuned readout itself would say is about embeddings that have seen the labels.
    before = new_model()
    first = Trainer(before, steps=0, progress=False).fit(data)
    again = plot.withheld(before, data, history=first)
    torch.testing.assert_close(found.probabilities, again.probabilities, atol=1e-4, rtol=1e-3)
    assert not torch.allclose(model.readout.scores, before.readout.scores, atol=1e-3)
    assert found.accuracy == pytest.approx(first.best.leave_one_out)


def test_self_training_changes_nothing(data, ensembles):
    plain, trained = (plot.withheld(ensemble, data) for ensemble in ensembles)
    assert trained.nodes.tolist() == list(range(6))
    assert trained.predicted.tolist() == plain.predicted.tolist()
    torch.testing.assert_close(trained.probabilities, plain.probabilities, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(trained.member_scores, plain.member_scores)
    assert not torch.allclose(ensembles[0].scores(), ensembles[1].scores(), atol=1e-3)


def test_probabilities_are_those_of_the_factor_that_fits_best(data, ensembles):
    ensemble, found = ensembles[0], plot.withheld(ensembles[0], data)
    groups = groups_to_withhold(data.y[:6])
    parts = [
        withheld_similarity(m.readout.fit, m.readout.codes, groups) / s
        for m, s in zip(ensemble.members, ensemble.spread, strict=True)
    ]
    mean = torch.stack(parts).mean(dim=0)
    expected = (calibrate(mean, data.y[:6][groups].flatten())[0] * mean).softmax(dim=1)
    torch.testing.assert_close(found.probabilities, expected, atol=1e-4, rtol=1e-3)
    assert found.drawn.tolist() == groups.flatten().tolist()
    alone = [class_similarity(m.readout.leave_one_out(), m.readout.codes).argmax(dim=1) for m in ensemble.members]
    assert found.member_scores == [float((p == data.y[:6]).double().mean()) for p in alone]


def test_estimators_keep_their_graph():
    data = make_graph()
    data.y = data.y + 4
    classifier = GCKMClassifier(budget=None, max_settings=6, members=3, workers=1, progress=False).fit(data)
    found = plot.withheld(classifier)
    assert found.names == ["4", "5", "6"]
    assert found.classes.tolist() == [0, 1, 2, 0, 1, 2]


def test_an_only_label_is_not_withheld(data):
    some = copy.copy(data)
    some.train_mask = torch.arange(60) < 5  # Two labels of the first two classes, one of the third.
    model = new_model()
    history = Trainer(model, steps=0, progress=False).fit(some)
    found = plot.withheld(model, some, history=history)
    assert found.classes.tolist() == [0, 1, 0, 1]
    assert found.nodes[found.drawn].unique().tolist() == [0, 1, 3, 4]
    assert found.only_labels == 1
    some.train_mask = torch.arange(60) < 3
    Trainer(model, steps=0, progress=False).fit(some)
    with pytest.raises(InvalidInputError, match="no class has two labels"):
        plot.withheld(model, some)


def test_no_numbers_that_mean_nothing(data, monkeypatch):
    learned = new_model(kernel=RBF(learnable=True))
    Trainer(learned, steps=2, progress=False).fit(data)
    with pytest.raises(InvalidInputError, match="may have been learned"):
        plot.withheld(learned, data)
    with pytest.raises(NotFittedError):
        plot.withheld(new_model(), data)
    with pytest.raises(InvalidInputError, match="fitted on"):
        plot.withheld(learned, make_graph(seed=1))
    with pytest.raises(InvalidInputError, match="GCKMClassifier"):
        plot.withheld("model", data)
    model = new_model()
    history = Trainer(model, steps=0, progress=False).fit(data)
    monkeypatch.setattr(type(model.readout.fit), "leverage", lambda self: torch.full((6,), 1.5))
    with pytest.raises(IllPosedError):
        plot.withheld(model, data, history=history)


def test_confusion_draws_the_counts(data, ensembles):
    found = plot.withheld(ensembles[0], data, names=["ant", "a $b$ <c>", "a name that is far too long to print"])
    expected = torch.zeros(3, 3, dtype=torch.long)
    for given, predicted in zip(found.classes.tolist(), found.predicted.tolist(), strict=True):
        expected[given, predicted] += 1
    assert confusion_counts(found.classes, found.predicted, 3).equal(expected)
    ax = plot.confusion(found)
    ax.figure.canvas.draw()  # No formula, and no warning.
    drawn = {(round(t.get_position()[1] - 0.5), round(t.get_position()[0] - 0.5)): int(t.get_text()) for t in ax.texts}
    assert drawn == {(i, j): int(expected[i, j]) for i in range(3) for j in range(3) if expected[i, j]}
    assert [label.get_text() for label in ax.get_yticklabels()] == ["ant", r"a \$b\$ <c>", "a name that is far …"]
    assert f"{int(expected.trace())} of 6" in ax.get_title()


def test_bins_of_reliability():
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.rand(400, 3, generator=generator).mul(3).softmax(dim=1)
    classes, nodes = torch.randint(3, (400,), generator=generator), torch.arange(400) % 80
    bins = Bins.of(probabilities, classes, nodes)
    top, predicted = probabilities.max(dim=1)
    parts, waiting = [], torch.zeros(400, dtype=torch.bool)
    for number in range(10):
        waiting = waiting | ((top > number / 10) & (top <= (number + 1) / 10))
        if nodes[waiting].unique().numel() >= 3:  # Too few are joined to the next.
            parts.append(waiting)
            waiting = torch.zeros_like(waiting)
    parts[-1] |= waiting
    assert len(parts) == len(bins.count) > 4
    for place, inside in enumerate(parts):
        assert bins.count[place] == int(inside.sum())
        assert bins.nodes[place] == nodes[inside].unique().numel()
        assert bins.certainty[place] == pytest.approx(float(top[inside].mean()), rel=1e-5)
        assert bins.right[place] == pytest.approx(float((predicted == classes)[inside].double().mean()))
        assert bins.low[place] <= bins.right[place] <= bins.high[place]
    assert bins.count.sum() == 400
    # Wilson's interval of 8 out of 10, from its definition.
    sure = torch.tensor([[0.95, 0.05]]).repeat(10, 1)
    ten = Bins.of(sure, torch.tensor([0] * 8 + [1] * 2), torch.arange(10))
    for end in (float(ten.low[0]), float(ten.high[0])):
        assert abs(0.8 - end) == pytest.approx(1.96 * (end * (1 - end) / 10) ** 0.5)


def test_few_nodes_share_a_bin():
    probabilities = torch.tensor([[0.55, 0.45], [0.75, 0.25], [0.95, 0.05]])
    bins = Bins.of(probabilities, torch.zeros(3, dtype=torch.long), torch.arange(3))
    assert bins.count.tolist() == [3]
    assert bins.certainty[0] == pytest.approx(0.75)


def test_reliability_draws_the_bins(data, tuned):
    model, history = tuned
    found = plot.withheld(model, data, history=history)
    ax = plot.reliability(found)
    bins = Bins.of(found.probabilities, found.classes[found.drawn], found.drawn)
    drawn = torch.tensor(ax.collections[-1].get_offsets().tolist()).t()
    assert drawn[0].tolist() == pytest.approx(bins.certainty)
    assert drawn[1].tolist() == pytest.approx(bins.right)
    plain = found.uncalibrated.max(dim=1).values.mean()
    assert abs(float(plain) - float(found.probabilities.max(dim=1).values.mean())) > 0.01
    assert len(ax.get_legend().get_texts()) == 2


def test_labels_must_be_those_of_the_model(data, ensembles):
    other = copy.copy(data)
    other.train_mask = ~data.train_mask
    with pytest.raises(InvalidInputError, match="54 labels that are not the 6 that the model was given"):
        plot.withheld(ensembles[0], other)


def test_a_classifier_remembers_its_split(data):
    several = copy.copy(data)
    for name in ("train_mask", "val_mask", "test_mask"):
        several[name] = torch.stack([~data[name], data[name]], dim=1)
    fitted = GCKMClassifier(search=None).fit(several, split=1)
    assert plot.withheld(fitted).nodes.tolist() == data.train_mask.nonzero().squeeze(1).tolist()
    assert several.train_mask.dim() == 2  # What was given stays as it is.
