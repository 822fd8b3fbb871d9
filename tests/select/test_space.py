import json

import pytest

from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels import kernel_from_config
from torch_gckm.nn import ModelSettings
from torch_gckm.select.space import RandomChooser, Space


def test_settings_are_plain_values_that_build_kernels():
    for number in range(50):
        setting = Space().draw_in_tree(number, seed=0)
        assert ModelSettings.from_dict(json.loads(json.dumps(setting.to_dict()))) == setting
        for part in (*setting.layers, setting.readout):
            kernel_from_config(part.kernel)
        assert str(setting).count("|") >= len(setting.layers)


def test_neighbours_share_layers():
    settings = [Space().draw_in_tree(number, seed=3) for number in range(24)]
    assert len({s.layer_keys()[0] for s in settings}) == 2
    assert len({s.layer_keys()[-1] for s in settings[:4]}) == 1
    assert len({str(s.readout) for s in settings}) == 24


def test_bad_branches():
    with pytest.raises(InvalidInputError, match="branches"):
        Space(branches=(0, 6))


@pytest.mark.parametrize("directions", [(), ("up",)])
def test_bad_directions(directions):
    with pytest.raises(InvalidInputError, match="'directions' must be some of in, out, both"):
        Space(directions=directions)


def test_a_seed_names_a_sequence():
    assert Space().draw_in_tree(7, seed=1) == Space().draw_in_tree(7, seed=1)
    assert Space().draw_in_tree(7, seed=1) != Space().draw_in_tree(7, seed=2)


def test_ranges_and_options_are_kept():
    space = Space(depth=(2,), channels=(5,), lambda2=(0.1, 0.2), view=(None,), kernels=("rbf",), bandwidth=(3.0, 4.0))
    for number in range(20):
        setting = space.draw(RandomChooser(number))
        assert [layer.channels for layer in setting.layers] == [5, 5]
        assert all(3.0 <= layer.kernel["arguments"]["scale"] <= 4.0 for layer in setting.layers)
        assert 0.1 <= setting.readout.lambda2 <= 0.2
        assert setting.readout.kernel["kind"] == "RBF"


def test_directions_are_drawn_on_directed_graphs_alone(graph):
    one_way = graph.clone()
    one_way.edge_index = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    plain, directed = (
        [Space().on_graph(data).draw_in_tree(number, seed=0) for number in range(60)] for data in (graph, one_way)
    )
    assert {layer.direction for setting in plain for layer in setting.layers} == {"in"}
    assert {layer.direction for setting in directed for layer in setting.layers} == {"in", "out", "both"}
    assert plain == [Space().draw_in_tree(number, seed=0) for number in range(60)]
    space = Space(directions=("out",))
    assert space.on_graph(one_way) == space
    assert " out" in str(space.draw_in_tree(0, seed=0))
