"""Names, labels and files of a fitted classifier."""

import numpy as np
import pytest
import torch

from tests.conftest import make_graph
from tests.estimators.test_classifier import NAMES, SMALL, classifier
from torch_gckm import GCKM, GCKMClassifier, Trainer
from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.neighbours import nearest_edges
from torch_gckm.train import accuracy


def test_names_of_classes_and_nodes(graph):
    plain = classifier(max_settings=4).fit(graph)
    assert plain.class_names_ is None
    assert plain.node_names_ is None
    nodes = [f"n{node}" for node in range(60)]
    fitted = classifier(max_settings=4).fit(graph, class_names=NAMES, node_names=nodes)
    assert fitted.classes_.tolist() == NAMES[:3]  # The names that occur among the labels.
    assert fitted.node_names_ == nodes
    assert fitted.predict().tolist() == [NAMES[number] for number in plain.predict().tolist()]
    assert torch.equal(fitted.predict_proba(), plain.predict_proba())
    assert fitted.score(graph) == plain.score(graph) > 0.7
    with pytest.raises(InvalidInputError, match="'class_names' has 2 names, but there is a class 2"):
        classifier().fit(graph, class_names=NAMES[:2])


def test_labels_and_times_of_a_fit(graph):
    for search in (SMALL, None):
        fitted = classifier(search=search, max_settings=4).fit(graph)
        assert fitted.labels_.targets.labelled.tolist() == list(range(6))
        assert torch.equal(fitted.labels_.y, graph.y)
        assert torch.equal(fitted.labels_.val, graph.val_mask)
        assert torch.equal(fitted.labels_.test, graph.test_mask)
        assert list(fitted.seconds_) == ["preparing the graph", "search", "fit of the ensemble", "self-training"]
        assert all(seconds >= 0.0 for seconds in fitted.seconds_.values())


def test_test_nodes_of_unlabelled_classes_are_mistakes(graph):
    graph.train_mask &= graph.y != 2
    fitted = classifier(search=None).fit(graph)
    assert fitted.classes_.tolist() == [0, 1]
    assert torch.equal(fitted.labels_.test, graph.test_mask)  # Also the nodes of the third class,
    assert fitted.labels_.y[graph.y == 2].unique().tolist() == [-1]  # which no prediction equals.
    right = (fitted.predict() == graph.y)[graph.test_mask]
    assert accuracy(fitted.model_.predict(), fitted.labels_.y, fitted.labels_.test) == pytest.approx(
        float(right.double().mean())
    )
    assert fitted.score(graph) == pytest.approx(float(right.double().mean()))


def test_a_checkpoint_continues_a_search(graph, tmp_path):
    file = tmp_path / "search.json"
    first = classifier(max_settings=5, checkpoint=file).fit(graph)
    assert len(first.result_) == 5
    second = classifier(max_settings=9, checkpoint=file).fit(graph)
    assert len(second.result_) == 9
    assert [t.setting for t in second.result_.trials[:5]] == [t.setting for t in first.result_.trials]
    assert [t.seconds for t in second.result_.trials[:5]] == [t.seconds for t in first.result_.trials]  # Not again.
    whole = classifier(max_settings=9).fit(graph)
    torch.testing.assert_close(second.predict_proba(), whole.predict_proba(), atol=1e-4, rtol=1e-3)


def test_saved_and_loaded(graph, tmp_path):
    nodes = [f"n{node}" for node in range(60)]
    fitted = classifier(max_settings=6).fit(graph, class_names=NAMES, node_names=nodes)
    fitted.save(tmp_path / "whole.pt")
    loaded = GCKMClassifier.load(tmp_path / "whole.pt")
    assert torch.equal(loaded.predict_proba(), fitted.predict_proba())
    assert loaded.predict().tolist() == fitted.predict().tolist()
    assert loaded.classes_.tolist() == NAMES[:3]
    assert loaded.node_names_ == nodes
    assert loaded.from_rows_ is False
    assert loaded.directed_ is fitted.directed_ is False
    assert loaded.n_features_in_ == 8
    assert loaded.suggest(3).tolist() == fitted.suggest(3).tolist()
    assert loaded.score(graph) == fitted.score(graph)
    other = make_graph(20, seed=4)
    assert torch.equal(loaded.predict_proba(other), fitted.predict_proba(other))


def test_saved_for_other_graphs_only(graph, tmp_path):
    fitted = classifier(max_settings=6).fit(graph, node_names=[f"n{node}" for node in range(60)])
    fitted.save(tmp_path / "small.pt", inductive=True)
    loaded = GCKMClassifier.load(tmp_path / "small.pt")
    other = make_graph(20, seed=4)
    torch.testing.assert_close(loaded.predict_proba(other), fitted.predict_proba(other))
    assert torch.equal(loaded.predict(other), fitted.predict(other))
    assert torch.equal(loaded.classes_, fitted.classes_)
    assert loaded.node_names_ is None
    for ask in (loaded.predict, loaded.suggest):
        with pytest.raises(InvalidInputError, match="saved with inductive=True and knows no graph"):
            ask()
    loaded.save(tmp_path / "again.pt", inductive=True)
    again = GCKMClassifier.load(tmp_path / "again.pt")
    assert torch.equal(again.predict_proba(other), loaded.predict_proba(other))


@pytest.mark.parametrize("inductive", [False, True])
def test_loaded_classifiers_of_rows(blobs, few, tmp_path, inductive):
    X = blobs[0]
    given = [f"class {label}" if label >= 0 else -1 for label in few]
    fitted = classifier(search=None).fit(X, given)
    fitted.save(tmp_path / "rows.pt", inductive=inductive)
    loaded = GCKMClassifier.load(tmp_path / "rows.pt")
    assert loaded.from_rows_ is True
    assert loaded.classes_.tolist() == ["class 0", "class 1", "class 2"]
    if not inductive:
        np.testing.assert_array_equal(loaded.predict(), fitted.predict())
    new = X[:40] + 0.01
    edges = nearest_edges(new, 5)
    ours, theirs = (each.predict_proba(new, edge_index=edges) for each in (loaded, fitted))
    assert isinstance(ours, np.ndarray)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    for rows in (X, new):
        if inductive:
            with pytest.raises(
                InvalidInputError, match=r"without its graph \(inductive=True\).*pass a whole new graph"
            ):
                loaded.predict(rows)
        else:
            np.testing.assert_array_equal(loaded.predict_proba(rows), fitted.predict_proba(rows))
    with pytest.raises(ValueError, match="4 features"):
        loaded.predict(X[:, :2], edge_index=edges)


def test_files_of_ensembles_and_models_load(graph, tmp_path):
    fitted = classifier(max_settings=6).fit(graph)
    model = GCKM(8, (4, 3), 3)
    Trainer(model, steps=0, progress=False).fit(graph)
    for whole in (fitted.model_, model):
        for inductive in (False, True):
            whole.save(tmp_path / "model.pt", inductive=inductive)
            loaded = GCKMClassifier.load(tmp_path / "model.pt")
            assert loaded.classes_.tolist() == [0, 1, 2]
            assert loaded.n_features_in_ == 8
            other = make_graph(20, seed=4)
            assert torch.equal(loaded.predict(other), whole.predict(other))
            if not inductive:
                assert torch.equal(loaded.predict(), whole.predict())


def test_other_files_are_refused(graph, tmp_path):
    with pytest.raises(NotFittedError, match="is not fitted"):
        classifier().save(tmp_path / "model.pt")
    torch.save({"format": "classifier 0"}, tmp_path / "old.pt")
    with pytest.raises(InvalidInputError, match="not a file of a classifier of this version"):
        GCKMClassifier.load(tmp_path / "old.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "text.pt").write_text("n0,1")
    for name in ("list.pt", "text.pt"):
        with pytest.raises(InvalidInputError, match="is not a file of torch_gckm"):
            GCKMClassifier.load(tmp_path / name)
