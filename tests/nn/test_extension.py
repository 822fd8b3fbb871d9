"""Nodes that were not there when the model was fitted."""

import subprocess
import sys

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM
from torch_gckm.errors import NotFittedError
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.select import GCKMEnsemble

GRAMS = {"dense": "dense", "low_rank": LowRank(max_rank=40, tol=1e-3)}


def fitted(gram="dense", graph=None, **settings):
    graph = make_graph() if graph is None else graph
    model = GCKM(8, (6, 4), 3, kernel=[RBF(), RBF(), RBF() * RBF(scale=5.0).on("x")], gram=GRAMS[gram], **settings)
    model.initialize(graph).solve(graph)
    return model


@pytest.mark.parametrize("gram", GRAMS)
def test_the_fitted_graph_comes_back(gram):
    graph = make_graph()
    model = fitted(gram, graph)
    conv = model.layers[0]
    torch.testing.assert_close(conv.transform(graph.x, graph.edge_index), conv.h.detach(), rtol=1e-3, atol=1e-4)
    # What a low-rank matrix leaves of its diagonal is known of fitted nodes alone, and tells most of labelled ones.
    part = slice(None) if gram == "dense" else ~graph.train_mask
    torch.testing.assert_close(model.transform(graph)[part], model.readout.scores[part], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("gram", GRAMS)
@pytest.mark.parametrize("normalize", [None, "columns"])
def test_files_for_new_nodes(tmp_path, gram, normalize):
    model, new = fitted(gram, normalize=normalize), make_graph(25, seed=3)
    model.save(tmp_path / "small.pt", inductive=True)
    loaded = GCKM.load(tmp_path / "small.pt")
    torch.testing.assert_close(loaded.transform(new), model.transform(new))
    assert torch.equal(loaded.predict(new), model.predict(new))
    torch.testing.assert_close(loaded.embed(new, layer=0), model.embed(new, layer=0))
    known = torch.arange(25)
    for ask in (
        loaded.predict, loaded.embed, loaded.summary, lambda: loaded(new.x, new.edge_index), lambda: loaded.loss(new),
        lambda: loaded.transform(new, known=known),
    ):  # fmt: skip
        with pytest.raises(NotFittedError, match="inductive=True"):
            ask()
    loaded.save(tmp_path / "again.pt")  # There is nothing else to write.
    torch.testing.assert_close(GCKM.load(tmp_path / "again.pt").transform(new), model.transform(new))


def test_a_model_for_new_nodes_can_be_fitted_again_and_cast(tmp_path):
    graph, new = make_graph(), make_graph(25, seed=3)
    model = fitted("dense", graph)
    model.save(tmp_path / "small.pt", inductive=True)
    loaded = GCKM.load(tmp_path / "small.pt")
    torch.testing.assert_close(loaded.double().transform(new).float(), model.transform(new), rtol=1e-3, atol=1e-3)
    again = GCKM.load(tmp_path / "small.pt")
    other = make_graph(seed=5)
    again.initialize(other).solve(other)
    torch.testing.assert_close(again.transform(new), fitted("dense", other).transform(new), rtol=1e-3, atol=1e-3)


def test_small_files_hold_landmarks_alone(tmp_path):
    sizes = []
    for count in (300, 1200):
        model = GCKM(8, (6, 4), 3, gram=LowRank(max_rank=20, tol=1e-6))
        graph = make_graph(count)
        model.initialize(graph).solve(graph)
        model.save(tmp_path / "small.pt", inductive=True)
        sizes.append((tmp_path / "small.pt").stat().st_size)
        assert model.layers[0].extension.weights.size(0) <= 20
    assert sizes[1] < 1.2 * sizes[0]


def test_loading_needs_nothing_but_the_file(tmp_path):
    model, new = fitted("low_rank"), make_graph(25, seed=3)
    model.save(tmp_path / "small.pt", inductive=True)
    torch.save({"x": new.x, "edge_index": new.edge_index}, tmp_path / "new.pt")
    script = (
        "import sys, torch; from torch_geometric.data import Data; from torch_gckm import GCKM\n"
        "new = Data(**torch.load(sys.argv[2]))\n"
        "print(*GCKM.load(sys.argv[1]).predict(new).tolist())"
    )
    arguments = [sys.executable, "-c", script, str(tmp_path / "small.pt"), str(tmp_path / "new.pt")]
    printed = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    assert [int(number) for number in printed.split()] == model.predict(new).tolist()


def test_ensembles(tmp_path):
    graph, new = make_graph(), make_graph(25, seed=3)
    ensemble = GCKMEnsemble([fitted(gram, graph) for gram in GRAMS])
    ensemble.save(tmp_path / "small.pt", inductive=True)
    loaded = GCKMEnsemble.load(tmp_path / "small.pt")
    torch.testing.assert_close(loaded.predict_proba(new), ensemble.predict_proba(new))
    with pytest.raises(NotFittedError):
        loaded.predict()
    loaded.save(tmp_path / "again.pt")
    again = GCKMEnsemble.load(tmp_path / "again.pt")
    torch.testing.assert_close(again.predict_proba(new), ensemble.predict_proba(new))
    ensemble.save(tmp_path / "whole.pt")
    whole = GCKMEnsemble.load(tmp_path / "whole.pt")
    torch.testing.assert_close(whole.predict_proba(), ensemble.predict_proba())


def test_it_is_made_once_and_follows_the_fit():
    model = fitted("low_rank")
    conv = model.layers[0]
    before = conv.extension
    assert conv.extension is before
    with torch.no_grad():
        conv.h.mul_(-1.0)
    after = conv.extension
    assert after is not before
    torch.testing.assert_close(after.weights, -before.weights)


def test_progress(capsys):
    model, new = fitted(), make_graph(25, seed=3)
    model.transform(new, progress=True)
    shown = capsys.readouterr().err
    assert "layer 1" in shown
    assert "layer 2" in shown
    assert "readout" in shown
