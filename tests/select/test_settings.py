"""Settings and trials as plain values."""

import json

import pytest
import torch

from tests.select.helpers import SMALL, quick
from torch_gckm import GCKM
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF, Laplacian
from torch_gckm.nn import ModelSettings
from torch_gckm.nn.settings import differences
from torch_gckm.select.trial import Trial


def through_json(content):
    return json.loads(json.dumps(content))


@pytest.mark.parametrize("number", range(0, 60, 7))
def test_settings_of_searches_round_trip(number):
    setting = SMALL.setting(number, seed=0)
    assert ModelSettings.from_dict(setting.to_dict()) == setting
    again = ModelSettings.from_dict(through_json(setting.to_dict()))
    assert again == setting
    assert again.layer_keys() == setting.layer_keys()
    assert str(again) == str(setting)
    assert not list(differences(setting.to_dict(), through_json(setting.to_dict())))


def test_settings_of_a_model_round_trip():
    kernels = [RBF(2.0), Laplacian(scale=3.0), RBF(0.5, learnable=True) * RBF(10.0).on("x")]
    options = {"aggregation": ["sum", "mean"], "hops": [1, 2], "direction": ["in", "both"], "eta": [1.0, 2.0, 1.1]}
    model = GCKM(8, (6, 4), 3, kernels, normalize="l2", loss_weights=[2.0, 1.0, 0.5], gram=LowRank(99), **options)
    settings = model.settings
    again = ModelSettings.from_dict(through_json(settings.to_dict()))
    assert again == settings
    built = GCKM.from_settings(again, 8, 3)
    assert built.settings == settings
    assert str(built) == str(model)
    assert built.loss_weights == (2.0, 1.0, 0.5)


def test_a_class_code_of_ones_own_is_kept():
    code = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]])
    content = GCKM(8, 4, 3, code=code).settings.to_dict()
    assert torch.equal(ModelSettings.from_dict(content).readout.code, code)
    assert not list(differences(content, GCKM(8, 4, 3, code=code.clone()).settings.to_dict()))
    for other in (-code, "one_vs_all"):
        (found,) = differences(content, GCKM(8, 4, 3, code=other).settings.to_dict())
        assert found[0] == "code"


def test_trials_round_trip():
    setting = SMALL.setting(5, seed=0)
    for trial in (Trial(5, setting, {"cosine": 0.5}, 1.5), Trial(6, setting, error="SingularReadoutError: no")):
        assert Trial.from_dict(trial.to_dict()) == trial
        assert Trial.from_dict(through_json(trial.to_dict())) == trial


def test_trials_of_a_search_round_trip(graph):
    for trial in quick(graph, 4).trials:
        again = Trial.from_dict(through_json(trial.to_dict()))
        assert (again.number, again.setting, again.seconds) == (trial.number, trial.setting, trial.seconds)
        assert again.measures == pytest.approx(trial.measures, nan_ok=True)
        assert again.is_valid == trial.is_valid


class TestDifferences:
    @pytest.mark.parametrize(("old", "new", "expected"), [
        ({"a": 1, "b": [1, 2]}, {"b": (1, 2), "a": 1}, []),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, [("b", 2, 3)]),
        ({"a": {"b": [{"c": 1.0}, {"c": 2.0}]}}, {"a": {"b": [{"c": 1.0}, {"c": 3.0}]}}, [("c", 2.0, 3.0)]),
        ({"a": 1}, {"a": 1, "b": 2}, [("b", None, 2)]),
        ({"a": 1, "b": 2}, {"a": 1}, [("b", 2, None)]),
        ({"a": [1, 2]}, {"a": [1]}, [("a", [1, 2], [1])]),
        ({"a": None}, {"a": {"b": 1}}, [("a", None, {"b": 1})]),
        ({"b": 1, "a": 2}, {"b": 2, "a": 1}, [("a", 2, 1), ("b", 1, 2)]),
    ])  # fmt: skip
    def test_are_named(self, old, new, expected):
        assert list(differences(old, new)) == expected

    def test_what_is_learned_does_not_count(self):
        first, second = (RBF(value, learnable=True).config() for value in (1.0, 2.0))
        assert not list(differences(first, second))
        assert "learnable" in {name for name, _, _ in differences(first, RBF(1.0).config())}
        assert list(differences(RBF(1.0).config(), RBF(2.0).config()))

    def test_of_kernels_in_a_model(self):
        first, second = (GCKM(8, (6, 4), 3, [RBF(), kernel, RBF()]).settings for kernel in (RBF(), RBF(scale=7.0)))
        assert list(differences(first.to_dict(), second.to_dict())) == [("scale", 1.0, 7.0)]
