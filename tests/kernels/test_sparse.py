import copy

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import PreparedGraph, Propagation, Scaling, Topology
from torch_gckm.kernels import RBF, DenseFeatures, Linear, Polynomial, SparseFeatures
from torch_gckm.layouts import to_csr

pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse CSR tensor support is in beta")


def words(n=60, d=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(n, d, generator=generator) < 0.1).double() * torch.rand(n, d, generator=generator).double()


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("kind", ["gcn", "sum", "mean", "none", "ssgc", "ppr"])
def test_equals_dense_features(hops, kind, monkeypatch):
    monkeypatch.setattr("torch_gckm.graph.prepared._DENSE_ABOVE", 1.0)  # However full they are.
    x, edges = words(), make_graph().edge_index
    dense = DenseFeatures(Propagation(kind, hops)(x, edges))
    graph = PreparedGraph(to_csr(x), Topology(edges, None, 60), Scaling(), x.dtype)
    sparse = graph.propagated(Propagation(kind, hops))
    assert isinstance(sparse, SparseFeatures)
    torch.testing.assert_close(sparse.dense(), dense.x)
    torch.testing.assert_close(sparse.sq_norm(), dense.sq_norm())
    torch.testing.assert_close(sparse.mean(), dense.mean())
    picked = torch.tensor([5, 2, 33])
    torch.testing.assert_close(sparse.rows(picked).dense(), dense.x[picked])
    torch.testing.assert_close(sparse.rows(slice(3, 9)).dense(), dense.x[3:9])
    torch.testing.assert_close(sparse.dot(sparse.rows(picked)), dense.x @ dense.x[picked].t())
    assert sparse.to(torch.float32).dtype == torch.float32
    for kernel in (RBF(1.0), Linear(), Polynomial(2, 1.0)):
        torch.testing.assert_close(kernel(sparse, sparse.rows(picked)), kernel(dense, dense.rows(picked)))
        torch.testing.assert_close(kernel(sparse), kernel(dense))
        torch.testing.assert_close(kernel(sparse, diag=True), kernel(dense, diag=True))
    torch.testing.assert_close(RBF().fit(sparse).sigma2, RBF().fit(dense).sigma2)


def test_rows_know_where_they_are_from():
    sparse = SparseFeatures(to_csr(words()))
    picked = torch.tensor([5, 2])
    matrix = RBF(1e-6)(sparse, sparse.rows(picked))
    assert torch.equal(matrix[picked, torch.arange(2)], torch.ones(2, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore::torch_gckm.errors.ZeroRowWarning")
@pytest.mark.parametrize("gram", ["dense", "low_rank"])
@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_models_take_sparse_features(gram, layout, tmp_path):
    data = make_graph()
    data.x = words().float()
    data.x[7] = 0.0
    sparse = data.clone()
    sparse.x = data.x.to_sparse_csr() if layout == "csr" else data.x.to_sparse()
    models = []
    for graph in (data, sparse):
        model = GCKM(40, (6, 4), 3, kernel=["rbf", "rbf", RBF(0.1) * RBF(5.0).on("x")], gram=gram, normalize="l2")
        Trainer(model, steps=1, progress=False).fit(graph)
        models.append(model)
    torch.testing.assert_close(models[0].readout.scores, models[1].readout.scores, atol=1e-3, rtol=1e-3)
    assert models[1].is_fitted_on(data)
    models[1].save(tmp_path / "model.pt")
    loaded = GCKM.load(tmp_path / "model.pt")
    assert loaded.is_fitted_on(sparse)
    torch.testing.assert_close(loaded.scores(data), models[1].scores(data))
    extended = models[1].inductive()
    torch.testing.assert_close(loaded.inductive().scores(data), extended.scores(data))
    torch.testing.assert_close(extended.scores(sparse), extended.scores(data), atol=1e-4, rtol=1e-4)


def test_the_view_of_the_input_may_be_sparse(monkeypatch):
    data = make_graph(300)
    x = torch.zeros(300, 4000).double()
    x[:, :8] = data.x
    data.x = x
    models = []
    for below in (0.02, 0.0):
        monkeypatch.setattr("torch_gckm.layouts.SPARSE_BELOW", below)
        model = GCKM(4000, 4, 3, kernel=["rbf", RBF() * RBF().on("x")])
        Trainer(model.double(), steps=2, progress=False).fit(data)
        models.append(model)
    assert [model.readout.fit.view_x.layout for model in models] == [torch.sparse_csr, torch.strided]
    torch.testing.assert_close(models[0].readout.scores, models[1].readout.scores)
    new = make_graph(20, seed=3)
    new.x = torch.nn.functional.pad(new.x.double(), (0, 3992))
    torch.testing.assert_close(models[0].scores(new), models[1].scores(new))


def test_models_of_sparse_features_can_be_copied():
    data = make_graph()
    data.x = to_csr(words())
    model = GCKM(40, 3, 3, kernel=["rbf", RBF() * RBF().on("x")]).double()
    Trainer(model, steps=0, progress=False).fit(data)
    copied = copy.deepcopy(model)
    copied.readout.fit.view_x.values().zero_()
    other = make_graph(20, seed=2)
    other.x = words(20, seed=1)
    assert torch.equal(copy.deepcopy(model).scores(other), model.scores(other))
    assert not torch.equal(copied.scores(other), model.scores(other))


def test_bad_input():
    with pytest.raises(InvalidInputError, match="gradients"):
        SparseFeatures(to_csr(words().requires_grad_()))
    with pytest.raises(InvalidInputError, match="columns"):
        Linear()(SparseFeatures(to_csr(words())), torch.ones(2, 3))
    bad = words()
    bad[3, 3] = torch.nan
    with pytest.raises(InvalidInputError, match="NaN"):
        GCKM(40, (4,), 3).double().initialize(make_graph().update({"x": bad.to_sparse_csr()}))
