"""``gckm shard`` writes what ``gckm fit`` reads."""

import os

import numpy as np
import pytest
import torch

from tests.conftest import make_graph
from torch_gckm.cli import main
from torch_gckm.datasets import ShardFolder

CLASSES = ["ant", "bee", "cat"]


@pytest.fixture
def options(tmp_path, monkeypatch):
    """A graph in files; the options that name them."""
    monkeypatch.chdir(tmp_path)
    graph = make_graph()
    rows = [f"n{node},{','.join(map(str, row))}\n" for node, row in enumerate(graph.x.tolist())]
    (tmp_path / "x.csv").write_text(f"node,{','.join('abcdefgh')}\n" + "".join(rows))
    (tmp_path / "edges.csv").write_text("".join(f"n{a},n{b}\n" for a, b in graph.edge_index.t().tolist() if a < b))
    (tmp_path / "y.csv").write_text("".join(f"n{node},{CLASSES[node % 3]}\n" for node in range(9)))
    return ["--features", "x.csv", "--edges", "edges.csv", "--quiet"]


def test_from_files(options, capsys):
    assert main(["shard", "out/graph", *options, "--labels", "y.csv"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("out/graph: 60 nodes, 8 columns, 320 directed edges, 3 classes; 0.0 MB")
    assert len(shown.out.splitlines()) == 1
    folder, graph = ShardFolder("out/graph"), make_graph()
    assert folder.class_names == CLASSES
    assert folder.feature_names == list("abcdefgh")
    assert folder.node_names(0, 2) == ["n0", "n1"]
    found = folder.read()
    torch.testing.assert_close(found.x, graph.x)
    assert found.y.tolist() == [*graph.y[:9].tolist(), *[-1] * 51]
    assert {tuple(edge) for edge in found.edge_index.t().tolist()} == set(map(tuple, graph.edge_index.t().tolist()))


@pytest.mark.parametrize("name", ["parts.txt", "parts.npy"])
def test_with_a_partition(options, capsys, name):
    parts = np.arange(60) % 4
    if name == "parts.npy":
        np.save(name, parts)
    else:
        with open(name, "w") as file:
            file.writelines(f"{part}\n" for part in parts)
    assert main(["shard", "graph", *options, "--partition", name]) == 0
    assert ", 4 parts; " in capsys.readouterr().out
    folder = ShardFolder("graph")
    assert folder.ranges(4) == [(0, 15), (15, 30), (30, 45), (45, 60)]
    assert folder.order[:3].tolist() == [0, 4, 8]
    assert folder.node_names(0, 3) == ["n0", "n4", "n8"]
    assert not folder.has_labels


def test_directed_edges_and_numbers(options):
    with open("y.csv", "w") as file:
        file.writelines(f"n{node},{node / 2}\n" for node in range(9))
    arguments = [*options, "--labels", "y.csv", "--target", "numeric", "--directed"]
    assert main(["shard", "graph", *arguments]) == 0
    found = ShardFolder("graph").read()
    assert found.num_edges == 160
    assert found.out_edge_index.shape == (2, 160)
    assert found.y[:9].tolist() == [node / 2 for node in range(9)]
    assert bool(found.y[9:].isnan().all())


def test_a_dataset_by_its_name(tmp_path, capsys):
    pytest.importorskip("sklearn")
    path = str(tmp_path / "digits")
    assert main(["shard", path, "--dataset", "digits", "--labels-per-class", "4"]) == 0
    assert "edges: 100%" in capsys.readouterr().err
    folder = ShardFolder(path)
    assert folder.num_classes == 10
    assert int(folder.read().train_mask.sum()) == 40
    assert folder.node_names() is None


def test_overwriting(options, capsys):
    assert main(["shard", "graph", *options]) == 0
    assert main(["shard", "graph", *options]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["shard", "graph", *options, "--overwrite"]) == 0
    assert main(["shard", ".", *options, "--overwrite"]) == 2  # It holds other files.
    assert os.path.exists("x.csv")
    np.save("features.npy", np.ones((60, 2)))
    os.rename("features.npy", "graph/x.npy")
    given = ["--features", "graph/x.npy", "--n-neighbors", "3", "--quiet"]
    assert main(["shard", "graph", *given, "--overwrite"]) == 2
    assert "it would be overwritten" in capsys.readouterr().err
    assert sorted(os.listdir()) == ["edges.csv", "graph", "x.csv", "y.csv"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0\n1\n", "each of the 60 nodes"),
        ("0\none\n", "line 2: not the number of a part: 'one'"),
        ("0\n\n1\n", "line 2"),
        ("-1\n" * 60, "line 1"),
        ("9" * 30, "line 1"),
        (b"\xff\xfe0", "UTF-8"),
        ("", "each of the 60 nodes"),
    ],
)
def test_bad_partitions(options, capsys, content, message):
    with open("parts", "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    assert main(["shard", "graph", *options, "--partition", "parts"]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not os.path.exists("graph")


def test_other_mistakes(options, capsys):
    assert main(["shard", "graph", *options, "--partition", "none.txt"]) == 2
    assert "none.txt" in capsys.readouterr().err
    np.save("parts.npy", np.array([None] * 60), allow_pickle=True)
    assert main(["shard", "graph", *options, "--partition", "parts.npy"]) == 2
    assert "holds object" in capsys.readouterr().err
    assert main(["shard", "x.csv/graph", *options]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert main(["shard", "graph", "--dataset", "digits", "--target", "numeric"]) == 2
    assert not os.path.exists("graph")
