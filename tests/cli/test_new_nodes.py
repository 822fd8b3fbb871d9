"""Predictions for new nodes whose edges lead to nodes of the fitted graph."""

import csv

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKMClassifier, GCKMRegressor
from torch_gckm.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")
NAMES = [f"n{node}" for node in range(60)]
QUICK = ["--budget", "0", "--max-settings", "4", "--quiet"]


def write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def files(tmp_path):
    """A graph of 50 nodes, and 10 nodes that came later, as options of commands."""
    graph = make_graph()
    rows = [[name, *row] for name, row in zip(NAMES, graph.x.tolist(), strict=True)]
    pairs = [(a, b) for a, b in graph.edge_index.t().tolist() if a < b]
    heading, ends = ["node", *"abcdefgh"], ["from", "to"]
    x = write(tmp_path / "x.csv", [heading, *rows[:50]])
    new_x = write(tmp_path / "new_x.csv", [heading, *rows[50:]])
    edges = write(tmp_path / "edges.csv", [ends, *((NAMES[a], NAMES[b]) for a, b in pairs if b < 50)])
    new_edges = write(tmp_path / "new_edges.csv", [ends, *((NAMES[a], NAMES[b]) for a, b in pairs if b >= 50)])
    y = write(tmp_path / "y.csv", [["node", "class"], *((NAMES[node], int(graph.y[node])) for node in range(12))])
    old = ["--features", x, "--edges", edges, "--labels", y, *QUICK]
    return graph, tmp_path, old, ["--features", new_x, "--edges", new_edges]


@pytest.mark.parametrize(("target", "kind"), [("class", GCKMClassifier), ("numeric", GCKMRegressor)])
def test_new_nodes_are_joined_to_the_fitted_graph(files, capsys, target, kind):
    graph, folder, old, new = files
    assert main(["fit", str(folder / "model.pt"), *old, "--target", target]) == 0
    assert main(["predict", str(folder / "model.pt"), *new, "--output", str(folder / "found.csv")]) == 0
    assert "10 nodes, 8 columns, edges to nodes of the fitted graph" in capsys.readouterr().err
    found, estimator = read(folder / "found.csv"), kind.load(folder / "model.pt")
    assert [row["node"] for row in found] == NAMES[50:]
    edges = graph.edge_index[:, (graph.edge_index >= 50).any(dim=0)]
    expected = estimator.predict(graph.x[50:], new_edges=edges).tolist()
    if target == "numeric":
        assert [float(row["value"]) for row in found] == pytest.approx(expected, abs=1e-4)
        return
    names = estimator.classes_.tolist()
    assert [row["class"] for row in found] == expected
    assert sum(names[y] == row["class"] for y, row in zip(graph.y[50:].tolist(), found, strict=True)) >= 7


def test_a_whole_graph_stays_one(files, capsys):
    graph, folder, old, new = files
    assert main(["fit", str(folder / "model.pt"), *old]) == 0
    pairs = [(a, b) for a, b in graph.edge_index.t().tolist() if 50 <= a < b]
    own = write(folder / "own.csv", [["from", "to"], *((NAMES[a], NAMES[b]) for a, b in pairs)])
    assert main(["predict", str(folder / "model.pt"), *new[:2], "--edges", own, "--output", str(folder / "o.csv")]) == 0
    edges = torch.tensor(pairs).t().reshape(2, -1) - 50
    expected = GCKMClassifier.load(folder / "model.pt").predict(graph.x[50:], edge_index=edges)
    assert [row["class"] for row in read(folder / "o.csv")] == [str(name) for name in expected]


def test_mistakes_are_told_by_name(files, capsys):
    _, folder, old, new = files
    assert main(["fit", str(folder / "model.pt"), *old]) == 0
    with (folder / "new_edges.csv").open("a") as file:
        file.write("n1,n2\n")
    assert main(["predict", str(folder / "model.pt"), *new]) == 2
    assert "joins 'n1' and 'n2', which both belong to the fitted graph" in capsys.readouterr().err
    assert main(["fit", str(folder / "small.pt"), *old, "--inductive"]) == 0
    assert main(["predict", str(folder / "small.pt"), *new]) == 2
    assert "a model for other graphs only (--inductive) knows no nodes of its own" in capsys.readouterr().err
