import math

import pytest
import torch

from tests.select.helpers import SMALL
from torch_gckm.errors import InvalidInputError
from torch_gckm.select.criteria import Ranking
from torch_gckm.select.trial import Trial


def trial(number, **measures):
    names = ("leave_one_out", "leave_one_out_loss", "per_class_out", "per_class_out_loss", "cosine")
    measures = {**dict.fromkeys(names, 0.5), "val_acc": math.nan, "effective_classes": 2.5, **measures}
    return Trial(number, SMALL.setting(number, seed=0), measures)


class TestRanking:
    classes = torch.arange(3).repeat(4)

    def test_a_collapsed_model_never_wins(self):
        good = [trial(i, cosine=0.6 + 0.01 * i, per_class_out_loss=-1.0) for i in range(9)]
        collapsed = trial(9, cosine=0.99, per_class_out_loss=-0.9, effective_classes=1.05)
        for classes in (self.classes, torch.arange(3)):
            ranking = Ranking("auto", classes, 0, 100)
            assert ranking.order([*good, collapsed])[0].number == 8
            assert ranking.order([*good, collapsed])[-1].number == 9
        assert Ranking("cosine", self.classes, 0, 100).order([*good, collapsed])[0].number == 9

    def test_collapse_of_two_classes_is_noticed(self):
        good, collapsed = trial(0, cosine=0.5, effective_classes=1.9), trial(1, cosine=0.99, effective_classes=1.0)
        assert Ranking("auto", torch.arange(2), 0, 100).order([collapsed, good])[0].number == 0

    def test_a_single_label_leaves_cosine(self):
        trials = [trial(0, cosine=0.7, leave_one_out=0.0), trial(1, cosine=0.6, leave_one_out=1.0)]
        assert Ranking("auto", torch.tensor([0, 0, 1]), 0, 10).order(trials)[0].number == 0

    def test_with_a_single_label_evenness_counts(self):
        uneven, even = trial(0, cosine=0.71, effective_classes=1.8), trial(1, cosine=0.70, effective_classes=2.8)
        others = [trial(i, cosine=0.5 + 0.02 * i, effective_classes=2.0 + 0.1 * i) for i in range(2, 6)]
        for classes, winner in ((torch.arange(3), 1), (self.classes, 0)):
            ranking = Ranking("auto", classes, 0, 100)
            assert ranking.order([uneven, even, *others])[0].number == winner
            assert (ranking.value(even) > ranking.value(uneven)) == (winner == 1)

    def test_withheld_labels_count_more_the_more_there_are(self):
        """One setting predicts withheld labels better, the other is clearer about unlabelled nodes."""
        labels = trial(0, cosine=0.4, per_class_out_loss=-0.2)
        clear = trial(1, cosine=0.8, per_class_out_loss=-1.5)
        others = [trial(i, cosine=0.6, per_class_out_loss=-0.7) for i in range(2, 8)]
        best = [
            Ranking("auto", torch.arange(3).repeat(count), 0, 100).order([labels, clear, *others])[0].number
            for count in (1, 20)
        ]
        assert best == [1, 0]

    def test_if_all_collapse_the_best_of_them_is_found(self):
        trials = [trial(i, cosine=0.1 * i, effective_classes=1.02) for i in range(4)]
        assert Ranking("auto", self.classes, 0, 100).order(trials)[0].number == 3

    def test_settings_near_chance_are_not_combined_with_good_ones(self):
        """With three classes a guess has probability 1/3."""
        trials = [trial(i, per_class_out_loss=math.log(p)) for i, p in enumerate((0.9, 0.34, 0.6, 0.5))]
        kept = Ranking("auto", self.classes, 0, 100).worth_combining(trials)
        assert [kept.number for kept in kept] == [0, 2]
        bad = [trial(i, per_class_out_loss=math.log(p)) for i, p in enumerate((0.3, 0.2))]
        assert Ranking("auto", self.classes, 0, 100).worth_combining(bad) == bad
        for ranking in (Ranking("cosine", self.classes, 0, 100), Ranking("auto", torch.arange(3), 0, 100)):
            assert ranking.worth_combining(trials) == trials

    def test_ties_of_accuracy_are_broken_by_the_loss(self):
        trials = [trial(0, leave_one_out_loss=-0.9), trial(1, leave_one_out_loss=-0.2)]
        assert Ranking("leave_one_out", self.classes, 0, 10).order(trials)[0].number == 1

    def test_failed_trials_are_left_out(self):
        failed = Trial(0, SMALL.setting(0, seed=0), error="no")
        ranking = Ranking("auto", self.classes, 0, 10)
        assert ranking.order([failed]) == []
        assert ranking.scores([failed, trial(1)])[0] == -math.inf

    def test_without_unlabelled_nodes_only_withheld_labels_count(self):
        losses = (-1.0, -0.5)
        trials = [trial(i, cosine=math.nan, per_class_out_loss=loss) for i, loss in enumerate(losses)]
        assert Ranking("auto", self.classes, 0, 0).order(trials)[0].number == 1

    @pytest.mark.parametrize(("criterion", "match"), [
        ("best", "unknown criterion"), ("val_acc", "needs a val_mask"), ("cosine", "unlabelled node"),
        ("per_class_out", "two labels"),
    ])  # fmt: skip
    def test_bad_criteria(self, criterion, match):
        with pytest.raises(InvalidInputError, match=match):
            Ranking(criterion, torch.arange(3), 0, 0)
