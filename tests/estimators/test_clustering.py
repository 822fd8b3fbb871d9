import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from torch_gckm import GCKM, GCKMClustering


def test_finds_clusters_of_rows(blobs):
    X, y = blobs
    clustering = GCKMClustering(3)
    labels = clustering.fit_predict(X)
    assert adjusted_rand_score(y, labels) > 0.9
    assert labels is clustering.labels_
    assert clustering.embedding_.shape == (150, 12)
    assert clustering.cluster_centers_.shape == (3, 12)
    assert [model.hidden_channels for model in clustering.layers_] == [(3, 3), (6, 3), (16, 3), (18, 3)]
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
    clustering = GCKMClustering(3, channels=(5, 4), aggregation="sum", n_init=2).fit(graph)
    model = GCKM(8, (5, 4), 3, aggregation="sum").initialize(graph)
    assert torch.equal(clustering.embedding_, model.embed())
    means = KMeans(3, n_init=2, random_state=0).fit(model.embed().numpy())
    assert clustering.labels_.tolist() == means.labels_.tolist()
    assert clustering.labels_.dtype == torch.long
    assert torch.equal(clustering.predict(graph), clustering.labels_)


@pytest.mark.parametrize("option", [{"kernel": "laplacian"}, {"hops": 2}, {"normalize": "l2"}, {"n_neighbors": 4}])
def test_options_reach_the_layers(blobs, option):
    default = GCKMClustering(3).fit(blobs[0]).embedding_
    assert np.abs(np.abs(GCKMClustering(3, **option).fit(blobs[0]).embedding_) - np.abs(default)).max() > 1e-3
