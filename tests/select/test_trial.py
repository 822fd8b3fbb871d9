import copy
from dataclasses import replace

import pytest
import torch

from tests.select.helpers import SMALL
from torch_gckm import GCKM, GCKMConv, Trainer
from torch_gckm.select.search import evaluator_for
from torch_gckm.select.trial import PreparedGraphs, SharedFits


class TestSharedFits:
    def test_shared_layers_give_what_a_fresh_fit_gives(self, graph):
        fits = SharedFits(PreparedGraphs(graph), 3)
        for number in range(6):
            setting = SMALL.setting(number, seed=0)
            shared = fits.fit(setting)
            shared.solve(graph)
            fresh = GCKM.from_settings(setting, 8, 3)
            Trainer(fresh, steps=0, progress=False).fit(graph)
            torch.testing.assert_close(shared.readout.scores, fresh.readout.scores)

    def test_layers_are_fitted_once(self, graph, monkeypatch):
        calls, original = [], GCKMConv.initialize_on
        monkeypatch.setattr(
            GCKMConv, "initialize_on", lambda self, *a, **k: (calls.append(self), original(self, *a, **k))[1]
        )
        fits = SharedFits(PreparedGraphs(graph), 3)
        models = [fits.fit(SMALL.setting(number, seed=0)) for number in range(3)]  # They differ in the readout.
        assert calls == models[0].layers
        assert all(model.layers == models[0].layers for model in models)
        assert len({id(model.readout) for model in models}) == 3

    def test_memory_is_bounded(self, graph):
        fits = SharedFits(PreparedGraphs(graph), 3, max_bytes=1.0)
        for number in range(0, 60, 4):
            fits.fit(SMALL.setting(number, seed=0))
        assert len(fits._layers) <= 3


class TestTrials:
    def test_measures_are_those_of_labels_withheld(self, graph64):
        setting = SMALL.setting(0, seed=0)
        setting = replace(setting, readout=replace(setting.readout, class_weight=None))
        evaluator = evaluator_for(graph64, 3, "auto", None)
        trial = evaluator(0, setting)
        assert trial.is_valid
        left_out = evaluator.solve(setting).readout.leave_one_out()
        for place, node in enumerate(evaluator.labels.targets.labelled.tolist()):
            data = copy.copy(graph64)
            data.train_mask = graph64.train_mask.clone()
            data.train_mask[node] = False
            model = GCKM.from_settings(setting, 8, 3)
            Trainer(model, steps=0, progress=False).fit(data)
            torch.testing.assert_close(left_out[place], model.readout.scores[node], rtol=1e-3, atol=1e-4)
        hits = (left_out.argmax(dim=1) == evaluator.classes).double().mean()
        assert trial.measures["leave_one_out"] == pytest.approx(float(hits))

    def test_failures_are_recorded(self, graph):
        setting = SMALL.setting(0, seed=0)
        unheard = replace(setting.layers[0], kernel={"kind": "Unheard", "view": "h", "arguments": {}})
        trial = evaluator_for(graph, 3, "auto", None)(0, replace(setting, layers=(unheard,)))
        assert not trial.is_valid
        assert "Unheard" in trial.error

    def test_ill_posed_settings_are_rejected(self, graph):
        setting = SMALL.setting(0, seed=0)
        setting = replace(setting, readout=replace(setting.readout, eta=0.2))
        trial = evaluator_for(graph, 3, "auto", None)(0, setting)
        assert not trial.is_valid
        assert "ill-posed" in trial.error
