import copy
import math

import pytest
import torch

from tests.conftest import make_graph, permute_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import GraphMismatchError, InvalidInputError, NotFittedError, SingularReadoutError
from torch_gckm.select import GCKMEnsemble, Space, search
from torch_gckm.select.criteria import Ranking
from torch_gckm.select.prefix import SharedFits, build_model
from torch_gckm.select.trial import Evaluator, Trial

SMALL = Space(channels=(3, 4), depth=(1, 2))


def quick(data, count=12, **options):
    return search(data, SMALL, budget=None, max_settings=count, progress=False, **options)


class TestSharedFits:
    def test_shared_layers_give_what_a_fresh_fit_gives(self, graph):
        fits = SharedFits(graph, 3)
        for number in range(6):
            setting = SMALL.draw_in_tree(number, seed=0)
            shared = fits.fit(setting)
            shared.solve(graph)
            fresh = build_model(setting, 8, 3, "auto")
            Trainer(fresh, steps=0, progress=False).fit(graph)
            torch.testing.assert_close(shared.readout.scores, fresh.readout.scores)

    def test_layers_are_fitted_once(self, graph, monkeypatch):
        calls = []
        original = GCKM.initialize
        monkeypatch.setattr(GCKM, "initialize", lambda self, *a, first=(), **k: (
            calls.append((len(first), len(self.layers))), original(self, *a, first=first, **k))[1])  # fmt: skip
        fits = SharedFits(graph, 3)
        for number in range(4):  # They differ in the readout alone.
            fits.fit(SMALL.draw_in_tree(number, seed=0))
        depth = calls[0][1]
        assert calls == [(0, depth), (depth, depth), (depth, depth), (depth, depth)]

    def test_memory_is_bounded(self, graph):
        fits = SharedFits(graph, 3, max_bytes=1.0)
        for number in range(0, 60, 4):
            fits.fit(SMALL.draw_in_tree(number, seed=0))
        assert len(fits._layers) <= 3


class TestTrials:
    def test_measures_are_those_of_labels_withheld(self, graph64):
        setting = SMALL.draw_in_tree(0, seed=0)
        setting["readout"].update(class_weight=None)
        evaluator = Evaluator(SharedFits(graph64, 3), graph64)
        trial = evaluator(0, setting)
        assert trial.is_valid
        left_out = evaluator.solve(setting).readout.leave_one_out()
        for place, node in enumerate(evaluator.labelled.tolist()):
            data = copy.copy(graph64)
            data.train_mask = graph64.train_mask.clone()
            data.train_mask[node] = False
            model = build_model(setting, 8, 3, "auto")
            Trainer(model, steps=0, progress=False).fit(data)
            torch.testing.assert_close(left_out[place], model.readout.scores[node], rtol=1e-3, atol=1e-4)
        hits = (left_out.argmax(dim=1) == evaluator.classes).double().mean()
        assert trial.measures["leave_one_out"] == pytest.approx(float(hits))

    def test_failures_are_recorded(self, graph):
        setting = SMALL.draw_in_tree(0, seed=0)
        setting["layers"][0]["kernel"]["arguments"]["scale"] = -1.0
        setting["layers"][0]["kernel"] = {"kind": "Unheard", "view": "h", "arguments": {}}
        trial = Evaluator(SharedFits(graph, 3), graph)(0, setting)
        assert not trial.is_valid
        assert "Unheard" in trial.error

    def test_ill_posed_settings_are_rejected(self, graph):
        setting = SMALL.draw_in_tree(0, seed=0)
        setting["readout"].update(eta=0.2)
        trial = Evaluator(SharedFits(graph, 3), graph)(0, setting)
        assert not trial.is_valid
        assert "ill-posed" in trial.error


def trial(number, **measures):
    names = ("leave_one_out", "leave_one_out_loss", "per_class_out", "per_class_out_loss", "cosine")
    measures = {**dict.fromkeys(names, 0.5), "val_acc": math.nan, "effective_classes": 2.5, **measures}
    return Trial(number, {"layers": [number]}, measures)


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

    def test_ties_of_accuracy_are_broken_by_the_loss(self):
        trials = [trial(0, leave_one_out_loss=-0.9), trial(1, leave_one_out_loss=-0.2)]
        assert Ranking("leave_one_out", self.classes, 0, 10).order(trials)[0].number == 1

    def test_failed_trials_are_left_out(self):
        failed = Trial(0, {}, error="no")
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


class TestSearch:
    @pytest.mark.parametrize("criterion", ["auto", "leave_one_out", "per_class_out", "cosine", "val_acc", "combined"])
    def test_finds_a_good_model(self, graph, criterion):
        result = quick(graph, criterion=criterion)
        assert len(result) == 12
        predicted = result.model().predict()
        assert float((predicted == graph.y)[graph.test_mask].double().mean()) > 0.6
        assert len(result.table(5).splitlines()) == 6
        assert "12 settings" in repr(result)

    def test_on_a_directed_graph_directions_are_tried(self, graph):
        tried = {layer["direction"] for trial in quick(graph).trials for layer in trial.setting["layers"]}
        assert tried == {"in"}
        graph.edge_index = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
        result = quick(graph, 24)
        assert {layer["direction"] for trial in result.trials for layer in trial.setting["layers"]} > {"in", "out"}
        found = [layer.aggregation.direction for layer in result.model().layers]
        assert found == [layer["direction"] for layer in result.best.setting["layers"]]

    def test_budget_in_seconds(self, graph):
        assert 0 < len(search(graph, SMALL, budget=0.3, progress=False)) < 200
        with pytest.raises(InvalidInputError, match="budget"):
            search(graph, budget=None)

    def test_resumes_where_it_stopped(self, graph, tmp_path):
        file = tmp_path / "search.pt"
        quick(graph, 5, checkpoint=file)
        resumed = quick(graph, 9, checkpoint=file)
        whole = quick(graph, 9)
        assert [t.setting for t in resumed.trials] == [t.setting for t in whole.trials]
        assert resumed.best.number == whole.best.number
        for a, b in zip(resumed.trials, whole.trials, strict=True):
            assert a.measures == pytest.approx(b.measures, nan_ok=True)
        with pytest.raises(GraphMismatchError, match="other graph"):
            quick(make_graph(seed=5), 9, checkpoint=file)

    def test_interrupted_it_keeps_what_it_has(self, graph, tmp_path, monkeypatch):
        file = tmp_path / "search.pt"
        original = Evaluator.__call__

        def interrupted(self, number, setting):
            if number == 7:
                raise KeyboardInterrupt
            return original(self, number, setting)

        with monkeypatch.context() as patch:
            patch.setattr(Evaluator, "__call__", interrupted)
            with pytest.raises(KeyboardInterrupt):
                quick(graph, 30, checkpoint=file)
        resumed, whole = quick(graph, 30, checkpoint=file), quick(graph, 30)
        assert [t.number for t in resumed.trials] == list(range(30))
        assert torch.equal(resumed.ensemble().predict_proba(), whole.ensemble().predict_proba())

    def test_workers_find_what_one_finds(self, graph):
        alone, together = quick(graph, 30, workers=1), quick(graph, 30, workers=3)
        assert [t.setting for t in together.trials] == [t.setting for t in alone.trials]
        for a, b in zip(together.trials, alone.trials, strict=True):
            assert a.measures == pytest.approx(b.measures, nan_ok=True, rel=1e-3, abs=1e-3)
        with pytest.raises(InvalidInputError, match="workers"):
            quick(graph, workers=0)

    def test_other_choices_are_another_search(self, graph, tmp_path):
        quick(graph, 3, checkpoint=tmp_path / "search.pt")
        for change, match in (({"gram": "dense"}, "gram"), ({"seed": 4}, "seed")):
            with pytest.raises(GraphMismatchError, match=match):
                quick(graph, 4, checkpoint=tmp_path / "search.pt", **change)

    def test_other_labels_are_another_search(self, graph, tmp_path):
        quick(graph, 3, checkpoint=tmp_path / "search.pt")
        other = copy.copy(graph)
        other.y = (graph.y + 1) % 3
        with pytest.raises(GraphMismatchError, match="other classes"):
            quick(other, 4, checkpoint=tmp_path / "search.pt")

    def test_the_model_it_returns_can_be_fine_tuned(self, graph):
        result = quick(graph, 6)
        before = result.ensemble(2).scores()
        model = result.model()
        history = Trainer(model, steps=2, progress=False, monitor="val_acc").fit(graph)
        assert len(history) == 3
        assert torch.equal(result.ensemble(2).scores(), before)

    def test_test_labels_do_not_matter(self, graph):
        hidden = copy.copy(graph)
        hidden.y = torch.where(graph.train_mask, graph.y, -1)
        hidden.val_mask = torch.zeros_like(graph.val_mask)
        assert quick(hidden, num_classes=3).best.number == quick(graph).best.number

    def test_node_order_does_not_matter(self, graph):
        order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
        ours, theirs = quick(graph).model(), quick(permute_graph(graph, order)).model()
        torch.testing.assert_close(theirs.readout.scores, ours.readout.scores[order], rtol=1e-3, atol=1e-3)

    def test_nothing_found(self, graph):
        result = search(graph, SMALL, budget=1e-9, progress=False)
        with pytest.raises(NotFittedError, match="larger budget"):
            result.ensemble()


class TestEnsemble:
    def test_predicts_extends_and_is_saved(self, graph, tmp_path):
        ensemble = quick(graph).ensemble(4)
        assert len(ensemble.members) == 4
        assert float((ensemble.predict() == graph.y)[graph.test_mask].double().mean()) > 0.7
        torch.testing.assert_close(ensemble.predict_proba().sum(dim=1), torch.ones(60))
        assert torch.equal(ensemble.predict(), ensemble.predict(graph))
        ensemble.save(tmp_path / "ensemble.pt")
        loaded = GCKMEnsemble.load(tmp_path / "ensemble.pt")
        new = make_graph(20, seed=4)
        assert torch.equal(loaded.predict_proba(), ensemble.predict_proba())
        assert torch.equal(loaded.transform(new), ensemble.transform(new))
        assert "4 models" in repr(loaded)

    def test_is_the_mean_of_standardised_scores(self, graph):
        ensemble = quick(graph).ensemble(3)
        parts = [model.readout.scores for model in ensemble.members]
        torch.testing.assert_close(ensemble.scores(), sum(part / part.std() for part in parts) / 3)

    def test_members_differ(self, graph):
        layers = [str(model.layers) for model in quick(graph, 24).ensemble(6).members]
        assert max(layers.count(name) for name in layers) <= 3

    def test_a_member_that_cannot_be_fitted_again_is_replaced(self, graph, monkeypatch):
        result = quick(graph, 24)
        best, original = result.best, Evaluator.solve

        def solve(self, setting, **options):
            if setting == best.setting:
                raise SingularReadoutError("at full rank")
            return original(self, setting, **options)

        monkeypatch.setattr(Evaluator, "solve", solve)
        assert len(result.ensemble(5).members) == 5
        assert torch.equal(result.model().predict(), result.model(result.ranked()[1]).predict())
        with pytest.raises(SingularReadoutError):
            result.model(best)
        result.trials = [best]
        with pytest.raises(NotFittedError, match="SingularReadoutError: at full rank"):
            result.model()

    def test_bad_members(self, graph):
        with pytest.raises(InvalidInputError, match="size=0"):
            quick(graph).ensemble(0)
        with pytest.raises(InvalidInputError, match="at least one"):
            GCKMEnsemble([])
        other = GCKM(8, 3, 3)
        Trainer(other, steps=0, progress=False).fit(make_graph(seed=9))
        with pytest.raises(InvalidInputError, match="solve"):
            GCKMEnsemble([copy.deepcopy(other)])
        with pytest.raises(InvalidInputError, match="same graph"):
            GCKMEnsemble([quick(graph).model(), other])


@pytest.mark.parametrize("limits", [{"budget": -1}, {"budget": "5"}, {"budget": None, "max_settings": 0}])
def test_limits_are_positive_numbers(graph, limits):
    with pytest.raises(InvalidInputError, match="must be a positive number"):
        search(graph, **limits)


def test_bad_features_are_told_at_once(graph):
    graph.x[3, 1] = math.nan
    with pytest.raises(InvalidInputError, match="1 entries that are NaN or infinite, first in row 3"):
        search(graph, budget=1000)
