import copy

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch_geometric.transforms import BaseTransform, Compose, ToUndirected

from tests.conftest import make_graph
from torch_gckm import GCKM, GCKMEmbedding


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
