import warnings

import pytest
import torch

from tests.conftest import make_graph
from tests.select.helpers import quick
from torch_gckm import GCKMClassifier
from torch_gckm.errors import GCKMWarning
from torch_gckm.nn import ModelSettings
from torch_gckm.select.trial import Trial
from torch_gckm.select.unseen import Unseen, chance_of, parts, unseen

CLASSES = torch.arange(3).repeat_interleave(10)

# Predictions of 17 labels, of which seven are of one class: 11 are right.
UNEVEN = torch.tensor([[1] * 4 + [3, 5, 9] + [8, 8, 8, 9, 9, 2, 0, 2, 3, 9], [1] * 7 + [8, 8, 8, 3, 9, 2, 2, 2, 3, 9]])


def trials_of(scores):
    """One trial for each matrix of scores of withheld labels."""
    return [Trial(number, None, withheld=part.tolist()) for number, part in enumerate(scores)]


def best(trials):
    return sorted(trials, key=lambda trial: -trial.measures["per_class_out_loss"])[:2]


def measured(scores):
    trials = trials_of(scores)
    for trial, part in zip(trials, scores, strict=True):
        trial.measures = {"per_class_out_loss": -float(torch.nn.functional.cross_entropy(part, CLASSES))}
    return trials


def noise(count, seed=0):
    return torch.randn(count, 30, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TestUnseen:
    def test_the_best_of_many_guesses_is_a_guess(self):
        scores = noise(60)
        chosen = best(measured(scores))
        right = scores[[trial.number for trial in chosen]].mean(dim=0).argmax(dim=1) == CLASSES
        found = unseen(measured(scores), CLASSES, best)
        assert int(right.sum()) >= 14
        assert found.right < int(right.sum())
        assert found.is_near_chance
        assert found.gain < 0.5

    def test_settings_that_are_better_stay_so(self):
        scores = noise(20)
        scores[4:6] += 3.0 * torch.nn.functional.one_hot(CLASSES, 3)
        found = unseen(measured(scores), CLASSES, best)
        assert (found.count, found.chance) == (30, pytest.approx(1 / 3))
        assert found.right >= 25
        assert found.gain == pytest.approx(1.0)
        assert not found.is_near_chance

    def test_chance_is_that_of_permuted_predictions(self):
        draw = torch.Generator().manual_seed(0)
        predicted, classes = (torch.randint(high, (40,), generator=draw) for high in (2, 3))
        orders = [torch.randperm(40, generator=draw) for _ in range(4000)]
        share = sum(float((predicted[order] == classes).double().mean()) for order in orders) / 4000
        assert chance_of(predicted, classes, 5) == pytest.approx(share, abs=0.005)
        assert chance_of(torch.ones(10, dtype=torch.long), torch.tensor([1] * 7 + [0] * 3), 2) == pytest.approx(0.7)

    def test_a_frequent_class_does_not_make_good_predictions_guesses(self):
        found = Unseen(right=11, count=17, chance=chance_of(UNEVEN[0], UNEVEN[1], 10), gain=1.0)
        assert not found.is_near_chance

    def test_a_choice_without_labels_gains_nothing(self):
        assert unseen(measured(noise(20)), CLASSES, lambda trials: trials[:3]).gain == pytest.approx(1.0)

    def test_settings_without_scores(self):
        trials = measured(noise(3))
        trials[1].withheld = None
        assert unseen(trials, CLASSES, best) is None
        trials[1].error = "ill-posed"
        assert unseen(trials, CLASSES, best) is not None
        assert unseen([], CLASSES, best) is None

    def test_parts_have_labels_of_every_class(self):
        part = parts(CLASSES, seed=0)
        assert torch.bincount(3 * CLASSES + part).tolist() == [4, 3, 3] * 3
        assert torch.equal(part, parts((CLASSES + 1) % 3, seed=0))


class TestSearch:
    def test_trials_keep_scores_in_files(self, graph):
        trial = quick(graph, 3).best
        assert torch.tensor(trial.withheld).shape == (6, 3)
        assert Trial.from_dict(trial.to_dict()).withheld == trial.withheld
        assert isinstance(trial.setting, ModelSettings)

    def test_one_label_per_class_cannot_be_withheld(self, graph):
        graph.train_mask = torch.arange(60) < 3
        result = quick(graph, 3)
        assert result.best.withheld is None
        assert result.unseen() is None


class TestWarning:
    def test_words(self):
        with pytest.warns(GCKMWarning, match=r"no better than by chance \(6 of 10 right\).*little more than guesses"):
            Unseen(6, 10, 0.5, 1.0).warn(1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Unseen(9, 10, 0.5, 1.0).warn(1)

    @pytest.mark.parametrize("shuffled", [False, True])
    def test_of_a_classifier(self, shuffled):
        data = make_graph()
        data.train_mask = torch.arange(60) < 30
        if shuffled:  # Labels that have nothing to do with the graph.
            data.y = data.y[torch.randperm(60, generator=torch.Generator().manual_seed(2))]
        classifier = GCKMClassifier(search=None, members=3, progress=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GCKMWarning)
            classifier.fit(data)
        assert classifier.unseen_.is_near_chance == shuffled
        said = [str(warning.message) for warning in caught if "guesses" in str(warning.message)]
        assert len(said) == shuffled
