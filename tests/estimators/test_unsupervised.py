import copy

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from torch_geometric.transforms import BaseTransform, Compose, ToUndirected

from tests.conftest import make_graph
from torch_gckm import GCKM, GCKMClustering, GCKMEmbedding


def test_embeds_a_graph_as_the_layers_do(graph):
    embedding = GCKMEmbedding((6, 4), aggregation="mean", hops=2)
    h = embedding.fit_transform(graph)
    assert torch.equal(h, GCKM(8, (6, 4), 3, aggregation="mean", hops=2).initialize(graph).embed())
    assert torch.equal(h, embedding.embedding_)
    other = make_graph(20, seed=3)
    assert torch.equal(embedding.transform(other), embedding.layers_[0].embed(other))


def test_in_a_pipeline(blobs):
    X, y = blobs
    pipeline = make_pipeline(GCKMEmbedding((12, 6)), LogisticRegression(C=1e3)).fit(X[:100], y[:100])
    assert pipeline.score(X[100:], y[100:]) > 0.9
    assert pipeline[:-1].get_feature_names_out().tolist() == [f"gckmembedding{i}" for i in range(6)]


def test_given_edges_in_a_pipeline(graph):
    pipeline = make_pipeline(GCKMEmbedding((6, 4)), LogisticRegression())
    pipeline.fit(graph.x, graph.y, gckmembedding__edge_index=graph.edge_index)
    np.testing.assert_array_equal(pipeline[0].embedding_, GCKMEmbedding((6, 4)).fit(graph).embedding_.numpy())


def test_tables(blobs):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(blobs[0], columns=list("abcd"))
    embedding = GCKMEmbedding((6, 4)).set_output(transform="pandas")
    result = embedding.fit_transform(table)
    assert list(result.columns) == list(embedding.get_feature_names_out())
    assert embedding.feature_names_in_.tolist() == list("abcd")
    embedding.fit(make_graph())
    assert not hasattr(embedding, "feature_names_in_")


def test_pyg_transform_embeds_each_graph_by_itself(graph):
    embed = GCKMEmbedding((6, 4))
    assert isinstance(embed, BaseTransform)
    x = graph.x
    result = Compose([ToUndirected(), embed])(graph)
    torch.testing.assert_close(result.x, clone(embed).fit_transform(graph))
    assert graph.x is x  # The graph that was given stays.
    assert torch.equal(result.y, graph.y)
    assert not hasattr(embed, "graph_")


def test_fitted_pyg_transform_extends(graph):
    embed = GCKMEmbedding((6, 4), attr="h").fit(graph)
    other = make_graph(30, seed=5)
    result = embed(other)
    assert torch.equal(result.x, other.x)
    assert torch.equal(result.h, embed.transform(other))
    assert "h" not in other
    assert torch.equal(embed(copy.copy(graph)).h, embed.embedding_)


@pytest.mark.filterwarnings("ignore::torch_gckm.errors.LowRankWarning")
def test_names_count_what_is_there():
    X = np.repeat(np.eye(4), 5, axis=0)
    embedding = GCKMEmbedding((16, 16), aggregation="none").fit(X)
    assert embedding.embedding_.shape == (20, 3)
    assert len(embedding.get_feature_names_out()) == 3


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
    model = GCKM(8, (5, 4), 3, aggregation="sum", power=0.0).initialize(graph)
    assert torch.equal(clustering.embedding_, model.embed())
    means = KMeans(3, n_init=2, random_state=0).fit(model.embed().numpy())
    assert clustering.labels_.tolist() == means.labels_.tolist()
    assert clustering.labels_.dtype == torch.long
    assert torch.equal(clustering.predict(graph), clustering.labels_)


@pytest.mark.parametrize("option", [{"kernel": "laplacian"}, {"hops": 2}, {"normalize": "l2"}, {"n_neighbors": 4}])
def test_options_reach_the_layers(blobs, option):
    default = GCKMClustering(3).fit(blobs[0]).embedding_
    assert np.abs(np.abs(GCKMClustering(3, **option).fit(blobs[0]).embedding_) - np.abs(default)).max() > 1e-3
