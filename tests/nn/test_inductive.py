"""Fitted models apart from the graph that they were fitted on."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch

from tests.conftest import make_graph
from tests.nn.test_extension import GRAMS, fitted
from torch_gckm import GCKM
from torch_gckm.gram import LowRank
from torch_gckm.nn import InductiveGCKM
from torch_gckm.select import GCKMEnsemble
from torch_gckm.select.inductive_ensemble import InductiveEnsemble


@pytest.mark.parametrize("gram", GRAMS)
@pytest.mark.parametrize("normalize", [None, "columns"])
def test_files_for_new_nodes(tmp_path, gram, normalize):
    model, new = fitted(gram, normalize=normalize), make_graph(25, seed=3)
    model.save(tmp_path / "small.pt", inductive=True)
    loaded = GCKM.load(tmp_path / "small.pt")
    assert type(loaded) is InductiveGCKM
    torch.testing.assert_close(loaded.scores(new), model.scores(new))
    assert torch.equal(loaded.predict(new), model.predict(new))
    torch.testing.assert_close(loaded.predict_proba(new), model.predict_proba(new))
    torch.testing.assert_close(loaded.embed(new, layer=0), model.embed(new, layer=0))
    torch.testing.assert_close(loaded.embed(new), model.transform(new))
    loaded.save(tmp_path / "again.pt")  # There is nothing else to write.
    again = GCKM.load(tmp_path / "again.pt")
    assert type(again) is InductiveGCKM
    torch.testing.assert_close(again.scores(new), model.scores(new))
    sizes = [(tmp_path / name).stat().st_size for name in ("again.pt", "small.pt")]
    assert sizes[0] == pytest.approx(sizes[1], abs=256)  # Pickles of the same content may differ by some bytes.


def test_what_needs_the_fitted_graph_is_not_there(graph):
    small = fitted("low_rank", graph).inductive()
    for name in ("loss", "solve", "solve_on", "initialize", "is_fitted_on", "summary", "data_id", "inductive"):
        assert not hasattr(small, name)
    for ask in (small.scores, small.predict, small.predict_proba, small.embed):
        with pytest.raises(TypeError):
            ask()  # Without a graph there is nothing to answer.
    with pytest.raises(TypeError):
        small.scores(graph, known=torch.arange(60))


def test_the_fitted_graph_is_a_graph_like_any_other(graph):
    model = fitted("low_rank", graph)
    small = model.inductive()
    assert not torch.equal(small.scores(graph), model.scores(graph))
    torch.testing.assert_close(small.embed(graph), model.transform(graph))


def test_facts_and_repr(tmp_path):
    model = fitted("low_rank", normalize="l2", aggregation=["sum", "mean"], hops=[1, 2], code="binary")
    model.save(tmp_path / "small.pt", inductive=True)
    for small in (model.inductive(), GCKM.load(tmp_path / "small.pt")):
        assert small.settings == model.settings
        assert (small.in_channels, small.out_channels) == (8, 3)
        assert small.dtype == torch.float32
        assert repr(small) == f"InductiveGCKM(8, {model.settings}, 3 classes)"
        assert "sum 6" in repr(small)
        assert "mean^2 4" in repr(small)
        assert "\n" not in repr(small)


def test_it_takes_prepared_graphs():
    small, new = fitted(normalize="columns").inductive(), make_graph(25, seed=3)
    prepared = small.prepare(new)
    assert small.prepare(prepared) is prepared
    assert torch.equal(small.scores(prepared), small.scores(new))
    assert torch.equal(small.embed(prepared), small.embed(new))


@pytest.mark.parametrize("gram", GRAMS)
def test_it_can_be_cast_and_copied(tmp_path, gram):
    model, new = fitted(gram), make_graph(25, seed=3)
    model.save(tmp_path / "small.pt", inductive=True)
    loaded = GCKM.load(tmp_path / "small.pt")
    expected = loaded.scores(new)
    for twin in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert torch.equal(twin.scores(new), expected)
    wide = copy.deepcopy(loaded).double()
    assert wide.dtype == torch.float64
    assert wide.scores(new).dtype == torch.float64
    torch.testing.assert_close(wide.scores(new).float(), model.scores(new), rtol=1e-3, atol=1e-3)
    wide.save(tmp_path / "wide.pt")
    assert GCKM.load(tmp_path / "wide.pt").dtype == torch.float64
    assert torch.equal(loaded.scores(new), expected)


@pytest.mark.parametrize("gram", GRAMS)
def test_what_happens_to_it_does_not_happen_to_the_model(gram):
    model, new = fitted(gram, normalize="columns"), make_graph(25, seed=3)
    expected = model.scores(new)
    small = model.inductive().half()
    for part in (small.readout, *small.layers):
        part.extension.weights.zero_()
        next(part.kernel.leaves()).sigma2.fill_(7.0)
    assert model.dtype == torch.float32
    assert torch.equal(model.scores(new), expected)


def test_it_keeps_what_the_model_was():
    """A fit that is replaced later, or a bandwidth that changes, is not its own."""
    model, other, new = fitted(), make_graph(seed=5), make_graph(25, seed=3)
    small, expected = model.inductive(), model.scores(new)
    model.initialize(other).solve(other)
    assert not torch.allclose(model.scores(new), expected)
    assert torch.equal(small.scores(new), expected)
    torch.testing.assert_close(model.scores(new), fitted("dense", other).scores(new), rtol=1e-3, atol=1e-3)


def test_small_files_hold_landmarks_alone(tmp_path):
    sizes = []
    for count in (300, 1200):
        model = GCKM(8, (6, 4), 3, gram=LowRank(max_rank=20, tol=1e-6))
        graph = make_graph(count)
        model.initialize(graph).solve(graph)
        model.save(tmp_path / "small.pt", inductive=True)
        sizes.append((tmp_path / "small.pt").stat().st_size)
        assert model.layers[0].out_of_sample().extension.weights.size(0) <= 20
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
    assert isinstance(loaded, InductiveEnsemble)
    with pytest.raises(TypeError):
        loaded.predict()  # type: ignore[call-arg]
    loaded.save(tmp_path / "again.pt")
    again = GCKMEnsemble.load(tmp_path / "again.pt")
    torch.testing.assert_close(again.predict_proba(new), ensemble.predict_proba(new))
    ensemble.save(tmp_path / "whole.pt")
    whole = GCKMEnsemble.load(tmp_path / "whole.pt")
    torch.testing.assert_close(whole.predict_proba(), ensemble.predict_proba())
