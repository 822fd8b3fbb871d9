import json

import pytest
import torch

from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels import kernel_from_config
from torch_gckm.nn import ModelSettings
from torch_gckm.select.space import PROPAGATIONS, Space, StratifiedChooser


def test_settings_are_plain_values_that_build_kernels():
    for number in range(50):
        setting = Space().setting(number, seed=0)
        assert ModelSettings.from_dict(json.loads(json.dumps(setting.to_dict()))) == setting
        for part in (*setting.layers, setting.readout):
            kernel_from_config(part.kernel)
        assert str(setting).count("|") >= len(setting.layers)


def test_neighbours_share_layers():
    settings = [Space(depth=(2,)).setting(number, seed=3) for number in range(24)]
    assert len({s.layer_keys()[0] for s in settings}) == 8
    assert len({s.layer_keys()[-1] for s in settings[:3]}) == 1
    assert len({str(s.readout) for s in settings}) == 24


@pytest.mark.parametrize("seed", range(3))
def test_the_first_settings_have_every_option(seed):
    settings = [Space().setting(number, seed) for number in range(24)]
    assert {len(s.layers) for s in settings} == {0, 1, 2}
    assert {s.normalize for s in settings} == {None, "l2", "columns"}
    assert {(s.readout.kernel["kind"], s.readout.eta) for s in settings} >= {("RBF", 1.01), ("Product", 1.01)}
    first = [s.layers[0].propagation if s.layers else s.propagation for s in settings]
    assert len({(p.kind, p.hops) for p in first}) == 8
    more = [Space().setting(number, seed) for number in range(24, 27)]
    first += [s.layers[0].propagation if s.layers else s.propagation for s in more]
    assert {(p.kind, p.hops) for p in first} == set(PROPAGATIONS)


def test_bad_branches():
    with pytest.raises(InvalidInputError, match="readouts"):
        Space(readouts=0)


@pytest.mark.parametrize("directions", [(), ("up",)])
def test_bad_directions(directions):
    with pytest.raises(InvalidInputError, match="'directions' must be some of in, out, both"):
        Space(directions=directions)


def test_a_seed_names_a_sequence():
    assert Space().setting(7, seed=1) == Space().setting(7, seed=1)
    assert Space().setting(7, seed=1) != Space().setting(7, seed=2)


def test_ranges_and_options_are_kept():
    space = Space(depth=(2,), channels=(5,), lambda2=(0.1, 0.2), view=(None,), kernels=("rbf",), bandwidth=(3.0, 4.0))
    for number in range(20):
        setting = space.draw(StratifiedChooser(0, number))
        assert [layer.channels for layer in setting.layers] == [5, 5]
        assert all(3.0 <= layer.kernel["arguments"]["scale"] <= 4.0 for layer in setting.layers)
        assert 0.1 <= setting.readout.lambda2 <= 0.2
        assert setting.readout.kernel["kind"] == "RBF"


def test_directions_are_drawn_on_directed_graphs_alone(graph):
    one_way = graph.clone()
    one_way.edge_index = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    plain, directed = (
        [Space().on_graph(data).setting(number, seed=0) for number in range(60)] for data in (graph, one_way)
    )
    assert {layer.propagation.direction for setting in plain for layer in setting.layers} == {"in"}
    assert {layer.propagation.direction for setting in directed for layer in setting.layers} == {"in", "out", "both"}
    assert plain == [Space().setting(number, seed=0) for number in range(60)]
    space = Space(directions=("out",))
    assert space.on_graph(one_way).directions == ("out",)
    assert " out" in str(Space(directions=("out",), propagations=(("sum", 1),)).setting(0, seed=0))


def test_ways_to_read_weights_are_drawn_where_there_are_weights(graph):
    def ways(setting):
        parts = [setting.propagation, *(layer.propagation for layer in setting.layers)]
        return {(part.weights, part.unit) for part in parts if part.kind != "none"}

    weighted = graph.clone()
    weighted.edge_weight = torch.full((graph.num_edges,), 40.0)
    space = Space(depth=(0, 2)).on_graph(weighted)
    found = [ways(space.setting(number, seed=0)) for number in range(30)]
    assert all(len(part) <= 1 for part in found)  # All layers of a model read them alike.
    assert set.union(*found) == {("given", 1.0), ("log", 40.0), ("none", 1.0)}
    assert json.loads(json.dumps(space.setting(0, seed=0).to_dict())) == space.setting(0, seed=0).to_dict()
    texts = " ".join(str(space.setting(number, seed=0)) for number in range(30))
    assert "log(1 + w/40)" in texts
    assert "unweighted" in texts
    for data in (graph, weighted):
        data.edge_weight = torch.ones(graph.num_edges)
        assert Space().on_graph(data).weights == ("given",)
    assert Space(weights=("none",)).on_graph(weighted).weights == ("none",)
    assert Space(unit=3.0, weights=("log",)).on_graph(weighted).unit == 3.0


@pytest.mark.parametrize("bad", [{"weights": ()}, {"weights": ("root",)}, {"unit": 0.0}])
def test_bad_ways_to_read_weights(bad):
    with pytest.raises(InvalidInputError, match=r"'weights' must be some of|'unit' must be a positive"):
        Space(**bad)
