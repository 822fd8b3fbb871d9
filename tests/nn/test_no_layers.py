"""Models without hidden layers: the readout on propagated features."""

import copy
import pickle

import pytest
import torch

from tests.conftest import make_graph, permute_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import GraphMismatchError, InvalidInputError, NotFittedError
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF, DenseFeatures, Laplacian, SparseFeatures
from torch_gckm.nn import ModelSettings, Propagation, PropagationSettings, SemiSupRKMReadout


def build(**arguments):
    return GCKM(8, (), 3, **{"aggregation": "ssgc", "hops": 4, **arguments})


def fit(data, **arguments):
    model = build(**arguments).to(data.x.dtype)
    Trainer(model, steps=0, progress=False).fit(data)
    return model


@pytest.fixture
def new():
    data = make_graph(25, seed=3)
    data.x = data.x.double()
    return data


def test_it_is_the_readout_on_propagated_features(graph64):
    for aggregation, arguments in (("ssgc", {}), ("gcn", {"lambda2": 0.3, "class_weight": "balanced"}), ("none", {})):
        model = fit(graph64, aggregation=aggregation, **arguments)
        h = Propagation(aggregation, 4)(graph64.x, graph64.edge_index)
        readout = SemiSupRKMReadout(8, 3, **arguments).double()
        expected = readout(h, graph64.y, graph64.train_mask)
        torch.testing.assert_close(model(graph64.x, graph64.edge_index), expected)
        torch.testing.assert_close(model.loss(graph64), readout.loss(h) / 60)
        torch.testing.assert_close(model.embed(), h)
        torch.testing.assert_close(model.embed(graph64), h)
    model = fit(graph64, kernel=RBF(3.0) * Laplacian(8.0).on("x"))
    h = Propagation("ssgc", 4)(graph64.x, graph64.edge_index)
    k = RBF(3.0)(h) * Laplacian(8.0)(graph64.x)
    torch.testing.assert_close(model.readout.scores, k @ model.readout.fit.alpha + model.readout.bias)


def test_there_is_nothing_to_fine_tune(graph):
    model = build()
    assert (model.layers, model.hidden_channels, model.in_channels, model.dtype) == ([], (), 8, torch.float32)
    history = Trainer(model, progress=False).fit(graph)
    assert len(history) == 1
    assert history.best_step == 0
    assert history.best.orthogonality == 0.0
    assert history.best.test_acc > 0.8
    left_out = model.readout.leave_one_out().argmax(dim=1)
    assert history.best.leave_one_out == float((left_out == graph.y[graph.train_mask]).double().mean())


def test_a_learned_bandwidth_is_trained(graph):
    model = build(kernel=RBF(3.0, learnable=True))
    history = Trainer(model, steps=3, kernel_lr=0.1, monitor="val_acc", progress=False).fit(graph)
    assert len(history) == 4
    assert len({record.loss for record in history}) == 4


def test_checkpoints(graph, tmp_path):
    first = build()
    history = Trainer(first, progress=False, checkpoint=tmp_path / "c.pt").fit(graph)
    second = build()
    again = Trainer(second, progress=False, checkpoint=tmp_path / "c.pt").fit(graph)
    assert len(again) == len(history) == 1
    assert torch.equal(first.readout.scores, second.readout.scores)
    other = build(aggregation=Propagation("ssgc", 4, alpha=0.5), hops=1)
    with pytest.raises(InvalidInputError, match="alpha"):
        Trainer(other, progress=False, checkpoint=tmp_path / "c.pt").fit(graph)


def test_leave_one_out_is_exact(graph64):
    model = fit(graph64, kernel=RBF(3.0))
    found = model.readout.leave_one_out()
    for place, node in enumerate(graph64.train_mask.nonzero().squeeze(1).tolist()):
        part = graph64.clone()
        part.train_mask = graph64.train_mask.clone()
        part.train_mask[node] = False
        expected = fit(part, kernel=RBF(3.0)).readout.scores[node]
        torch.testing.assert_close(found[place], expected, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("gram", ["dense", LowRank(max_rank=40, tol=1e-6)], ids=["dense", "low_rank"])
@pytest.mark.parametrize("normalize", [None, "columns", "l2"])
def test_files_and_copies(graph64, new, tmp_path, gram, normalize):
    aggregation = Propagation("ppr", 5, alpha=0.3)
    kernel = RBF(3.0) * RBF(9.0).on("x")
    model = fit(graph64, gram=gram, normalize=normalize, aggregation=aggregation, hops=1, kernel=kernel)
    model.save(tmp_path / "model.pt")
    model.save(tmp_path / "small.pt", inductive=True)
    twin = build(gram=gram, normalize=normalize, aggregation=aggregation, hops=1, kernel=kernel).double()
    assert not twin.is_fitted
    twin.load_state_dict(model.state_dict())
    loaded, small = GCKM.load(tmp_path / "model.pt"), GCKM.load(tmp_path / "small.pt")
    for found in (loaded, twin, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert found.is_fitted_on(graph64)
        assert found.propagation.key == ("ppr", 5, "in", 0.3, "given", 1.0)
        assert torch.equal(found(graph64.x, graph64.edge_index), model.readout.scores)
        assert torch.equal(found.scores(new), model.scores(new))
        assert torch.equal(found.embed(), model.embed())
        assert found.settings == model.settings
        assert found.summary() == model.summary()
    assert torch.equal(small.scores(new), model.scores(new))
    assert torch.equal(small.predict(new), model.predict(new))
    assert torch.equal(small.embed(new), model.embed(new))
    assert small.settings == model.settings
    lines = model.summary().splitlines()
    assert lines[0] == "features: 8, ppr^5 alpha=0.3"
    assert lines[1].startswith("readout: 6 labels, 3 classes")
    assert len(lines) == 2


def test_settings_go_round(graph64):
    model = fit(graph64, normalize="columns", direction="both", loss_weights=2.0)
    settings = ModelSettings.from_dict(model.settings.to_dict())
    assert settings == model.settings
    assert settings.layers == ()
    assert settings.layer_keys() == []
    assert (
        settings.propagation == PropagationSettings("ssgc", 4, "both", 0.05) == PropagationSettings("ssgc", 4, "both")
    )
    assert str(settings).startswith("columns | ssgc^4 both | ")
    twin = GCKM.from_settings(model.settings, 8, 3).double()
    Trainer(twin, progress=False).fit(graph64)
    assert torch.equal(twin.readout.scores, model.readout.scores)
    assert twin.loss_weights == (2.0,)
    joined = GCKM.with_readout(
        [], model.prepare(graph64), Propagation("ssgc", 4, "both"), SemiSupRKMReadout(8, 3).double()
    )
    assert joined.is_fitted_on(graph64)
    assert torch.equal(joined.solve(graph64), model.readout.scores)


def test_new_nodes(graph64, new):
    model = fit(graph64, kernel=RBF(3.0))
    h, h_new = (Propagation("ssgc", 4)(data.x, data.edge_index) for data in (graph64, new))
    readout = model.readout
    expected = RBF(3.0)(h_new, h) @ readout.fit.alpha + readout.bias
    torch.testing.assert_close(model.scores(new), expected)
    assert torch.equal(model.predict(new), expected.argmax(dim=1))
    torch.testing.assert_close(model.embed(new), h_new)
    torch.testing.assert_close(model.transform(new), h_new)
    torch.testing.assert_close(model.inductive().scores(graph64), readout.scores)
    with pytest.raises(GraphMismatchError, match="Use transform"):
        model(new.x, new.edge_index)


@pytest.mark.parametrize("kernel", [RBF(3.0), RBF(3.0) * RBF(9.0).on("x")], ids=["one view", "two views"])
@pytest.mark.parametrize("sparse", [False, True])
def test_known_nodes_keep_what_the_readout_read(graph64, kernel, sparse):
    """A graph that grew: fitted nodes have new neighbours, but keep their features, places and scores."""
    model = fit(graph64, kernel=kernel)
    order = torch.randperm(70, generator=torch.Generator().manual_seed(0))
    place = torch.argsort(order)
    joined = torch.stack([torch.arange(10), torch.arange(60, 70)])
    edges = torch.cat([graph64.edge_index, joined, joined.flip(0)], dim=1)
    x = torch.cat([graph64.x, 2.0 + graph64.x[:10]])[order]
    grown = graph64.clone()
    grown.x, grown.edge_index = x.to_sparse() if sparse else x, place[edges]
    known, fresh = place[:60], place[60:]
    scores = model.scores(grown, known=known)
    torch.testing.assert_close(scores[known], model.readout.scores)
    torch.testing.assert_close(scores[fresh], model.scores(grown)[fresh])
    assert not torch.allclose(model.scores(grown)[known], scores[known])
    h = model.transform(grown, known=known)
    torch.testing.assert_close(h[known], model.embed())
    torch.testing.assert_close(h[fresh], model.embed(grown)[fresh])
    for bad in (known[:5], known.double(), torch.zeros_like(known)):
        for ask in (model.scores, model.transform):
            with pytest.raises(InvalidInputError, match="'known' must"):
                ask(grown, known=bad)


def test_permuting_nodes_permutes_the_scores(graph64):
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    moved = permute_graph(graph64, order)
    a, b = fit(graph64), fit(moved)
    torch.testing.assert_close(a.readout.scores[order], b.readout.scores, atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(a.embed()[order], b.embed())


@pytest.mark.parametrize("stays_sparse", [False, True])
def test_sparse_features(graph64, new, monkeypatch, stays_sparse):
    if stays_sparse:
        monkeypatch.setattr("torch_gckm.graph.prepared._DENSE_ABOVE", 1.0)
    graph64.x, new.x = (data.x * (data.x > 0.5) for data in (graph64, new))
    dense, thin = fit(graph64, normalize="columns"), graph64.clone()
    thin.x = graph64.x.to_sparse()
    model = fit(thin, normalize="columns")
    kind = SparseFeatures if stays_sparse else DenseFeatures
    assert isinstance(model.readout.fit.rows(), kind)
    torch.testing.assert_close(model.readout.scores, dense.readout.scores)
    torch.testing.assert_close(model.embed(), dense.embed())
    torch.testing.assert_close(model.scores(new), dense.scores(new))
    assert torch.equal(copy.deepcopy(model).scores(new), model.scores(new))


def test_not_fitted_and_refused(graph):
    model = build()
    for ask in (model.predict, model.embed, lambda: model.loss(graph), lambda: model.scores(graph), model.summary,
                lambda: model.transform(graph), lambda: model.solve(graph)):  # fmt: skip
        with pytest.raises(NotFittedError):
            ask()
    for alpha in (-0.1, 1.1, float("nan")):
        with pytest.raises(InvalidInputError, match="'alpha' is a number from 0 to 1"):
            Propagation("ssgc", 4, alpha=alpha)
    with pytest.raises(InvalidInputError, match="'alpha' is a number from 0 to 1 for 'ssgc' and 'ppr'"):
        Propagation("gcn", alpha=0.1)
    with pytest.raises(InvalidInputError, match="'kernel' needs 1 entries"):
        build(kernel=["rbf", "rbf"])
    with pytest.raises(InvalidInputError, match="'hops' needs 1 entries"):
        build(hops=[1, 2])
    part = graph.clone()
    part.x = graph.x[:, :3]
    with pytest.raises(InvalidInputError, match=r"shape \[n, 8\], got \(60, 3\)"):
        Trainer(model, progress=False).fit(part)
