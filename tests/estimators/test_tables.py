"""Tables with named columns as X of estimators, and labels that are blank."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from torch_gckm import GCKMClassifier, GCKMClustering, GCKMEmbedding, GCKMRegressor
from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.estimators.inputs import NumberedLabels
from torch_gckm.estimators.tables import without_blanks
from torch_gckm.tables import TableEncoding, table_of

pd = pytest.importorskip("pandas")
QUICK = {"search": None, "members": 1, "workers": 1, "progress": False}


@pytest.fixture(scope="module")
def shop():
    """A table of two kinds of customers, labels of some, and edges."""
    draw, count = np.random.default_rng(0), 80
    kind = np.arange(count) % 2
    frame = pd.DataFrame({
        "income": (30_000 + 9_000 * kind + draw.normal(0, 5_000, count)).round(),
        "age": draw.integers(20, 70, count).astype(float),
        "region": np.where(draw.random(count) < 0.8, kind, 1 - kind),
        "member": draw.random(count) < 0.3 + 0.4 * kind,
    })  # fmt: skip
    frame["region"] = frame["region"].map({0: "north", 1: "south"})
    frame.loc[5, "age"] = np.nan
    y = pd.Series(np.where(kind == 1, "new", "old"), dtype=object)
    y[20:] = None
    pairs = draw.integers(count, size=(600, 2))
    pairs = pairs[(kind[pairs[:, 0]] == kind[pairs[:, 1]]) | (draw.random(600) < 0.2)]
    return (
        frame,
        y,
        torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]]).T.copy()),
        np.where(kind == 1, "new", "old"),
    )


@pytest.fixture(scope="module")
def fitted(shop):
    frame, y, edges, _ = shop
    return GCKMClassifier(**QUICK).fit(frame, y, edge_index=edges)


def test_columns_are_encoded_and_known_by_their_names(shop, fitted):
    frame, _, edges, truth = shop
    assert fitted.n_features_in_ == 4
    assert fitted.feature_names_in_.tolist() == frame.columns.tolist()
    assert fitted.graph_.x.shape == (80, 6)
    assert fitted.classes_.tolist() == ["new", "old"]
    assert (fitted.predict() == truth)[20:].mean() > 0.8
    expected = fitted.predict_proba(frame, edge_index=edges)
    permuted = frame[["member", "region", "income", "age"]]
    np.testing.assert_array_equal(fitted.predict_proba(permuted, edge_index=edges), expected)
    np.testing.assert_allclose(fitted.predict_proba(), expected, atol=1e-4)
    with pytest.raises(InvalidInputError, match="it lacks income"):
        fitted.predict(frame.drop(columns="income"), edge_index=edges)


def test_rows_that_are_new(shop, fitted):
    frame, *_ = shop
    new = frame.iloc[:3].assign(age=[30.0, np.nan, 50.0], region=["north", "moon", "south"])
    edges = np.array([[0, 2, 4], [80, 81, 82]])
    with pytest.warns(GCKMWarning, match="'moon' in row 1 is new"):
        found = fitted.predict_proba(new, new_edges=edges)
    with pytest.warns(GCKMWarning, match="'moon' in row 1 is new"):
        np.testing.assert_array_equal(fitted.predict_proba(new[new.columns[::-1]], new_edges=edges), found)


def test_arrays_and_graphs_that_are_not_encoded_are_refused(shop, fitted):
    frame, y, edges, _ = shop
    with pytest.raises(InvalidInputError, match=r"fitted to a table of 4 columns .* pass a DataFrame"):
        fitted.predict(np.ones((80, 6)), edge_index=edges)
    with pytest.raises(InvalidInputError, match="column 'region' holds words"):
        fitted.predict(np.ones((80, 4)), edge_index=edges)
    with pytest.raises(InvalidInputError, match="'x' of the Data object is not known to be encoded"):
        fitted.predict(Data(x=fitted.graph_.x, edge_index=edges))
    graph = Data(x=fitted.graph_.x, edge_index=edges, encoding=fitted.encoding_)
    np.testing.assert_allclose(fitted.predict_proba(graph), fitted.predict_proba(), atol=1e-4)
    numbers = frame[["income", "age"]].fillna(0.0)
    by_name = GCKMClassifier(**QUICK).fit(numbers, y, edge_index=edges)
    assert by_name.encoding_.units_differ
    array = by_name.predict_proba(numbers.to_numpy(), edge_index=edges)
    np.testing.assert_array_equal(array, by_name.predict_proba(numbers, edge_index=edges))
    plain = GCKMEmbedding((2,)).fit(numbers.to_numpy(), edge_index=edges)
    assert plain.encoding_ is None
    np.testing.assert_array_equal(plain.graph_.x, numbers.to_numpy(dtype=np.float32))  # Arrays stay as they are.


def test_files_keep_the_encoding_and_another_process_reads_it(shop, fitted, tmp_path):
    frame, _, edges, _ = shop
    fitted.save(tmp_path / "model.pt")
    frame.to_csv(tmp_path / "x.csv", index=False)
    np.save(tmp_path / "edges.npy", edges.numpy())
    code = """
import numpy as np, pandas as pd
from torch_gckm import GCKMClassifier
model = GCKMClassifier.load("model.pt")
np.save("p.npy", model.predict_proba(pd.read_csv("x.csv"), edge_index=np.load("edges.npy")))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180, cwd=tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), fitted.predict_proba(frame, edge_index=edges), atol=1e-5)
    fitted.save(tmp_path / "small.pt", inductive=True)
    assert GCKMClassifier.load(tmp_path / "small.pt").encoding_ == fitted.encoding_


def test_numbers_and_clusters_of_tables(shop):
    frame, _, edges, _ = shop
    target = np.where(np.arange(80) < 30, frame["income"] / 1_000, np.nan)
    rest = frame.drop(columns="income")
    regressor = GCKMRegressor(**QUICK).fit(rest, target, edge_index=edges)
    permuted = regressor.predict(rest[["region", "member", "age"]], edge_index=edges)
    np.testing.assert_array_equal(permuted, regressor.predict(rest, edge_index=edges))
    clusters = GCKMClustering(2, hops=1).fit(frame, edge_index=edges)
    np.testing.assert_array_equal(clusters.graph_.x, TableEncoding.learn(table_of(frame))[1])
    clusters.fit(np.eye(80), edge_index=edges)
    assert clusters.encoding_ is None


BLANKS = [np.nan, None, pd.NA, ""]


@pytest.mark.parametrize("blank", BLANKS, ids=map(repr, BLANKS))
@pytest.mark.parametrize("classes", [["old", "new"], [3, 1], [True, False]], ids=str)
def test_labels_that_are_blank(blank, classes):
    labels = [classes[0], blank, classes[1], classes[0], blank]
    for y in (labels, pd.Series(labels, dtype=object), np.array(labels, dtype=object)):
        found = NumberedLabels.of_rows(np.asarray(without_blanks(y)))
        assert found.classes.tolist() == sorted(classes)
        assert found.places.tolist() == [1, -1, 0, 1, -1]
    assert without_blanks(labels[:1]) == labels[:1]


def test_blank_labels_of_a_series(shop):
    frame, _, edges, truth = shop
    y = pd.Series((truth == "new").astype(int)).where(np.arange(80) < 20)  # pandas makes fractions of them.
    found = GCKMClassifier(**QUICK).fit(frame, y, edge_index=edges)
    assert found.classes_.dtype.kind == "i"
    assert int((found.graph_.y >= 0).sum()) == 20
    assert found.score(frame, y, edge_index=edges) == (found.predict() == y)[:20].mean()
