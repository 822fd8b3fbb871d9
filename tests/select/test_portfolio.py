import json

import pytest
import torch
from torch_geometric.data import Data

from tests.conftest import make_graph
from torch_gckm.errors import GraphMismatchError
from torch_gckm.graph import AS_GIVEN
from torch_gckm.nn import ModelSettings
from torch_gckm.select import search
from torch_gckm.select.portfolio import PORTFOLIO, SMOOTH_FROM, portfolio, smoothness
from torch_gckm.select.space import Space, direction_kernel
from torch_gckm.select.trial import PreparedGraphs


@pytest.fixture
def shuffled(graph):
    """The same graph with the features of other nodes, so that neighbours have nothing in common."""
    other = graph.clone()
    other.x = graph.x[torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))]
    return other


ENTRIES = [json.loads(line) for line in PORTFOLIO.read_text().splitlines()]
SETTINGS = [ModelSettings.from_dict(entry["settings"]) for entry in ENTRIES]


def test_settings_are_all_different():
    assert len({str(setting) for setting in SETTINGS}) == len(SETTINGS) == 48


def test_neighbours_of_smooth_graphs_have_similar_features(graph, shuffled):
    assert smoothness(PreparedGraphs(graph)) > SMOOTH_FROM
    assert abs(smoothness(PreparedGraphs(shuffled))) < SMOOTH_FROM
    assert smoothness(PreparedGraphs(Data(x=graph.x, edge_index=torch.empty(2, 0, dtype=torch.long)))) == 0.0


def test_self_loops_are_no_neighbours(shuffled):
    plain = smoothness(PreparedGraphs(shuffled))
    loops = torch.arange(shuffled.num_nodes).repeat(2, 20)
    shuffled.edge_index = torch.cat([shuffled.edge_index, loops], dim=1)
    assert smoothness(PreparedGraphs(shuffled)) == pytest.approx(plain, abs=1e-6)
    shuffled.edge_index = loops
    assert smoothness(PreparedGraphs(shuffled)) == 0.0


def test_a_checkpoint_of_another_list_is_refused(graph, tmp_path, monkeypatch):
    options = {"budget": None, "max_settings": 2, "progress": False, "checkpoint": tmp_path / "search.pt"}
    assert len(search(graph, **options)) == len(search(graph, **options)) == 2
    other = tmp_path / "other.jsonl"
    other.write_text("".join(reversed(PORTFOLIO.read_text().splitlines(keepends=True))))
    monkeypatch.setattr("torch_gckm.select.portfolio.PORTFOLIO", other)
    with pytest.raises(GraphMismatchError, match="another search: other portfolio"):
        search(graph, **options)


def test_the_order(graph, shuffled):
    """The most promising ones and those of the list take turns; none is left out or comes twice."""
    lists = [portfolio(PreparedGraphs(data)) for data in (graph, shuffled)]
    kinds = []
    for found in lists:
        settings, promises = zip(*found, strict=True)
        assert sorted(map(str, settings)) == sorted(map(str, SETTINGS))
        best = settings[promises.index(max(promises))]
        assert settings[0] == best
        assert SETTINGS[0] in settings[:2]
        assert SETTINGS[1] in settings[:4]
        kinds.append((best.layers[0] if best.layers else best).propagation.kind)
    assert kinds[0] != "none"
    assert kinds[1] == "none"


def test_a_search_begins_with_it(graph):
    result = search(graph, budget=None, max_settings=3, progress=False)
    assert [trial.setting for trial in result.trials] == [s for s, _ in portfolio(PreparedGraphs(graph))[:3]]


def test_directed_graphs_are_seen_both_ways(graph):
    graph.edge_index = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    trials = search(graph, budget=None, max_settings=2, progress=False).trials
    assert [trial.setting for trial in trials] == [s for s, _ in portfolio(PreparedGraphs(graph), ("both",))[:2]]
    settings = [trial.setting for trial in trials]
    parts = [part.propagation for s in settings for part in (s, *s.layers)]
    assert {part.direction for part in parts if part.kind != "none"} == {"both"}


def test_the_direction_kernel_is_nearly_the_cosine():
    x = make_graph(30).x.double()
    kernel = direction_kernel()
    kernel.fit(x)
    unit = torch.nn.functional.normalize(x)
    torch.testing.assert_close(kernel(x), unit @ unit.t(), atol=0.05, rtol=0.0)
    zeros = kernel(torch.cat([x, torch.zeros_like(x[:1])]))
    assert bool(zeros.isfinite().all())


def test_ways_to_see_edges_take_turns(graph):
    """Every setting once; among any three that propagate in a row, each way to read weights."""
    plain = portfolio(PreparedGraphs(graph))
    graph.edge_weight = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0)) + 0.5
    space = Space().on_graph(graph)
    found = portfolio(PreparedGraphs(graph), ("in",), space.weightings)
    for (setting, promise), (before, promised) in zip(found, plain, strict=True):
        assert promise == promised
        assert setting.seeing("in", AS_GIVEN) == before
    seen = [{part.propagation.weights for part in (s, *s.layers) if part.propagation.kind != "none"} for s, _ in found]
    ways = [way for ways in seen for way in ways]
    assert all(len(ways) < 2 for ways in seen)
    assert len(ways) > 30
    assert all(set(ways[place : place + 3]) == {"given", "log", "none"} for place in range(len(ways) - 2))
    both = portfolio(PreparedGraphs(graph), ("both", "in", "out"), space.weightings)
    pairs = {
        (p.direction, p.weights) for s, _ in both for p in (s.propagation, *(part.propagation for part in s.layers))
    }
    assert len(pairs - {("in", "given")}) == 8
