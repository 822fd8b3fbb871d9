import copy
import math
from unittest.mock import Mock

import pytest
import torch

from tests.conftest import make_graph, permute_graph
from tests.select.helpers import SMALL, quick
from torch_gckm import Trainer
from torch_gckm.errors import GCKMWarning, GraphMismatchError, InvalidInputError
from torch_gckm.graph import typical_weight
from torch_gckm.select import Space, search
from torch_gckm.select.portfolio import PORTFOLIO
from torch_gckm.select.trial import Evaluator


def _directions(trials):
    return {layer.propagation.direction for trial in trials for layer in trial.setting.layers}


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
        assert _directions(quick(graph).trials) == {"in"}
        graph.edge_index = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
        result = quick(graph, 24)
        assert _directions(result.trials) > {"in", "out"}
        found = [layer.aggregation.direction for layer in result.model().layers]
        assert found == [layer.propagation.direction for layer in result.best.setting.layers]

    def test_weights_with_a_heavy_tail(self):
        """A few edges, drawn at random, weigh thousands: taken as given, they would drown the others."""
        data = make_graph(90, seed=2)
        noise = torch.rand(data.num_edges, generator=torch.Generator().manual_seed(0))
        data.edge_weight = torch.where(noise < 0.05, 7000.0, 0.6 + noise)
        tells = pytest.warns(GCKMWarning, match="heavy tail: .* the search also tries their logarithms, and edges")
        with tells:
            result = search(data, budget=None, max_settings=12, progress=False)
        settings = [trial.setting for trial in result.trials]
        parts = [part.propagation for s in settings for part in (s, *s.layers) if part.propagation.kind != "none"]
        assert {part.weights for part in parts} == {"given", "log", "none"}
        assert {part.unit for part in parts if part.weights == "log"} == {typical_weight(data.edge_weight)}
        assert float((result.ensemble().predict() == data.y)[data.test_mask].double().mean()) > 0.75
        with pytest.warns(GCKMWarning, match=r"heavy tail: .* with Space\(weights=None\) the search also tries"):
            search(data, Space(weights=("given",)), budget=None, max_settings=1, progress=False)
        search(data, Space(weights=("none",)), budget=None, max_settings=1, progress=False)  # Nothing is said.

    def test_budget_in_seconds(self, graph):
        assert 0 < len(search(graph, SMALL, budget=0.3, progress=False)) < 200
        with pytest.raises(InvalidInputError, match="budget"):
            search(graph, SMALL, budget=None)

    def test_by_default_it_ends_with_the_portfolio(self, graph):
        result = search(graph, budget=None, progress=False, workers=1)
        assert len(result) == len(PORTFOLIO.read_text().splitlines())
        assert len(result.ranking.promises) == len(result)
        more = search(graph, budget=None, max_settings=len(result) + 2, progress=False, workers=1)
        assert [trial.setting for trial in more.trials[:-2]] == [trial.setting for trial in result.trials]

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
            with pytest.warns(GCKMWarning, match=r"interrupted after 7 settings; continue .*, '.*search\.pt'"):
                stopped = quick(graph, 30, checkpoint=file, workers=1)
            assert stopped.interrupted
            assert stopped.ensemble(3).predict().shape == (60,)
            patch.setattr(Evaluator, "__call__", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt), pytest.warns(GCKMWarning, match="before it had fitted a setting"):
                quick(graph, 30)
        assert [t.number for t in stopped.trials] == list(range(7))
        tried = []
        monkeypatch.setattr(Evaluator, "__call__", lambda *args: (tried.append(args[1]), original(*args))[1])
        resumed = quick(graph, 30, checkpoint=file, workers=1)
        assert tried == list(range(7, 30))
        whole = quick(graph, 30)
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
        with pytest.raises(GraphMismatchError, match="other labels"):
            quick(other, 4, checkpoint=tmp_path / "search.pt")

    @pytest.mark.parametrize(("what", "match"), [
        ("x", "other graph"), ("edge_weight", "other .*graph"), ("train_mask", "other labels"),
        ("val_mask", "other labels"), ("label weights", "other labels"),
    ])  # fmt: skip
    def test_a_change_of_the_data_is_another_search(self, graph, tmp_path, what, match):
        quick(graph, 2, checkpoint=tmp_path / "search.pt")
        other = graph.clone()
        if what == "x":
            other.x = -graph.x
        elif what == "edge_weight":
            other.edge_weight = torch.full((graph.num_edges,), 2.0)
        elif what == "label weights":
            other.train_mask = torch.where(graph.train_mask, 0.5, 0.0)
        else:
            other[what][20] = ~other[what][20]
        with pytest.raises(GraphMismatchError, match=match):
            quick(other, 3, checkpoint=tmp_path / "search.pt")

    def test_a_file_that_is_no_checkpoint_is_refused(self, graph, tmp_path):
        file = tmp_path / "other.pt"
        torch.save({"weight": torch.ones(3)}, file)
        with pytest.raises(GraphMismatchError, match=r"other\.pt' belongs to another search"):
            quick(graph, 2, checkpoint=file)

    def test_edges_are_normalised_once(self, graph, matrices_made):
        result = quick(graph, 24, workers=1)
        result.ensemble(5)
        layers = [layer.propagation.build() for trial in result.trials for layer in trial.setting.layers]
        assert matrices_made == {(own.matrix_kind, own.direction): 1 for own in layers if own.kind != "none"}

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

    def test_there_is_an_answer_however_short_the_budget(self, graph):
        result = search(graph, SMALL, budget=1e-9, workers=1, progress=False)
        assert len(result) >= 1
        assert result.best.is_valid


@pytest.mark.parametrize("limits", [{"budget": -1}, {"budget": "5"}, {"budget": None, "max_settings": 0}])
def test_limits_are_positive_numbers(graph, limits):
    with pytest.raises(InvalidInputError, match="must be a positive number"):
        search(graph, **limits)


def test_bad_features_are_told_at_once(graph):
    graph.x[3, 1] = math.nan
    with pytest.raises(InvalidInputError, match="1 entries that are NaN or infinite, first in row 3"):
        search(graph, budget=1000)
