"""Input that could be answered wrongly without a word."""

import math

import numpy as np
import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM, CayleyAdam, GCKMClassifier, GCKMClustering, GCKMConv, SemiSupRKMReadout, Trainer
from torch_gckm.errors import (
    GCKMError,
    GraphMismatchError,
    InvalidInputError,
    InvalidLabelError,
    UnlabelledClassWarning,
)
from torch_gckm.graph import Propagation
from torch_gckm.kernels import RBF, Laplacian, NormalizedPolynomial
from torch_gckm.manifold import random_stiefel
from torch_gckm.select import search


def classifier(**settings):
    return GCKMClassifier(budget=None, max_settings=6, workers=1, progress=False, **settings)


def rows_of(graph):
    return graph.x.numpy(), torch.where(graph.train_mask, graph.y, -1).numpy()


class TestEqualRows:
    def test_with_given_edges_they_are_different_nodes(self, graph):
        x, y = rows_of(graph)
        x = x.copy()
        x[40] = x[30]
        model = classifier().fit(x, y, edge_index=graph.edge_index.numpy())
        with pytest.raises(
            InvalidInputError, match="row 1 equals 2 nodes of the fitted graph, the first of them node 30"
        ):
            model.predict(x[[20, 40]])
        assert np.array_equal(model.predict(x), model.predict())
        assert np.array_equal(model.predict(x[20:30]), model.predict()[20:30])

    def test_edges_made_of_rows_cannot_tell_them_apart_either(self, graph):
        x, y = rows_of(graph)
        x = x.copy()
        x[40] = x[30]
        model = classifier().fit(x, y)
        assert model.predict(x[[40]]) == model.predict()[30]

    def test_a_row_has_one_answer_whatever_it_is_asked_with(self, graph):
        x, y = rows_of(graph)
        x = x.copy()
        x[40] = x[30]
        model = classifier().fit(x, y)
        together = model.predict_proba(x)
        for rows in (slice(40, 41), slice(30, 41), slice(None, None, -1)):
            assert np.allclose(model.predict_proba(x[rows]), together[rows])


class TestEdgeWeights:
    @pytest.mark.parametrize("kind", ["gcn", "mean"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("neighbours", [1, 3, 7])
    def test_a_sum_of_zero_but_for_rounding_is_refused(self, kind, dtype, neighbours):
        edges = torch.stack([torch.arange(1, neighbours + 1), torch.zeros(neighbours, dtype=torch.long)])
        weight = torch.full((neighbours,), -1.0 / neighbours, dtype=dtype)  # And 1 of the self-loop.
        with pytest.raises(InvalidInputError, match="node 0 has a total edge weight of"):
            Propagation(kind)(torch.rand(9, 2, dtype=dtype), edges, weight)

    @pytest.mark.parametrize("kind", ["gcn", "mean", "ssgc", "ppr"])
    def test_an_overflow_is_refused(self, kind):
        edges = torch.tensor([[1, 2], [0, 0]])
        with pytest.raises(InvalidInputError, match="node 0 has a total edge weight of inf"):
            Propagation(kind)(torch.rand(3, 2), edges, torch.full((2,), 3e38))

    def test_a_small_positive_sum_is_not(self):
        edges, weight = torch.tensor([[1, 0], [0, 0]]), torch.tensor([1e-20, 1e-20])
        x = torch.tensor([[1.0], [3.0]])
        assert Propagation("mean")(x, edges, weight)[0].item() == pytest.approx(2.0)


class TestLearnedBandwidths:
    @pytest.mark.parametrize("make", [RBF, Laplacian, NormalizedPolynomial])
    def test_another_fit_chooses_them_anew(self, make):
        graph, other = make_graph(), make_graph(seed=1)
        other.x = 7.0 * other.x
        model = GCKM(8, (4,), 3, kernel=[make(learnable=True), make(learnable=True)])
        Trainer(model, steps=2, progress=False).fit(graph)
        Trainer(model, steps=0, progress=False).fit(other)
        fresh = GCKM(8, (4,), 3, kernel=[make(learnable=True), make(learnable=True)])
        Trainer(fresh, steps=0, progress=False).fit(other)
        assert torch.equal(model.scores(), fresh.scores())

    def test_those_of_a_layer(self, graph):
        layer = GCKMConv(8, 4, RBF(learnable=True))
        layer.initialize(graph.x, graph.edge_index)
        first = layer.kernel.log_sigma2.item()
        layer.initialize(3.0 * graph.x, graph.edge_index)
        assert layer.kernel.log_sigma2.item() == pytest.approx(first + math.log(9.0))
        layer.reset_parameters()
        assert not layer.kernel.is_fitted

    def test_learning_goes_on_within_a_fit(self, graph):
        readout = SemiSupRKMReadout(8, 3, RBF(learnable=True))
        readout(graph.x, graph.y, graph.train_mask)
        with torch.no_grad():
            readout.kernel.log_sigma2.fill_(0.5)
        readout(graph.x, graph.y, graph.train_mask)
        assert readout.kernel.log_sigma2.item() == 0.5

    def test_a_model_from_a_file_starts_from_the_given_one(self, graph, tmp_path):
        model = GCKM(8, (4,), 3, kernel=[RBF(2.0, learnable=True), RBF(3.0, learnable=True)])
        Trainer(model, steps=2, progress=False).fit(graph)
        with torch.no_grad():
            model.readout.kernel.log_sigma2.fill_(1.0)
            model.solve(graph)
        model.save(tmp_path / "model.pt")
        loaded = GCKM.load(tmp_path / "model.pt")
        assert torch.equal(loaded.scores(), model.scores())
        assert "sigma2=2.71828" in repr(loaded.readout.kernel)
        for part in (model, loaded):
            Trainer(part, steps=0, progress=False).fit(graph)
        assert loaded.readout.kernel.log_sigma2.item() == pytest.approx(math.log(3.0))
        assert torch.equal(loaded.scores(), model.scores())

    def test_given_ones_stay(self):
        kernel = RBF(2.0) + RBF(3.0, learnable=True)
        kernel.reset_parameters()
        assert kernel.is_fitted
        assert repr(kernel) == repr(RBF(2.0) + RBF(3.0, learnable=True))


class TestLabels:
    @pytest.mark.parametrize("layers", [(), (4,)])
    def test_a_class_without_a_label_is_never_predicted(self, graph, layers):
        data = graph.clone()
        data.train_mask = graph.train_mask & (graph.y != 1)
        model = GCKM(8, layers, 3).initialize(data)
        with pytest.warns(UnlabelledClassWarning, match=r"no node is labelled with class \[1\]"):
            model.solve(data)
        assert not (model.predict() == 1).any()
        found = search(data, budget=None, max_settings=3, num_classes=3, workers=1, progress=False)
        assert not (found.ensemble(3).predict() == 1).any()
        assert not (classifier().fit(data).predict() == 1).any()

    @pytest.mark.parametrize("mask", [True, False])
    def test_minus_one_is_the_only_way_to_have_none(self, graph, mask):
        data = graph.clone()
        data.y = torch.where(graph.train_mask, graph.y, -1)
        data.y[0] = -100
        if not mask:
            del data.train_mask
        fits = (
            lambda: GCKM(8, (4,), 3).initialize(data).solve(data),
            lambda: Trainer(GCKM(8, (4,), 3), steps=0, progress=False).fit(data),
            lambda: search(data, budget=None, max_settings=1, progress=False),
            lambda: classifier().fit(data),
        )
        for fit in fits:
            with pytest.raises(InvalidLabelError, match="node 0 has the label -100"):
                fit()

    @pytest.mark.parametrize("new", [[1, 2, 0], [2, 1, 0], [0, 2, 1]])
    def test_renumbered_classes_have_the_same_probabilities(self, graph64, new):
        graph64.train_mask[:16] = True  # An uneven number of labels, 6, 5 and 5.
        other = graph64.clone()
        other.y = torch.tensor(new)[graph64.y]
        torch.set_default_dtype(torch.float64)
        try:
            first, second = (classifier().fit(data).predict_proba() for data in (graph64, other))
        finally:
            torch.set_default_dtype(torch.float32)
        assert torch.allclose(second[:, new], first, rtol=0.0, atol=1e-10)


class TestKernels:
    @pytest.mark.parametrize("gram", ["dense", "low_rank"])
    def test_an_asymmetric_one_is_refused(self, graph, gram):
        def lopsided(a, b):
            return torch.exp(-0.1 * torch.cdist(a, b).square()) * (1.0 + 0.1 * torch.sigmoid(a[:, :1]))

        with pytest.raises(GCKMError, match=r"symmetric|positive semi-definite"):
            SemiSupRKMReadout(8, 3, lopsided, gram=gram)(graph.x, graph.y, graph.train_mask)


class TestLayers:
    def test_one_whose_fit_fails_is_as_it_was(self, graph):
        layer = GCKMConv(8, 4, aggregation="none")
        layer.initialize(graph.x, graph.edge_index)
        before = layer.loss(graph.x, graph.edge_index).item()
        with pytest.raises(InvalidInputError, match="all rows are the same"):
            layer.initialize(torch.ones(60, 8), graph.edge_index)
        assert layer.loss(graph.x, graph.edge_index).item() == before
        assert layer.kernel.is_fitted

    def test_those_with_one_kernel_have_bandwidths_of_their_own(self, graph):
        kernel = RBF()
        first, second = GCKMConv(8, 4, kernel), GCKMConv(4, 3, kernel)
        z = first(graph.x, graph.edge_index).detach()
        second(z, graph.edge_index)
        assert torch.allclose(first.transform(graph.x, graph.edge_index), z, atol=1e-4)
        assert not kernel.is_fitted


class TestSecondFits:
    def test_they_see_what_was_written_through_numpy(self, graph):
        other = make_graph(seed=5)
        model = classifier().fit(graph)
        graph.x.numpy()[:] = other.x
        again, fresh = model.fit(graph).predict_proba(), classifier().fit(graph.clone()).predict_proba()
        assert torch.equal(again, fresh)

    def test_they_see_other_edges(self, graph):
        model = Trainer(GCKM(8, (4,), 3), steps=0, progress=False)
        model.fit(graph)
        graph.edge_index.data = make_graph(seed=5).edge_index
        model.fit(graph)
        fresh = Trainer(GCKM(8, (4,), 3), steps=0, progress=False)
        fresh.fit(graph.clone())
        assert torch.equal(model.model.scores(), fresh.model.scores())


class TestSearchCheckpoints:
    @pytest.mark.parametrize("name", ["x", "y", "train_mask", "edge_index", "edge_weight"])
    def test_they_belong_to_one_graph_and_its_labels(self, graph, tmp_path, name):
        graph.train_mask = graph.train_mask.float()
        graph.edge_weight = torch.ones(graph.num_edges)
        options = {"budget": None, "max_settings": 2, "workers": 1, "progress": False}
        search(graph, checkpoint=tmp_path / "search.pt", **options)
        change = {
            "x": lambda x: -x,
            "y": lambda y: (y + 1) % 3,
            "train_mask": lambda mask: mask * torch.linspace(0.5, 1.0, 60),
            "edge_index": lambda edges: edges[:, torch.arange(edges.size(1)) != 3],
            "edge_weight": lambda weight: 2.0 * weight,
        }
        graph[name] = change[name](graph[name])
        if name == "edge_index":
            graph.edge_weight = graph.edge_weight[1:]
        with pytest.raises(GraphMismatchError, match="belongs to another search"):
            search(graph, checkpoint=tmp_path / "search.pt", **options)


class TestChangedGraphs:
    @pytest.mark.parametrize("estimator", [classifier(), GCKMClustering(3)], ids=["classifier", "clustering"])
    def test_rows_are_refused_if_the_fitted_graph_was_written_to(self, graph, estimator):
        new = make_graph(10, seed=3).x.numpy()
        estimator.fit(graph)
        before = estimator.predict(new)
        kept = graph.x.clone()
        graph.x.copy_(make_graph(seed=5).x)
        with pytest.raises(GraphMismatchError, match="the fitted graph was changed"):
            estimator.predict(new)
        graph.x.numpy()[:] = kept
        assert torch.equal(estimator.predict(new), before)


class TestGradients:
    @pytest.mark.parametrize("value", [1e30, torch.inf, torch.nan])
    def test_one_that_cannot_be_squared_is_refused(self, value):
        h = torch.nn.Parameter(random_stiefel(20, 4, seed=0))
        optimizer = CayleyAdam([h], lr=0.1, stiefel=True)
        h.grad = torch.ones(20, 4)
        optimizer.step()
        before, state = h.detach().clone(), {name: value.clone() for name, value in optimizer.state[h].items()}
        h.grad[0, 0] = value
        with pytest.raises(InvalidInputError, match="gradient of a Stiefel parameter is not a number, or too large"):
            optimizer.step()
        assert torch.equal(h, before)
        assert all(torch.equal(optimizer.state[h][name], value) for name, value in state.items())

    def test_a_huge_one_leaves_an_orthonormal_matrix(self):
        h = torch.nn.Parameter(random_stiefel(20, 4, seed=0))
        optimizer = CayleyAdam([h], lr=0.1, stiefel=True)
        for value in (1e18, 1.0, -1e18):
            h.grad = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
            h.grad[0, 0] = value
            optimizer.step()
            assert torch.allclose(h.t() @ h, torch.eye(4), atol=1e-4)
