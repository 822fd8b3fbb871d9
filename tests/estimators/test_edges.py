"""Edges in one direction, weights, and new rows that edges join to a fitted graph."""

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.utils import to_undirected

from tests.conftest import make_graph
from torch_gckm import GCKM, GCKMClassifier, GCKMClustering, GCKMEmbedding, GCKMRegressor, Trainer
from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.estimators.edges import join_by_edges, undirected
from torch_gckm.estimators.inputs import join
from torch_gckm.neighbours import nearest_rows

QUICK = {"search": None, "members": 2, "progress": False}
ASK = {GCKMClassifier: "predict_proba", GCKMRegressor: "predict", GCKMClustering: "predict", GCKMEmbedding: "transform"}
ESTIMATORS = [GCKMClassifier(**QUICK), GCKMRegressor(**QUICK), GCKMClustering(3), GCKMEmbedding((12, 6))]
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
searched = pytest.mark.parametrize("estimator", ESTIMATORS[:2], ids=lambda e: type(e).__name__)


def ask(estimator, *args, **options):
    if isinstance(estimator, GCKMEmbedding) and not args:
        return np.asarray(estimator.embedding_)
    return np.asarray(getattr(estimator, ASK[type(estimator)])(*args, **options))


def labels(graph):
    return np.where(graph.train_mask, graph.y, -1)


def one_way(graph, seed=0):
    """Each edge once, in a direction that is drawn."""
    once = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    turned = torch.rand(once.size(1), generator=torch.Generator().manual_seed(seed)) < 0.5
    return torch.where(turned, once, once.flip(0))


@every_estimator
def test_edges_in_one_direction_count_in_both(estimator, graph):
    X, y, edges = graph.x.numpy(), labels(graph), one_way(graph)
    expected = clone(estimator).fit(X, y, edge_index=graph.edge_index)
    with pytest.warns(GCKMWarning, match="160 of 160 edges are given in one direction only, and count in both; direct"):
        fitted = clone(estimator).fit(X, y, edge_index=edges)
    assert fitted.directed_ is False
    np.testing.assert_array_equal(ask(fitted), ask(expected))
    new = make_graph(30, seed=4)
    asked = ask(fitted, new.x.numpy(), edge_index=one_way(new))
    np.testing.assert_array_equal(asked, ask(expected, new.x.numpy(), edge_index=new.edge_index))
    np.testing.assert_array_equal(ask(fitted, Data(x=new.x, edge_index=one_way(new))), asked)


@every_estimator
def test_so_they_do_in_graphs_of_pyg(estimator, graph):
    graph.y = torch.where(graph.train_mask, graph.y, -1)
    expected = clone(estimator).fit(graph)
    data = graph.clone()
    data.edge_index, data.edge_attr = one_way(graph), torch.ones(160, 1)
    with pytest.warns(GCKMWarning):
        fitted = clone(estimator).fit(data)
    assert data.edge_index.size(1) == 160  # The caller's graph stays.
    del data.edge_attr
    np.testing.assert_array_equal(ask(fitted, data), ask(expected, graph))


def test_a_transform_of_pyg_sees_both_directions(graph):
    expected = GCKMEmbedding((4, 3))(graph.clone()).x
    data = graph.clone()
    data.edge_index = one_way(graph)
    with pytest.warns(GCKMWarning, match="one direction only"):
        found = GCKMEmbedding((4, 3))(data)
    assert torch.equal(found.x, expected)
    assert found.edge_index.size(1) == 160


@every_estimator
def test_directions_are_kept_if_asked(estimator, graph):
    X, y, edges = graph.x.numpy(), labels(graph), one_way(graph)
    if "members" in estimator.get_params():
        estimator = clone(estimator).set_params(members=8)  # Some of them see directions.
    kept = clone(estimator).set_params(directed=True).fit(X, y, edge_index=edges)
    assert kept.directed_ is True
    assert torch.equal(kept.graph_.edge_index, edges)
    both = clone(estimator).fit(X, y, edge_index=graph.edge_index)
    new = make_graph(30, seed=4)
    again = ask(kept, new.x.numpy(), edge_index=one_way(new, 1)), ask(kept, new.x.numpy(), edge_index=one_way(new, 2))
    if isinstance(estimator, GCKMClustering):
        return
    assert not np.allclose(again[0], again[1])
    assert not np.allclose(again[0], ask(both, new.x.numpy(), edge_index=new.edge_index))


def test_a_search_tries_directions_in_turn_if_they_are_kept(graph):
    graph.edge_index = one_way(graph)
    trials = GCKMClassifier(**QUICK, directed=True).fit(graph).result_.trials
    used = [{p.propagation.direction for p in t.setting.layers if p.propagation.kind != "none"} for t in trials]
    assert all(len(found) < 2 for found in used)
    assert set.union(*used) == {"in", "out", "both"}


def test_pairs_count_once_with_the_mean_of_their_weights():
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 2]]))
    data.edge_weight = torch.tensor([1.0, 3.0, 5.0, 7.0])
    with pytest.warns(GCKMWarning, match="1 of 4 edges"):
        found = undirected(data, warn=True)
    edges = dict(zip(map(tuple, found.edge_index.t().tolist()), found.edge_weight.tolist(), strict=True))
    assert edges == {(0, 1): 2.0, (1, 0): 2.0, (1, 2): 5.0, (2, 1): 5.0, (2, 2): 7.0}
    assert undirected(found, warn=True) is found
    data.edge_index, data.edge_weight = torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 3.0])
    with pytest.warns(GCKMWarning, match="other weights in one direction than in the other; their mean counts"):
        assert undirected(data, warn=True).edge_weight.tolist() == [2.0, 2.0]


@every_estimator
def test_weights_of_the_edges_of_arrays(estimator, graph):
    weight = torch.rand(160, generator=torch.Generator().manual_seed(0)) + 0.5
    edges, both = to_undirected(one_way(graph), weight)
    y = torch.where(graph.train_mask, graph.y, -1)
    data = Data(x=graph.x, edge_index=edges, edge_weight=both, y=y)
    expected = clone(estimator).fit(data)
    fitted = clone(estimator).fit(graph.x.numpy(), y.numpy(), edge_index=edges.numpy(), edge_weight=both.tolist())
    np.testing.assert_allclose(ask(fitted), ask(expected), atol=1e-6)
    new = make_graph(30, seed=4)
    w = np.linspace(0.5, 3.0, new.num_edges // 2)
    edges, both = to_undirected(one_way(new), torch.tensor(w))
    found = ask(fitted, new.x.numpy(), edge_index=one_way(new), edge_weight=w)
    np.testing.assert_allclose(found, ask(expected, Data(x=new.x, edge_index=edges, edge_weight=both)), atol=1e-6)
    with pytest.raises(InvalidInputError, match="'edge_weight' goes with 'edge_index'"):
        clone(estimator).fit(graph.x.numpy(), y.numpy(), edge_weight=weight)
    for given in (data, None):
        with pytest.raises(InvalidInputError, match="'edge_index' goes with a matrix X"):
            ask(fitted, given, edge_index=edges)


class TestNewEdges:
    """Rows that are new, and their edges to a graph of 50 fitted nodes."""

    @pytest.fixture
    def parts(self, graph):
        old = graph.subgraph(torch.arange(50))
        edges = graph.edge_index
        is_new = (edges >= 50).any(dim=0)
        return old, graph.x[50:], edges[:, is_new]

    @searched
    def test_equal_those_of_the_joined_graph(self, estimator, parts):
        old, x, edges = parts
        fitted = clone(estimator).fit(old)
        towards = edges[:, edges[1] >= 50]
        joined = Data(x=torch.cat([old.x, x]), edge_index=torch.cat([old.edge_index, towards], dim=1))
        scores = fitted.model_.scores(joined, torch.arange(50))[50:]
        expected = scores if isinstance(estimator, GCKMRegressor) else fitted.model_.probabilities(scores)
        for given in (edges, towards, towards.flip(0), towards[:, towards[0] < towards[1]].numpy()):
            found = ask(fitted, x.numpy(), new_edges=given)
            np.testing.assert_allclose(found, expected.squeeze().numpy(), atol=1e-6)
        assert not np.allclose(ask(fitted, x, new_edges=edges[:, :0]), found)

    @searched
    def test_equal_those_of_nearest_rows(self, estimator, blobs, few):
        X = blobs[0].astype(np.float32)
        fitted = clone(estimator).fit(X[:100], few[:100])
        near = nearest_rows(X[:100], 10, X[100:])
        edges = torch.stack([near.flatten(), torch.arange(100, 150).repeat_interleave(near.size(1))])
        torch.testing.assert_close(
            join_by_edges(fitted.graph_, X[100:], edges, None, directed=True).edge_index,
            join(fitted.graph_, X[100:], 10).edge_index,
        )
        for rows in (X[100:], scipy.sparse.csr_matrix(X[100:])):
            found = ask(fitted, rows, new_edges=edges)
            assert isinstance(found, np.ndarray)
            np.testing.assert_allclose(found, ask(fitted, X[100:]), rtol=2e-2, atol=2e-3)

    @searched
    def test_fitted_nodes_and_rows_without_an_edge_between_them_do_not_change(self, estimator, parts):
        old, x, edges = parts
        fitted = clone(estimator).fit(old)
        before = ask(fitted)
        edges = edges[:, (edges < 50).any(dim=0)]  # None between new rows.
        together = ask(fitted, x, new_edges=edges)
        for row in range(10):
            own = edges[:, (edges == 50 + row).any(dim=0)]
            alone = ask(fitted, x[row : row + 1], new_edges=torch.where(own >= 50, 50, own))
            np.testing.assert_allclose(alone, together[row : row + 1], atol=1e-5)
        np.testing.assert_array_equal(ask(fitted), before)

    @searched
    def test_of_a_file(self, estimator, parts, tmp_path):
        old, x, edges = parts
        fitted = clone(estimator).fit(old)
        fitted.save(tmp_path / "whole.pt")
        loaded = type(estimator).load(tmp_path / "whole.pt")
        np.testing.assert_array_equal(ask(loaded, x, new_edges=edges), ask(fitted, x, new_edges=edges))
        loaded.save(tmp_path / "again.pt")
        again = type(estimator).load(tmp_path / "again.pt")
        np.testing.assert_array_equal(ask(again, x, new_edges=edges), ask(fitted, x, new_edges=edges))
        fitted.save(tmp_path / "small.pt", inductive=True)
        small = type(estimator).load(tmp_path / "small.pt")
        with pytest.raises(InvalidInputError, match=r"without its graph \(inductive=True\).*whole new graph"):
            ask(small, x, new_edges=edges)

    def test_weights(self, parts):
        old, x, edges = parts
        old.edge_weight = torch.full((old.num_edges,), 2.0)
        fitted = GCKMClassifier(**QUICK).fit(old)
        usual = ask(fitted, x, new_edges=edges)
        np.testing.assert_array_equal(
            ask(fitted, x, new_edges=edges, edge_weight=torch.full((len(edges[0]),), 2)), usual
        )
        other = np.where(edges[0] % 2, 0.01, 9.0)
        assert not np.allclose(ask(fitted, x, new_edges=edges, edge_weight=other), usual)
        joined = join_by_edges(old, x.numpy(), edges, np.full(len(edges[0]), 3.0), directed=False)
        assert joined.edge_weight.unique().tolist() == [2.0, 3.0]
        del old.edge_weight
        joined = join_by_edges(old, x.numpy(), edges, np.full(len(edges[0]), 3.0), directed=False)
        assert joined.edge_weight.unique().tolist() == [1.0, 3.0]

    def test_directions_are_kept_if_the_fit_kept_them(self, parts):
        old, x, edges = parts
        joined = join_by_edges(old, x.numpy(), edges, None, directed=True)
        assert torch.equal(joined.edge_index, torch.cat([old.edge_index, edges], dim=1))
        joined = join_by_edges(old, x.numpy(), edges.flip(0), None, directed=False)
        assert bool((joined.edge_index[1, old.num_edges :] >= 50).all())

    def test_bad_ones(self, parts):
        old, x, edges = parts
        fitted = GCKMClassifier(**QUICK).fit(old)
        with pytest.raises(
            InvalidInputError, match="names nodes 0 to 60; fitted nodes are 0 to 49, rows of X 50 to 59"
        ):
            fitted.predict(x, new_edges=[[0], [60]])
        with pytest.raises(InvalidInputError, match="an edge of the fitted nodes 3 and 4"):
            fitted.predict(x, new_edges=[[3, 1], [4, 50]])
        with pytest.raises(InvalidInputError, match="'new_edges' must be whole numbers"):
            fitted.predict(x, new_edges=[["a"], ["b"]])
        for given in ({"X": old}, {"X": None}, {"X": x, "edge_index": edges}):
            with pytest.raises(InvalidInputError, match="'new_edges' goes with the features X of new rows"):
                fitted.predict(**given, new_edges=edges)


@every_estimator
def test_a_graph_that_lacks_edges_is_told(estimator):
    graph = make_graph()
    bare = Data(x=graph.x, y=graph.y, train_mask=graph.train_mask)
    with pytest.warns(GCKMWarning, match="no 'edge_index': its nodes are told apart by their features alone"):
        clone(estimator).fit(bare)
    fitted = clone(estimator).fit(graph)
    with pytest.warns(GCKMWarning, match="no 'edge_index'"):
        ask(fitted, bare)


@every_estimator
def test_a_dataset_is_not_a_graph(estimator):
    graphs = [make_graph(), make_graph()]
    dataset = InMemoryDataset()
    dataset.data, dataset.slices = InMemoryDataset.collate(graphs)
    for several in (graphs, dataset):
        with pytest.raises(InvalidInputError, match=r"such as dataset\[0\]"):
            clone(estimator).fit(several)
    with pytest.raises(InvalidInputError, match=r"such as dataset\[0\]"):
        Trainer(GCKM(8, 4, 3), progress=False).fit(dataset)


@searched
def test_negative_weights_are_told(estimator):
    graph = make_graph()
    graph.edge_weight = torch.ones(graph.num_edges)
    graph.edge_weight[graph.edge_index[0] == 5] = -5.0
    graph.edge_weight[graph.edge_index[1] == 5] = -5.0
    count = int((graph.edge_weight < 0).sum())
    with pytest.warns(GCKMWarning, match=f"{count} of {graph.num_edges} edge weights are negative"):
        clone(estimator).fit(graph)
