import copy

import pytest
import torch

from tests.conftest import make_graph
from tests.select.helpers import quick
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import InvalidInputError, NotFittedError, SingularReadoutError
from torch_gckm.nn import InductiveGCKM
from torch_gckm.select import GCKMEnsemble, InductiveEnsemble, Space, search
from torch_gckm.select.result import choose_members
from torch_gckm.select.trial import Evaluator


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
        assert torch.equal(loaded.scores(new), ensemble.scores(new))
        assert "4 models" in repr(loaded)

    def test_is_the_mean_of_standardised_scores(self, graph):
        ensemble = quick(graph).ensemble(3)
        parts = [model.readout.scores for model in ensemble.members]
        torch.testing.assert_close(ensemble.scores(), sum(part / part.std() for part in parts) / 3)

    def test_members_differ(self, graph):
        layers = [str(model.layers) for model in quick(graph, 24).ensemble(6).members]
        assert max(layers.count(name) for name in layers) <= 3

    def test_members_without_layers_differ_by_their_features(self, graph):
        result = search(graph, Space(depth=(0,)), budget=None, max_settings=24, progress=False)
        members = choose_members(result.ranked(), 8)
        assert len(members) == 8
        features = [(trial.setting.normalize, trial.setting.propagation) for trial in members]
        assert max(features.count(each) for each in features) <= 3

    def test_the_only_good_setting_may_fail(self, graph, monkeypatch):
        """Then those that were too bad to be combined with it take its place."""
        result = quick(graph)
        best = result.best
        best.measures["per_class_out_loss"] = 0.0
        for other in result.trials:
            if other is not best:
                other.measures["per_class_out_loss"] = -1.0
        assert result.ranking.worth_combining(result.ranked()) == [best]
        original = result._try
        monkeypatch.setattr(result, "_try", lambda trial, *_: None if trial is best else original(trial))
        assert len(result.ensemble(3, self_training=False).members) == 3

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


class TestOtherGraphs:
    def test_members_share_the_matrices_of_the_edges(self, graph, matrices_made):
        ensemble = quick(graph, 24, workers=1).ensemble(8)
        propagations = [conv.aggregation for model in ensemble.members for conv in model.layers]
        assert len(propagations) > len({own.key for own in propagations})
        for model in (ensemble, ensemble.inductive()):
            matrices_made.clear()
            model.scores(make_graph(40, seed=4))
            assert matrices_made == {(own.matrix_kind, own.direction): 1 for own in propagations if own.kind != "none"}

    def test_scores_are_the_mean_of_those_of_members(self, graph):
        ensemble, new = quick(graph).ensemble(4), make_graph(40, seed=4)
        parts = zip(ensemble.members, ensemble.spread, strict=True)
        torch.testing.assert_close(ensemble.scores(new), sum(m.scores(new) / spread for m, spread in parts) / 4)
        torch.testing.assert_close(
            ensemble.predict_proba(new), (ensemble.temperature * ensemble.scores(new)).softmax(dim=1)
        )
        assert torch.equal(ensemble.predict(new), ensemble.scores(new).argmax(dim=1))

    def test_fitted_nodes_may_be_named(self, graph):
        ensemble, new, known = quick(graph).ensemble(3), make_graph(80, seed=4), torch.arange(10, 70)
        parts = zip(ensemble.members, ensemble.spread, strict=True)
        expected = sum(m.scores(new, known) / spread for m, spread in parts) / 3
        torch.testing.assert_close(ensemble.scores(new, known), expected)
        assert not torch.equal(ensemble.scores(new), expected)
        with pytest.raises(InvalidInputError, match="pass the graph, too"):
            ensemble.scores(known=known)


class TestInductiveEnsemble:
    def test_loads_as_its_own_class_and_is_saved_again(self, graph, tmp_path):
        ensemble, new = quick(graph).ensemble(3), make_graph(40, seed=4)
        ensemble.save(tmp_path / "first.pt", inductive=True)
        loaded = GCKMEnsemble.load(tmp_path / "first.pt")
        assert type(loaded) is InductiveEnsemble
        assert all(type(model) is InductiveGCKM for model in loaded.models)
        loaded.save(tmp_path / "second.pt")
        again = GCKMEnsemble.load(tmp_path / "second.pt")
        assert type(again) is InductiveEnsemble
        assert again.calibration == loaded.calibration == ensemble.calibration
        for other in (loaded, again):
            assert torch.equal(other.scores(new), ensemble.scores(new))
            assert torch.equal(other.predict_proba(new), ensemble.predict_proba(new))
            assert torch.equal(other.predict(new), ensemble.predict(new))
            assert repr(other) == "InductiveEnsemble(3 models, 3 classes)"

    def test_does_not_depend_on_the_ensemble_it_was_made_of(self, graph):
        ensemble, new = quick(graph).ensemble(2), make_graph(40, seed=4)
        inductive = ensemble.inductive()
        before = inductive.scores(new)
        for model in ensemble.members:
            model.reset_parameters()
        assert torch.equal(inductive.scores(new), before)

    def test_a_single_model_is_an_ensemble_of_one(self, graph, tmp_path):
        model, new = quick(graph, 4).model(), make_graph(40, seed=4)
        for inductive, kind in ((False, GCKMEnsemble), (True, InductiveEnsemble)):
            model.save(tmp_path / "model.pt", inductive=inductive)
            loaded = GCKMEnsemble.load(tmp_path / "model.pt")
            assert type(loaded) is kind
            assert torch.equal(loaded.scores(new), model.scores(new))

    def test_another_file_is_refused(self, graph, tmp_path):
        torch.save({"weight": torch.ones(3)}, tmp_path / "other.pt")
        with pytest.raises(InvalidInputError, match=r"other\.pt' is not an ensemble file"):
            GCKMEnsemble.load(tmp_path / "other.pt")
