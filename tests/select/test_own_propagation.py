"""Propagations of the user's own in a search."""

import json
from dataclasses import replace

import pytest
import torch
from torch_geometric.nn import MessagePassing

from tests.conftest import make_graph
from torch_gckm import GCKM, GCKMClassifier
from torch_gckm.errors import GraphMismatchError, InvalidInputError
from torch_gckm.graph import Propagation
from torch_gckm.nn import ModelSettings
from torch_gckm.select import Space, search


class Largest(MessagePassing):
    """The largest of the features of a node and its neighbours, times a number."""

    def __init__(self, factor=1.0, weight=1.0):
        super().__init__(aggr="max")
        self.factor = factor
        self.register_buffer("weight", torch.tensor(weight))

    def forward(self, x, edge_index, edge_weight=None):
        return self.factor * self.weight * torch.maximum(x, self.propagate(edge_index, x=x))

    def __repr__(self):
        return f"Largest({self.factor:g})"


class Nameless(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x, edge_index, edge_weight=None):
        return self.factor * x


def searched(data, *propagations, count=6, **options):
    space = Space(depth=(0, 1), channels=(3,), propagations=propagations, readouts=1)
    return search(data, space, budget=None, max_settings=count, progress=False, workers=1, **options)


@pytest.fixture
def graph():
    return make_graph(60, seed=2)


def test_settings_name_the_module_and_models_use_it(graph):
    result = searched(graph, Largest(2.0))
    assert {len(trial.setting.layers) for trial in result.trials} == {0, 1}
    for trial in result.ranked():
        setting = trial.setting
        parts = [layer.propagation for layer in setting.layers] or [setting.propagation]
        assert {str(part) for part in parts} == {"Largest(2)"}
        assert ModelSettings.from_dict(json.loads(json.dumps(setting.to_dict()))) == setting
        model = result.model(trial)
        own = model.layers[0].aggregation if setting.layers else model.propagation
        assert own.factor == 2.0
    trial = next(trial for trial in result.ranked() if trial.setting.layers)
    expected = GCKM(8, (3,), 3, aggregation=Largest(2.0), kernel=[result.model(trial).layers[0].kernel, "rbf"],
                    normalize=trial.setting.normalize, power=trial.setting.layers[0].power)  # fmt: skip
    with torch.no_grad():
        expected.initialize(graph)
    found = result.model(trial).embed().abs()
    torch.testing.assert_close(found, expected.embed().abs(), rtol=1e-3, atol=1e-4)


def test_modules_and_names_are_both_tried(graph):
    result = searched(graph, ("gcn", 1), Largest(), Propagation("ssgc", 4), count=12)
    first = [trial.setting.layers[0] if trial.setting.layers else trial.setting for trial in result.trials]
    assert {str(part.propagation) for part in first} == {"gcn", "Largest(1)", "ssgc^4"}
    assert result.ensemble().predict().shape == (60,)


def test_workers_give_the_same(graph):
    alone = searched(graph, Largest(), count=4)
    space = Space(depth=(0, 1), channels=(3,), propagations=(Largest(),), readouts=1)
    several = search(graph, space, budget=None, max_settings=4, progress=False, workers=2)
    assert [trial.setting for trial in several.trials] == [trial.setting for trial in alone.trials]


def test_a_checkpoint_is_continued_with_the_same_module_only(graph, tmp_path):
    file = tmp_path / "search.pt"
    first = searched(graph, Largest(), count=3, checkpoint=file)
    resumed = searched(graph, Largest(), count=5, checkpoint=file)
    assert [trial.measures for trial in resumed.trials][:3] == [trial.measures for trial in first.trials]
    assert result_is_usable(resumed)
    for other in (Largest(2.0), Largest(weight=2.0), ("gcn", 1)):
        with pytest.raises(GraphMismatchError, match="other space"):
            searched(graph, other, count=5, checkpoint=file)


def test_what_a_name_does_not_tell_is_compared(graph, tmp_path):
    searched(graph, Nameless(1.0), count=2, checkpoint=tmp_path / "search.pt")
    with pytest.raises(GraphMismatchError, match="other space"):
        searched(graph, Nameless(3.0), count=2, checkpoint=tmp_path / "search.pt")


def result_is_usable(result):
    return result.model().predict().shape == (60,)


def test_new_graphs(graph):
    classifier = GCKMClassifier(
        search=Space(depth=(1,), channels=(3,), propagations=(Largest(),)), max_settings=3, budget=None, progress=False
    ).fit(graph)
    assert classifier.predict(make_graph(20, seed=5)).shape == (20,)


def test_models_cannot_be_saved_whole(graph, tmp_path):
    model = searched(graph, Largest(), count=2).model()
    with pytest.raises(InvalidInputError, match=r"own aggregation module cannot be saved whole: Largest"):
        model.save(tmp_path / "model.pt")
    torch.save(model.state_dict(), tmp_path / "state.pt")


def test_the_given_module_is_left_alone(graph):
    own = torch.nn.ModuleList([Largest()])[0]
    own.gain = torch.nn.Parameter(torch.ones(1))
    searched(graph, own, count=2)
    assert own.gain.requires_grad


def test_names_are_told_apart():
    with pytest.raises(InvalidInputError, match=r"is called 'Nameless\(\)', as another one is.*extra_repr"):
        Space(propagations=(Nameless(1.0), Nameless(2.0)))
    own = Nameless(1.0)
    assert Space(propagations=(own, own)).own == {"Nameless()": own}
    assert replace(Space(propagations=(own,)), depth=(1,)).own == {"Nameless()": own}


@pytest.mark.parametrize("wrong", ["gcn", ("gin", 1), torch.relu])
def test_what_is_no_propagation(wrong):
    with pytest.raises(InvalidInputError, match="'propagations' are"):
        Space(propagations=(wrong,))
