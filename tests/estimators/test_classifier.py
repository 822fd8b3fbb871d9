import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch_geometric.data import Data

from tests.conftest import make_graph
from torch_gckm import GCKMClassifier
from torch_gckm.errors import GCKMWarning, InvalidInputError, NotFittedError
from torch_gckm.neighbours import nearest_edges
from torch_gckm.select import Space
from torch_gckm.select.portfolio import portfolio
from torch_gckm.select.trial import PreparedGraphs

SMALL = Space(channels=(3, 4), depth=(1, 2))
NAMES = ["ant", "bee", "cat", "dog"]


def classifier(**options):
    options = {"search": SMALL, "budget": None, "max_settings": 12, "members": 4, "progress": False, **options}
    return GCKMClassifier(**options)


def test_fits_any_graph_with_a_train_mask(graph):
    fitted = classifier().fit(graph)
    assert fitted.score(graph) > 0.7
    assert fitted.predict().shape == (60,)
    assert torch.equal(fitted.predict(), fitted.predict(graph))
    torch.testing.assert_close(fitted.predict_proba().sum(dim=1), torch.ones(60))
    assert len(fitted.result_) == 12
    assert len(fitted.model_.members) == 4
    assert fitted.predict(make_graph(20, seed=4)).shape == (20,)


def test_without_search_the_portfolio_begins_and_ends(graph):
    fitted = classifier(search=None).fit(graph)
    assert len(fitted.model_.members) == 4
    promised = {str(setting) for setting, _ in portfolio(PreparedGraphs(graph))[:8]}
    assert {str(trial.setting) for trial in fitted.result_.trials} == promised
    assert fitted.score(graph, mask=graph.test_mask) > 0.7


@pytest.mark.parametrize("depth", [0, 1])
def test_new_rows_need_edges_to_them(blobs, depth):
    """Fitted nodes would receive from new rows, and so change the classes of others."""
    X, y = blobs
    space = Space(depth=(depth,), channels=(3,), directions=("both",), propagations=(("gcn", 1),))
    fitted = classifier(search=space).fit(X[:100], y[:100])
    with pytest.raises(InvalidInputError, match="against them"):
        fitted.predict(X[100:])
    space = Space(depth=(depth,), channels=(3,), directions=("both",), propagations=(("none", 1),))
    assert classifier(search=space).fit(X[:100], y[:100]).predict(X[100:]).shape == (50,)


def test_few_settings_are_told(graph):
    with pytest.warns(GCKMWarning, match="the search tried [0-9]+ settings in a budget of 0.01 s"):
        GCKMClassifier(budget=0.01, workers=1, progress=False).fit(graph)


def test_classes_may_have_any_numbers_and_need_labels(graph):
    ours = classifier().fit(graph)
    other = copy.copy(graph)
    other.y = torch.tensor([3, 7, 40])[graph.y]
    other.y[graph.test_mask] = 12  # No node of this class is labelled: it cannot be predicted.
    theirs = classifier().fit(other)
    assert theirs.classes_.tolist() == [3, 7, 40]
    assert torch.equal(theirs.predict(), torch.tensor([3, 7, 40])[ours.predict()])


def test_labels_of_any_integer_type(graph):
    ours = classifier(max_settings=4).fit(graph)
    graph.y = graph.y.int().unsqueeze(1)
    assert torch.equal(classifier(max_settings=4).fit(graph).predict(), ours.predict())


def test_same_seed_same_ensemble(graph):
    first, second = (classifier(random_state=3).fit(graph) for _ in range(2))
    assert torch.equal(first.predict_proba(), second.predict_proba())
    assert [t.setting for t in first.result_.trials] == [t.setting for t in second.result_.trials]


def test_splits(graph):
    several = copy.copy(graph)
    several.train_mask = torch.stack([graph.test_mask, graph.train_mask], dim=1)
    several.val_mask = torch.stack([graph.val_mask, graph.val_mask], dim=1)
    fitted = classifier(max_settings=4).fit(several, split=1)
    assert torch.equal(fitted.predict_proba(), classifier(max_settings=4).fit(graph).predict_proba())


def test_scikit_learn_manners(graph):
    original = classifier(members=3)
    assert clone(original).get_params() == original.get_params()
    assert original.set_params(members=2).members == 2
    with pytest.raises(NotFittedError, match="fit"):
        original.predict()


def test_suggests_unlabelled_nodes(graph):
    fitted = classifier().fit(graph)
    nodes = fitted.suggest(5)
    assert nodes.unique().numel() == 5
    assert not bool(graph.train_mask[nodes].any())


def test_says_why_nodes_are_suggested(graph, tmp_path):
    fitted = classifier().fit(graph, class_names=["ant", "bee", "cat"])
    nodes = fitted.suggest(3)
    reasons = fitted.explain_suggestions(nodes)
    sure, places = fitted.predict_proba()[nodes].max(dim=1)
    assert [one.node for one in reasons] == nodes.tolist()
    assert [one.guess for one in reasons] == fitted.classes_[places].tolist() == fitted.predict()[nodes].tolist()
    assert [one.probability for one in reasons] == pytest.approx(sure.tolist())
    assert all(one.second in fitted.classes_ and one.second != one.guess for one in reasons)
    fitted.save(tmp_path / "model.pt")  # A loaded one needs no graph for it.
    assert GCKMClassifier.load(tmp_path / "model.pt").explain_suggestions(nodes) == reasons
    with pytest.raises(InvalidInputError, match="whole numbers from 0 to 59"):
        fitted.explain_suggestions([60])


@pytest.mark.parametrize(("change", "match"), [
    ({"search": "best"}, "'search' must be"), ({"budget": None, "max_settings": None}, "budget"),
])  # fmt: skip
def test_bad_arguments(graph, change, match):
    with pytest.raises(InvalidInputError, match=match):
        classifier(**change).fit(graph)


def test_bad_labels(graph):
    with pytest.raises(InvalidInputError, match="mask="):
        classifier(search=None).fit(graph).score(graph, graph.y)
    for y, match in ((None, "no labels"), (torch.zeros(60, dtype=torch.long), "at least two classes")):
        graph.y = y
        with pytest.raises(InvalidInputError, match=match):
            classifier().fit(graph)


def test_rows_with_named_classes(blobs):
    X, y = blobs
    names = np.array(["ant", "bee", "cat"])[y]
    given = [name if row < 20 else -1 for row, name in enumerate(names)]
    fitted = classifier(max_settings=6).fit(X, given)
    assert fitted.classes_.tolist() == ["ant", "bee", "cat"]
    assert fitted.score(X, names) > 0.9
    assert set(fitted.predict(X + 0.01)) == {"ant", "bee", "cat"}
    np.testing.assert_array_equal(fitted.predict(), fitted.predict(X))
    np.testing.assert_allclose(fitted.predict_proba(X + 0.01).sum(axis=1), 1.0, atol=1e-5)
    assert not set(fitted.suggest(5)) & set(range(20))
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X + 0.01), fitted.predict_proba(X + 0.01))


def test_new_rows(blobs, few):
    X, y = blobs
    fitted = classifier(search=None).fit(X[:100], few[:100])
    assert fitted.score(X[100:], y[100:]) > 0.85
    assert (fitted.predict(X[100:]) == fitted.predict_proba(X[100:]).argmax(axis=1)).all()


def test_new_rows_of_a_directed_graph(blobs, few):
    X, _ = blobs
    both = nearest_edges(X[:100], 8)
    edges = both[:, both[0] < both[1]]
    with pytest.warns(GCKMWarning, match="540 of 540 edges are given in one direction only, and count in both"):
        fitted = classifier().fit(X[:100], few[:100], edge_index=edges)
    together = fitted.predict_proba(X[100:])
    one_by_one = np.concatenate([fitted.predict_proba(X[row : row + 1]) for row in range(100, 150)])
    np.testing.assert_allclose(together, one_by_one, atol=1e-5)

    asked = classifier(search=Space(channels=(3,), directions=("out",)), max_settings=6, directed=True)
    asked.fit(X[:100], few[:100], edge_index=edges)
    assert asked.predict(X[:3]).shape == (3,)  # Fitted rows.
    with pytest.raises(InvalidInputError, match="receive along edges"):
        asked.predict(X[100:])


def test_unlabelled_rows_do_not_count(blobs):
    X, y = blobs
    fitted = classifier(search=None).fit(X, y)
    wrong = np.where(np.arange(150) < 30, (fitted.predict() + 1) % 3, fitted.predict())
    assert fitted.score(X, wrong) == pytest.approx(0.8)
    assert fitted.score(X, np.where(np.arange(150) < 30, -1, wrong)) == 1.0
    assert fitted.score(X, wrong, np.where(np.arange(150) < 30, 4.0, 1.0)) == pytest.approx(0.5)
    with pytest.raises(InvalidInputError, match="none of the rows"):
        fitted.score(X, np.full(150, -1))


def test_cross_validation_and_grids(blobs):
    X, y = blobs
    pipeline = make_pipeline(StandardScaler(), classifier(search=None))
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.9
    grid = GridSearchCV(pipeline, {"gckmclassifier__n_neighbors": [1, 10]}, cv=3, scoring="neg_log_loss").fit(X, y)
    assert len(np.unique(grid.cv_results_["mean_test_score"])) == 2
    assert grid.predict(X).shape == (150,)


def test_small_graphs():
    for size in (6, 10, 20):
        fitted = GCKMClassifier(search=None).fit(make_graph(size, classes=2))
        assert bool(fitted.predict_proba().isfinite().all())


def test_package_works_without_scikit_learn():
    code = """
import sys
sys.modules["sklearn"] = sys.modules["sklearn.base"] = None
import torch_gckm
assert torch_gckm.GCKM
for name in ("GCKMClassifier", "GCKMClustering", "GCKMEmbedding"):
    try:
        getattr(torch_gckm, name)
    except ImportError as error:
        assert "torch_gckm[sklearn]" in str(error)
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_graphs_need_numbers_and_masks(graph):
    with pytest.raises(InvalidInputError, match="no 'test_mask'; say with mask="):
        GCKMClassifier(search=None).fit(graph).score(Data(x=graph.x, edge_index=graph.edge_index, y=graph.y))
    named = graph.clone()
    named.y = ["a"] * graph.num_nodes
    with pytest.raises(InvalidInputError, match="tensor of class numbers, got a list"):
        GCKMClassifier(search=None).fit(named)


def test_a_fit_that_fails_leaves_the_one_before(blobs, few):
    fitted = GCKMClassifier(search=None).fit(blobs[0], few)
    before = fitted.predict()
    with pytest.raises(InvalidInputError, match="unknown criterion"):
        fitted.set_params(search="auto", criterion="luck").fit(blobs[0], np.where(few >= 0, 10 * few, -1))
    np.testing.assert_array_equal(fitted.predict(), before)
    np.testing.assert_array_equal(fitted.classes_, [0, 1, 2])


def test_unknown_labels_do_not_count(graph):
    fitted = GCKMClassifier(search=None).fit(graph)
    expected = fitted.score(graph, mask=graph.train_mask)
    graph = graph.clone()
    graph.y = torch.where(graph.train_mask, graph.y, -1)
    assert fitted.score(graph, mask=torch.ones_like(graph.train_mask)) == pytest.approx(expected)
    with pytest.raises(InvalidInputError, match="none of the nodes to score has a label"):
        fitted.score(graph, mask=~graph.train_mask)


def test_labels_may_be_any_numbers(graph):
    graph = graph.clone()
    graph.y = graph.y * 10**11
    assert GCKMClassifier(search=None).fit(graph).classes_.tolist() == [0, 10**11, 2 * 10**11]


def test_edges_are_numbers_of_rows(blobs, few):
    with pytest.raises(InvalidInputError, match="'edge_index' must be whole numbers"):
        GCKMClassifier(search=None).fit(blobs[0], few, edge_index=[["a", "b"], ["b", "a"]])


def test_sparse_rows_are_as_good_as_dense_ones():
    """Exact kernel matrices of aggregated sparse features are symmetric to double precision."""
    generator = np.random.default_rng(0)
    X = generator.random((60, 20)) * (generator.random((60, 20)) < 0.2)
    edges, y = generator.integers(60, size=(2, 200)), np.arange(60) % 3
    dense, sparse = (
        GCKMClassifier(search=None, directed=True).fit(x, y, edge_index=edges).predict_proba()
        for x in (X, csr_matrix(X))
    )
    np.testing.assert_allclose(dense, sparse, atol=1e-3)


def test_prediction_sets_have_the_type_of_the_fit(graph, blobs, few):
    fitted = classifier().fit(graph)
    sets = fitted.predict_set(coverage=0.6)
    assert sets.dtype == torch.bool
    assert sets.shape == (60, 3)
    assert torch.equal(sets, fitted.model_.predict_set(0.6))
    X, y = blobs
    names = np.array(NAMES, dtype=object)
    arrays = classifier().fit(X, np.where(few >= 0, names[few], -1))
    sets = arrays.predict_set()
    assert isinstance(sets, np.ndarray)
    assert sets.shape == (150, 3)
    held = sets[np.arange(150), np.searchsorted(arrays.classes_, names[y])]
    assert held[20:].mean() > 0.8
    assert np.array_equal(arrays.classes_[sets[:20].argmax(axis=1)], names[y[:20]])
