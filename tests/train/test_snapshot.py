"""The state of a model at one step: kept, restored, written to files."""

import pytest
import torch

from tests.conftest import make_graph
from tests.train.helpers import KeepStep, model_for, state_equal
from torch_gckm import GCKM
from torch_gckm.files import load_tensors, save_tensors
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.train.history import Snapshot

MODELS = {
    "exact": {},
    "low rank": {"gram": LowRank(max_rank=30, tol=0.0)},
    "two views": {"kernel": [RBF(3.0), RBF(0.5), RBF(0.2) * RBF(10.0).on("x")], "normalize": "columns"},
    "learned": {"kernel": [RBF(3.0), RBF(0.5, learnable=True), RBF(0.2, learnable=True)]},
}


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def model(request, graph):
    return model_for(graph, **request.param)


def same_predictions(first, second, graph):
    """Whether two models agree on the fitted graph and on another, without any further solve."""
    other = make_graph(25, seed=4)
    if "x" not in first.readout.kernel.views:
        torch.testing.assert_close(first.readout.transform(first.embed()), second.readout.transform(second.embed()))
    torch.testing.assert_close(first.scores(), second.scores())
    torch.testing.assert_close(first.scores(other), second.scores(other))
    torch.testing.assert_close(first.embed(other), second.embed(other))
    torch.testing.assert_close(first.loss(graph).detach(), second.loss(graph).detach())


def test_what_is_restored_is_what_a_run_that_ends_there_holds(graph, model):
    last = GCKM.from_settings(model.settings, 8, 3)
    assert KeepStep(model, 4, kept=2).fit(graph).best_step == 2
    assert KeepStep(last, 2).fit(graph).best_step == 2
    same_predictions(model, last, graph)
    assert model.summary() == last.summary()


def test_a_resumed_checkpoint_restores_the_best_step(graph, model, tmp_path):
    fresh = GCKM.from_settings(model.settings, 8, 3)
    KeepStep(model, 3, kept=1, checkpoint=tmp_path / "checkpoint.pt").fit(graph)
    KeepStep(fresh, 3, kept=1, checkpoint=tmp_path / "checkpoint.pt").fit(graph)
    assert state_equal(model, fresh)
    same_predictions(model, fresh, graph)


def test_round_trip_through_a_file(graph, model, tmp_path):
    fresh = GCKM.from_settings(model.settings, 8, 3)
    KeepStep(model, 1).fit(graph)
    snapshot = Snapshot.of(model)
    state = snapshot.to_state()
    assert state.keys() == model.state_dict().keys()
    save_tensors(state, tmp_path / "state.pt")
    Snapshot.from_state(fresh, load_tensors(tmp_path / "state.pt")).restore(fresh)
    assert state_equal(model, fresh)
    same_predictions(model, fresh, graph)


def test_training_does_not_write_to_a_snapshot(graph, model):
    KeepStep(model, 1).fit(graph)
    snapshot = Snapshot.of(model)
    before = {name: tensor.clone() for name, tensor in snapshot.to_state().items()}
    scores = model.scores().clone()
    KeepStep(model, 3).fit(graph)
    assert not torch.equal(model.scores(), scores)
    assert all(torch.equal(tensor, before[name]) for name, tensor in snapshot.to_state().items())
    snapshot.restore(model)
    assert torch.equal(model.scores(), scores)


def test_without_a_solve(graph):
    model, fresh = model_for(graph), model_for(graph)
    model.initialize(graph)
    Snapshot.from_state(fresh, Snapshot.of(model).to_state()).restore(fresh)
    assert not fresh.is_fitted
    assert fresh.is_fitted_on(graph)
    assert torch.equal(fresh.embed(), model.embed())
    torch.testing.assert_close(fresh.solve(graph), model.solve(graph))
