"""Models in files."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import InvalidInputError, LowRankWarning, NotFittedError
from torch_gckm.gram import Dense
from torch_gckm.kernels import RBF, Linear


def fit(data, steps=0, **arguments):
    model = GCKM(data.num_features, (6, 4), 3, **arguments).to(data.x.dtype)
    Trainer(model, steps=steps, progress=False).fit(data)
    return model


@pytest.mark.parametrize("arguments", [
    {},
    {"kernel": [RBF(3.0), 0.5 * RBF() + Linear(), RBF(0.1) * RBF(5.0).on("x")], "normalize": "l2"},
    {"normalize": "columns"},
    {"aggregation": ["sum", "mean"], "hops": [1, 2], "direction": "both", "code": "binary"},
    {"eta": [1.0, 2.0, 0.9], "lambda1": 1.1, "lambda2": 0.3, "gram": Dense(500), "loss_weights": [1, 2, 3]},
], ids=["default", "kernels", "columns", "aggregations", "numbers"])  # fmt: skip
def test_save_and_load(graph, arguments, tmp_path):
    model, new = fit(graph, steps=2, **arguments), make_graph(20, seed=4)
    model.save(tmp_path / "model.pt")
    loaded = GCKM.load(tmp_path / "model.pt")
    assert torch.equal(loaded(graph.x, graph.edge_index), model(graph.x, graph.edge_index))
    assert torch.equal(loaded.scores(new), model.scores(new))
    assert torch.equal(loaded.predict(graph), model.predict(graph))
    torch.testing.assert_close(loaded.loss(graph), model.loss(graph))
    assert repr(loaded) == repr(model)


def test_load_in_another_process(graph64, tmp_path):
    model = fit(graph64)
    model.save(tmp_path / "model.pt")
    new = make_graph(20, seed=4)
    torch.save({"x": new.x.double(), "edge_index": new.edge_index}, tmp_path / "new.pt")
    script = (
        "import sys, torch; from torch_geometric.data import Data; from torch_gckm import GCKM;"
        "folder = sys.argv[1]; data = Data(**torch.load(folder + '/new.pt'));"
        "torch.save(GCKM.load(folder + '/model.pt').scores(data), folder + '/scores.pt')"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    new.x = new.x.double()
    assert torch.equal(torch.load(tmp_path / "scores.pt"), model.scores(new))


def test_what_cannot_be_saved_says_so(graph, tmp_path):
    model = fit(graph, kernel=[lambda a, b: torch.exp(-torch.cdist(a, b)), "rbf", "rbf"])
    with pytest.raises(InvalidInputError, match="Python function"):
        model.save(tmp_path / "model.pt")
    model = GCKM(8, (6, 4), 3, aggregation=Same())
    with pytest.raises(InvalidInputError, match="its own aggregation"):
        model.save(tmp_path / "model.pt")
    assert not (tmp_path / "model.pt").exists()
    torch.save({"format": 99}, tmp_path / "other.pt")
    with pytest.raises(InvalidInputError, match="not a model file"):
        GCKM.load(tmp_path / "other.pt")


class Same(torch.nn.Module):
    def forward(self, x, edge_index, edge_weight=None):
        return x


def test_deficient_rank_carries_through_the_layers(graph, tmp_path):
    model = GCKM(8, (12, 4), 3, kernel=["linear", "rbf", "rbf"])
    with pytest.warns(LowRankWarning, match="rank 8"):
        Trainer(model, steps=1, progress=False).fit(graph)
    assert model.layers[0].h.shape == (60, 8)
    assert model.layers[1].in_channels == 12  # What was asked for is not rewritten.
    model.save(tmp_path / "model.pt")
    loaded = GCKM.load(tmp_path / "model.pt")
    new = make_graph(20, seed=4)
    assert torch.equal(loaded.scores(new), model.scores(new))


def test_directions_differ_between_layers_and_are_saved(graph, tmp_path):
    directed = graph.clone()
    directed.edge_index = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    model = fit(directed, direction=["in", "out"])
    model.save(tmp_path / "model.pt")
    loaded = GCKM.load(tmp_path / "model.pt")
    assert torch.equal(loaded.scores(directed), model.scores(directed))
    assert torch.equal(loaded.inductive().scores(directed), model.inductive().scores(directed))
    assert not torch.allclose(fit(directed).readout.scores, model.readout.scores)


def test_a_kernel_of_ones_own_is_refused_when_saving(graph, tmp_path):
    class Mine(RBF):
        pass

    with pytest.raises(InvalidInputError, match="'Mine' is not one of"):
        fit(graph, kernel=Mine(1.0)).save(tmp_path / "model.pt")


@pytest.mark.parametrize("normalize", [None, "columns"])
def test_state_dicts_of_whole_models(graph, normalize):
    model, new = fit(graph, normalize=normalize), make_graph(20, seed=4)
    twin = GCKM(8, (6, 4), 3, normalize=normalize)
    twin.load_state_dict(model.state_dict())
    for found in (twin, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert found.is_fitted_on(graph)
        assert torch.equal(found(graph.x, graph.edge_index), model(graph.x, graph.edge_index))
        assert torch.equal(found.transform(new), model.transform(new))
        assert torch.equal(found.scores(new), model.scores(new))
    unfitted = GCKM(8, (6, 4), 3, normalize=normalize)
    twin.load_state_dict(unfitted.state_dict())
    assert not twin.is_fitted
    assert not twin.is_fitted_on(graph)
    assert twin.scaling.scale.numel() == 0
    with pytest.raises(NotFittedError):
        twin.scores(graph)
    with pytest.raises(NotFittedError):
        twin.embed()
    assert set(twin.state_dict()) == set(unfitted.state_dict())
    Trainer(twin, steps=0, progress=False).fit(graph)
    assert torch.equal(twin.readout.scores, model.readout.scores)
