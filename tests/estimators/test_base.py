import copy
import pickle

import numpy as np
import pytest
import scipy.sparse
import sklearn.exceptions
import torch
from torch_geometric.data import HeteroData

from torch_gckm import GCKMClassifier, GCKMClustering, GCKMEmbedding
from torch_gckm.errors import GCKMError, InvalidInputError, NotFittedError

ASK = {GCKMClassifier: "predict_proba", GCKMClustering: "predict", GCKMEmbedding: "transform"}
ESTIMATORS = [GCKMClassifier(search=None), GCKMClustering(3), GCKMEmbedding((12, 6))]
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)


def ask(estimator, *args, **options):
    return getattr(estimator, ASK[type(estimator)])(*args, **options)


@every_estimator
def test_not_fitted_in_both_languages(estimator, blobs):
    for error in (NotFittedError, sklearn.exceptions.NotFittedError, GCKMError):
        with pytest.raises(error, match="is not fitted"):
            ask(estimator, blobs[0])


@every_estimator
def test_arrays_of_any_kind_give_the_same(estimator, blobs, few):
    X = np.where(np.abs(blobs[0]) < 2.0, 0.0, blobs[0]).astype(np.float32)
    kinds = [X, X.tolist(), torch.from_numpy(X), scipy.sparse.coo_matrix(X), torch.from_numpy(X).to_sparse()]
    first = ask(copy.copy(estimator).fit(X, few), X)
    for kind in kinds:
        fitted = copy.copy(estimator).fit(kind, torch.from_numpy(few))
        answer = ask(fitted, kind)
        assert isinstance(answer, np.ndarray)
        np.testing.assert_allclose(answer, first, atol=1e-4)
        # Those that are fitted to a dense matrix take a sparse one, and the other way round.
        np.testing.assert_allclose(ask(fitted, scipy.sparse.csr_matrix(X)), first, atol=1e-4)
        np.testing.assert_allclose(ask(fitted, X), first, atol=1e-4)


@every_estimator
def test_fitted_rows_are_nodes(estimator, blobs, few):
    X = blobs[0]
    fitted = copy.copy(estimator).fit(X, few)
    everything = ask(fitted, X)
    order = np.random.default_rng(0).permutation(150)[:70]
    np.testing.assert_array_equal(ask(fitted, X[order]), everything[order])


@every_estimator
def test_a_new_row_is_answered_on_its_own(estimator, blobs, few):
    X, few = blobs[0][:100], few[:100]
    fitted = copy.copy(estimator).fit(X, few)
    new = blobs[0][100:]
    together = ask(fitted, np.vstack([X[:5], new]))
    np.testing.assert_array_equal(together[:5], ask(fitted, X)[:5])
    alone = np.concatenate([ask(fitted, row[None]) for row in new])
    np.testing.assert_allclose(together[5:], alone, atol=1e-5)


@every_estimator
def test_a_row_next_to_a_fitted_one_is_answered_alike(estimator, blobs, few):
    X = blobs[0]
    fitted = copy.copy(estimator).fit(X, few)
    near, there = ask(fitted, X + 1e-3), ask(fitted, X)
    if near.ndim == 1:
        assert (near == there).mean() > 0.97
    else:
        assert np.corrcoef(near.ravel(), there.ravel())[0, 1] > 0.97


@every_estimator
def test_edges_of_a_matrix_are_those_of_a_graph(estimator, graph):
    by_data = copy.copy(estimator).fit(graph)
    y = torch.where(graph.train_mask, graph.y, -1)
    by_arrays = copy.copy(estimator).fit(graph.x, y, edge_index=graph.edge_index.numpy())
    ours, theirs = ask(by_arrays, graph.x), ask(by_data, graph)
    assert isinstance(ours, np.ndarray)
    assert isinstance(theirs, torch.Tensor)
    np.testing.assert_array_equal(ours, theirs.numpy())
    # Another graph of the same rows is another graph.
    fewer = graph.edge_index[:, ::2]
    other = copy.copy(graph)
    other.edge_index = fewer
    again = ask(by_arrays, graph.x, edge_index=fewer)
    np.testing.assert_array_equal(again, ask(by_data, other).numpy())
    if not isinstance(estimator, GCKMClustering):
        assert np.abs(again - ours).max() > 1e-3


@every_estimator
def test_rows_after_a_fit_to_a_graph(estimator, graph):
    fitted = copy.copy(estimator).fit(graph)
    assert torch.equal(ask(fitted, graph.x.numpy()), ask(fitted, graph))
    assert len(ask(fitted, graph.x[:4].numpy() + 0.01)) == 4
    assert fitted.n_features_in_ == 8
    with pytest.raises(ValueError, match="8 features"):
        ask(fitted, graph.x[:, :4])


@every_estimator
def test_pickles(estimator, blobs, few):
    fitted = copy.copy(estimator).fit(blobs[0][:120], few[:120])
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(ask(again, blobs[0]), ask(fitted, blobs[0]))


@every_estimator
def test_what_contradicts_itself_is_refused(estimator, graph, blobs):
    with pytest.raises(InvalidInputError, match="its own edges"):
        copy.copy(estimator).fit(graph, edge_index=graph.edge_index)
    with pytest.raises(InvalidInputError, match="its own edges"):
        ask(copy.copy(estimator).fit(graph), graph, edge_index=graph.edge_index)
    with pytest.raises(InvalidInputError, match="'n_neighbors' must be a positive integer"):
        copy.copy(estimator).set_params(n_neighbors=0).fit(*blobs)
    with pytest.raises(InvalidInputError, match="heterogeneous"):
        copy.copy(estimator).fit(HeteroData())
    with pytest.raises(InvalidInputError, match="names nodes"):
        copy.copy(estimator).fit(*blobs, edge_index=[[0, 1], [1, 150]])
