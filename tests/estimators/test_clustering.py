import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from torch.nn.functional import normalize
from torch_geometric.data import Data
from torch_geometric.utils import stochastic_blockmodel_graph

from torch_gckm import GCKMClustering
from torch_gckm.errors import InvalidInputError
from torch_gckm.nn import KernelLayers


def noisy_blocks(noise, homophily, seed=0):
    """Three blocks of 100 nodes: weak features with noise, edges that stay in a block with some probability."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    y = torch.arange(3).repeat_interleave(100)
    within, between = 12 * homophily / 100, 12 * (1 - homophily) / 200
    edges = stochastic_blockmodel_graph([100] * 3, torch.full((3, 3), between) + (within - between) * torch.eye(3))
    means = torch.randn(3, 40, generator=generator)
    return Data(x=means[y] + noise * torch.randn(300, 40, generator=generator), edge_index=edges, y=y)


def fitted(graph, **options):
    return GCKMClustering(3, n_init=2, **options).fit(graph)


def test_finds_clusters_of_rows(blobs):
    X, y = blobs
    clustering = GCKMClustering(3)
    labels = clustering.fit_predict(X)
    assert adjusted_rand_score(y, labels) > 0.9
    assert labels is clustering.labels_
    assert clustering.embedding_.shape == (150, 4)
    np.testing.assert_allclose(np.linalg.norm(clustering.embedding_, axis=1), 1.0, rtol=1e-5)
    assert clustering.cluster_centers_.shape == (3, 4)
    np.testing.assert_array_equal(clustering.predict(), labels)
    np.testing.assert_array_equal(clustering.predict(X), labels)


def test_new_rows_join_the_clusters_of_their_kind(blobs):
    X, y = blobs
    clustering = GCKMClustering(3).fit(X[:100])
    assert adjusted_rand_score(y[100:], clustering.predict(X[100:])) > 0.9
    centres = clustering.cluster_centers_
    distance = np.linalg.norm(clustering._ask(X[100:]).numpy()[:, None] - centres, axis=2)
    np.testing.assert_array_equal(clustering.predict(X[100:]), distance.argmin(axis=1))


def test_is_k_means_on_the_layers_of_a_graph(graph):
    clustering = GCKMClustering(3, (5, 4), "sum", "rbf", hops=1, n_init=2).fit(graph)
    h = normalize(KernelLayers(8, (5, 4), "rbf", "sum", power=0.125).initialize(graph).embed())
    assert torch.equal(clustering.embedding_, h)
    means = KMeans(3, n_init=2, random_state=0).fit(h.numpy())
    assert clustering.labels_.tolist() == means.labels_.tolist()
    assert clustering.labels_.dtype == torch.long
    assert torch.equal(clustering.predict(graph), clustering.labels_)
    assert clustering.hops_ == 1
    assert clustering.explained_ == {}


@pytest.mark.parametrize("option", [{"kernel": "laplacian"}, {"hops": 2}, {"normalize": "l2"}, {"n_neighbors": 4}])
def test_options_reach_the_layers(blobs, option):
    default = GCKMClustering(3, hops=1).fit(blobs[0]).embedding_
    other = GCKMClustering(3, **{"hops": 1, **option}).fit(blobs[0]).embedding_
    assert np.abs(np.abs(other) - np.abs(default)).max() > 1e-3


@pytest.mark.parametrize(("noise", "homophily", "best", "worse"), [(2.0, 0.7, 2, (1, 8)), (1.0, 0.5, 2, (1, 4))])
def test_noise_needs_more_hops(noise, homophily, best, worse):
    graph = noisy_blocks(noise, homophily)
    found = fitted(graph, aggregation="gcn")
    assert list(found.explained_) == [1, 2, 4, 8, 16, 32, 64]
    assert found.hops_ == max(found.explained_, key=found.explained_.get) == best
    for hops in worse:
        other = fitted(graph, aggregation="gcn", hops=hops)
        assert adjusted_rand_score(graph.y, found.labels_) > 0.02 + adjusted_rand_score(graph.y, other.labels_)


def test_order_of_nodes_does_not_matter():
    graph = noisy_blocks(1.0, 0.6)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    moved = Data(x=graph.x[order], edge_index=order.argsort()[graph.edge_index])
    one, same, other = (GCKMClustering(3, aggregation="gcn").fit(data) for data in (graph, graph, moved))
    assert torch.equal(one.labels_, same.labels_)
    assert one.explained_ == same.explained_
    assert one.hops_ == other.hops_
    assert adjusted_rand_score(one.labels_[order], other.labels_) > 0.9


@pytest.mark.parametrize("options", [{}, {"aggregation": "none"}, {"aggregation": ("gcn", "sum"), "channels": (4, 3)}])
def test_nothing_to_choose(options):
    graph = noisy_blocks(1.0, 0.9)
    if not options:
        graph.edge_index = graph.edge_index[:, :0]
    clustering = fitted(graph, **options)
    assert (clustering.hops_, clustering.explained_) == (1, {})
    assert set(clustering.labels_.tolist()) == {0, 1, 2}


def test_sparse_features_choose_as_dense_ones_do():
    graph = noisy_blocks(2.0, 0.9)
    graph.x = graph.x.clamp(min=1.5) - 1.5
    graph.x[5] = 0.0
    sparse = Data(x=graph.x.to_sparse_csr(), edge_index=graph.edge_index)
    assert fitted(sparse).explained_ == pytest.approx(fitted(graph).explained_, rel=0.05)


def test_unknown_rule(graph):
    with pytest.raises(InvalidInputError, match="'hops' must be"):
        fitted(graph, hops="most")
