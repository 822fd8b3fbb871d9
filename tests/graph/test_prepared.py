"""A graph as the layers see it: what it keeps, shares and never hands out."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch_geometric.data import Data

from tests.conftest import make_graph
from torch_gckm import GCKM, GCKMConv, SemiSupRKMReadout
from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import PreparedGraph, Propagation, Scaling, Topology, check_features
from torch_gckm.graph.topology import PropagationMatrix
from torch_gckm.kernels import RBF, DenseFeatures, SparseFeatures

pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse CSR tensor support is in beta")


def prepared(data, normalize=None, dtype=torch.float32):
    return PreparedGraph.of(data, Scaling(normalize).fitted_to(data.x), dtype)


def test_what_it_is_made_of(graph):
    weighted = graph.clone()
    weighted.edge_weight = torch.rand(graph.num_edges)
    made = prepared(weighted, "l2")
    assert made.num_nodes == 60
    assert made.given is weighted.x
    torch.testing.assert_close(made.x, torch.nn.functional.normalize(graph.x))
    assert made.topology.edges is weighted.edge_index
    assert made.topology.weight is weighted.edge_weight
    assert repr(made) == "PreparedGraph(60 nodes, 320 edges, 8 features)"
    assert repr(made.topology) == "Topology(60 nodes, 320 edges)"
    assert prepared(graph, dtype=torch.float64).x.dtype == torch.float64


@pytest.mark.parametrize("kind", ["gcn", "sum", "mean", "none", "ssgc", "ppr"])
@pytest.mark.parametrize("normalize", [None, "l2", "columns"])
def test_propagated_features(graph, kind, normalize):
    made, propagation = prepared(graph, normalize), Propagation(kind, 2)
    expected = propagation(made.scaling(graph.x), graph.edge_index)
    torch.testing.assert_close(made.propagated(propagation).dense(), expected)
    assert made.propagated(Propagation(kind, 2)) is made.propagated(propagation)
    torch.testing.assert_close(made.input.dense(), made.scaling(graph.x))


def test_sparse_features_stay_sparse(graph, monkeypatch):
    monkeypatch.setattr("torch_gckm.graph.prepared._DENSE_ABOVE", 1.0)  # All of these are full.
    graph.x = graph.x.to_sparse()
    for normalize in (None, "l2", "columns"):
        made = prepared(graph, normalize)
        for features in (made.input, made.propagated(Propagation("gcn", 2)), made.propagated(Propagation("none"))):
            assert isinstance(features, SparseFeatures)
            assert features.matrix.layout == torch.sparse_csr


@pytest.mark.parametrize("kind", ["gcn", "ssgc", "ppr"])
def test_propagated_features_are_sparse_or_dense(kind):
    """Whichever is cheaper, with the same numbers."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(400, (2, 1600), generator=generator)
    x = (torch.rand(400, 300, generator=generator, dtype=torch.float64) < 0.01).double().to_sparse()
    made = PreparedGraph(x, Topology(edges, None, 400), Scaling(), torch.float64)
    near, far = made.propagated(Propagation(kind, 1)), made.propagated(Propagation(kind, 4))
    assert isinstance(near, SparseFeatures)
    assert isinstance(far, DenseFeatures)
    for features, hops in ((near, 1), (far, 4)):
        expected = Propagation(kind, hops)(x.to_dense(), edges)
        torch.testing.assert_close(features.dense(), expected)
        torch.testing.assert_close(features.sq_norm(), expected.square().sum(dim=1))
        torch.testing.assert_close(features.dot(features.rows(torch.tensor([3, 7]))), expected @ expected[[3, 7]].t())


def test_dense_bags_of_words_take_the_sparse_route_on_their_own(monkeypatch):
    def propagated(x):
        edges = make_graph().edge_index
        return PreparedGraph(x, Topology(edges, None, x.size(0)), Scaling(), x.dtype).propagated(Propagation())

    assert isinstance(propagated(make_graph().x), DenseFeatures)
    large = torch.zeros(1100, 1000)
    large[:, 0] = 1.0
    assert isinstance(propagated(large), SparseFeatures)
    assert isinstance(propagated(torch.ones(1100, 1000)), DenseFeatures)
    monkeypatch.setattr("torch_gckm.layouts.SPARSE_BELOW", 0.0)
    assert isinstance(propagated(large), DenseFeatures)


def test_at_most_eight_propagated_features_are_kept(graph):
    made = prepared(graph)
    propagations = [Propagation("gcn", hops) for hops in range(1, 10)]
    features = [made.propagated(propagation) for propagation in propagations[:8]]
    assert [made.propagated(propagation) for propagation in propagations[:8]] == features
    made.propagated(propagations[0])  # Used last: the second one goes now.
    made.propagated(propagations[8])
    assert made.propagated(propagations[0]) is features[0]
    assert made.propagated(propagations[2]) is features[2]
    again = made.propagated(propagations[1])
    assert again is not features[1]
    assert torch.equal(again.dense(), features[1].dense())


@pytest.fixture
def hasty():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_threads_may_share_a_graph(graph, monkeypatch):
    def propagate(self, propagation):
        time.sleep(0)  # Another thread's turn.
        return propagation.key

    monkeypatch.setattr(PreparedGraph, "_propagate_input", propagate)
    made = prepared(graph)
    propagations = [Propagation("gcn", hops) for hops in range(1, 13)]  # More than are kept.

    def ask(start):
        order = [propagations[(start + number) % 12] for number in range(2000)]
        return all(made.propagated(propagation) == propagation.key for propagation in order)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


def test_modules_and_tracked_features_are_propagated_in_every_call(graph):
    """They change without notice."""
    module = torch.nn.Linear(8, 8)
    aggregate = Weighted(module)
    made = prepared(graph)
    before = made.propagated(aggregate).dense()
    with torch.no_grad():
        module.weight.zero_()
    assert not torch.equal(made.propagated(aggregate).dense(), before)
    tracked = PreparedGraph(graph.x.clone().requires_grad_(), made.topology, Scaling(), torch.float32)
    first, second = (tracked.propagated(Propagation()) for _ in range(2))
    assert first is not second
    assert first.requires_grad
    weight = torch.rand(graph.num_edges, requires_grad=True)
    by_weight = PreparedGraph(graph.x, Topology(graph.edge_index, weight, 60), Scaling(), torch.float32)
    for _ in range(2):
        by_weight.propagated(Propagation()).dense().sum().backward()
    assert bool(weight.grad.any())


def test_edges_and_matrices_are_shared_by_scaled_graphs(graph, monkeypatch):
    built, real = [], PropagationMatrix
    monkeypatch.setattr("torch_gckm.graph.topology.PropagationMatrix", lambda *args: built.append(1) or real(*args))
    made = prepared(graph)
    scaled = made.scaled(Scaling("l2")).scaled(Scaling("columns").fitted_to(graph.x))
    assert scaled.topology is made.topology
    assert scaled.identity == made.identity  # Of the features as they were given.
    spread = graph.x.std(dim=0, correction=0)
    torch.testing.assert_close(scaled.x, graph.x / spread)
    torch.testing.assert_close(
        scaled.propagated(Propagation("gcn", 2)).dense(), made.propagated(Propagation("gcn", 2)).dense() / spread
    )
    assert len(built) == 1


def test_layers_that_propagate_alike_share_one_matrix(graph, monkeypatch):
    built, real = [], PropagationMatrix
    monkeypatch.setattr("torch_gckm.graph.topology.PropagationMatrix", lambda *args: built.append(1) or real(*args))
    GCKM(8, (6, 5, 4), 3, hops=[1, 1, 2]).initialize(graph)
    assert len(built) == 1
    GCKM(8, (6, 5, 4), 3, aggregation=["gcn", "sum", "gcn"]).initialize(graph)
    assert len(built) == 3


class TestFitsNeverHoldTheTensorOfTheCaller:
    @pytest.mark.parametrize(("layout", "aggregation"), [
        ("strided", "gcn"), ("strided", "none"), ("strided", "same"), ("strided", "view"),
        ("csr", "gcn"), ("csr", "none"), ("csr", "dense"),
    ])  # fmt: skip
    @pytest.mark.parametrize("normalize", [None, "l2"])
    def test_of_a_layer(self, layout, aggregation, normalize):
        graph = make_graph()
        graph.x = graph.x.to_sparse_csr() if layout == "csr" else graph.x
        kernel = RBF(2.0) * RBF(3.0).on("x")
        module = {"same": Same(), "view": FirstColumns(), "dense": ToDense()}.get(aggregation, aggregation)
        model = GCKM(8, (4,), 3, kernel=[kernel, RBF(0.1)], aggregation=module, normalize=normalize).initialize(graph)
        new = make_graph(20, seed=1)
        before = model.transform(new)
        views = [view.clone() for view in model.layers[0].fit.views.values()]
        assert not shares_memory(graph.x, *model.layers[0].fit.views.values())
        (graph.x if layout == "strided" else graph.x.values()).fill_(7.0)
        assert all(map(equal, views, model.layers[0].fit.views.values()))
        assert torch.equal(model.transform(new), before)

    def test_of_a_layer_alone(self, graph):
        conv = GCKMConv(8, 4, kernel=RBF(2.0) * RBF(3.0).on("x"), aggregation="none").initialize(graph.x)
        conv.loss(graph.x)
        assert not shares_memory(graph.x, *conv.fit.views.values())
        same = GCKMConv(8, 4, kernel=RBF(2.0), aggregation=Same()).initialize(graph.x)
        same.loss(graph.x)
        assert not shares_memory(graph.x, *same.fit.views.values())

    def test_of_a_readout(self, graph):
        readout = SemiSupRKMReadout(8, 3, kernel=RBF(2.0) * RBF(3.0).on("x"))
        scores = readout({"h": graph.x, "x": graph.x}, graph.y, graph.train_mask)
        fit = readout.fit
        assert not shares_memory(graph.x, *fit.views.values(), fit.scores)
        assert not shares_memory(graph.y, fit.label_class)
        scores.fill_(0.0)  # The result belongs to the caller.
        assert bool(readout.scores.any())

    def test_of_a_model(self, graph):
        model = GCKM(8, (4, 3), 3, kernel=["rbf", "rbf", RBF() * RBF().on("x")]).initialize(graph)
        model.solve(graph)
        fits = (*(layer.fit for layer in model.layers), model.readout.fit)
        for fit in fits:
            assert not shares_memory(graph.x, *fit.views.values())
        parameters = [layer.h.detach() for layer in model.layers]  # Training writes to them.
        for h in parameters:
            assert not shares_memory(h, *(view for fit in fits for view in fit.views.values()))


def test_what_is_refused(graph):
    with pytest.raises(InvalidInputError, match=r"shape \[n, 5\], got \(60, 8\)"):
        check_features(graph.x, 5)
    with pytest.raises(InvalidInputError, match=r"shape \[n, d\], got \(60,\)"):
        check_features(graph.x[:, 0])
    with pytest.raises(InvalidInputError, match="bipartite"):
        check_features((graph.x, graph.x))
    graph.x[4, 2] = torch.nan
    with pytest.raises(InvalidInputError, match="first in row 4"):
        prepared(graph)
    with pytest.raises(InvalidInputError, match="but there are 60 nodes"):
        prepared(Data(x=make_graph().x, edge_index=torch.tensor([[0], [60]])))


class Weighted(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x, edge_index, edge_weight=None):
        return self.linear(x)


class Same(torch.nn.Module):
    def forward(self, x, edge_index, edge_weight=None):
        return x


class FirstColumns(torch.nn.Module):
    def forward(self, x, edge_index, edge_weight=None):
        return x[:, :5]


class ToDense(torch.nn.Module):
    def forward(self, x, edge_index, edge_weight=None):
        return x.to_dense()


def parts(x):
    return [x] if x.layout == torch.strided else [x.values(), x.crow_indices(), x.col_indices()]


def shares_memory(x, *others):
    own = {part.untyped_storage().data_ptr() for part in parts(x)}
    return any(part.untyped_storage().data_ptr() in own for other in others for part in parts(other))


def equal(a, b):
    return torch.equal(a.to_dense(), b.to_dense())
