"""Nodes that were not there when the model was fitted."""

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF

GRAMS = {"dense": "dense", "low_rank": LowRank(max_rank=40, tol=1e-3)}


def fitted(gram="dense", graph=None, **settings):
    graph = make_graph() if graph is None else graph
    model = GCKM(8, (6, 4), 3, kernel=[RBF(), RBF(), RBF() * RBF(scale=5.0).on("x")], gram=GRAMS[gram], **settings)
    model.initialize(graph).solve(graph)
    return model


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("gram", GRAMS)
def test_the_fitted_graph_comes_back(gram, power):
    graph = make_graph()
    model = fitted(gram, graph, power=power)
    conv = model.layers[0]
    torch.testing.assert_close(conv.transform(graph.x, graph.edge_index), conv.z.detach(), rtol=1e-3, atol=1e-4)
    # What a low-rank matrix leaves of its diagonal is known of fitted nodes alone, and tells most of labelled ones.
    part = slice(None) if gram == "dense" else ~graph.train_mask
    extended = model.inductive().scores(graph)
    torch.testing.assert_close(extended[part], model.readout.scores[part], rtol=2e-2, atol=2e-2)
    assert torch.equal(model.scores(graph), model.readout.scores)


def test_it_is_made_once_and_follows_the_fit():
    model = fitted("low_rank")
    conv = model.layers[0]
    before = conv.out_of_sample().extension
    assert conv.out_of_sample().extension is before
    with torch.no_grad():
        conv.h.mul_(-1.0)
    after = conv.out_of_sample().extension
    assert after is not before
    torch.testing.assert_close(after.weights, -before.weights)
    conv.kernel.sigma2.mul_(2.0)
    assert conv.out_of_sample().extension is not after


def test_that_of_a_readout_follows_its_numbers():
    readout = fitted("low_rank").readout
    before = readout.out_of_sample().extension
    assert readout.out_of_sample().extension is before
    readout.eta = 2.0
    after = readout.out_of_sample().extension
    torch.testing.assert_close(after.weights, before.weights / 2)


def test_it_holds_landmarks_alone():
    graph = make_graph()
    for gram, most in (("low_rank", 40), ("dense", 60)):
        model = fitted(gram, graph)
        for part in (*model.layers, model.readout):
            extension = part.out_of_sample().extension
            rows = extension.weights.size(0)
            assert rows <= most
            assert all(view.size(0) == rows for view in extension.views.values())
            assert extension.weights.dtype == extension.offset.dtype == torch.float64


def test_nodes_are_taken_a_block_at_a_time(monkeypatch):
    model, new = fitted("low_rank"), make_graph(25, seed=3)
    whole = model.scores(new)
    monkeypatch.setattr("torch_gckm.blocks.BLOCK_ENTRIES", 200)
    torch.testing.assert_close(model.scores(new), whole)


def test_progress(capsys):
    model, new = fitted(), make_graph(25, seed=3)
    model.scores(new, progress=True)
    shown = capsys.readouterr().err
    assert "layer 1" in shown
    assert "layer 2" in shown
    assert "readout" in shown
    model.transform(new, progress=True)
    shown = capsys.readouterr().err
    assert "layer 2" in shown
    assert "readout" not in shown
