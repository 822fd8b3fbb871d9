import csv
import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.cli import main
from torch_gckm.select import GCKMEnsemble

NAMES = [f"n{node}" for node in range(60)]
CLASSES = ["ant", "bee", "cat"]


@pytest.fixture
def files(tmp_path):
    """A graph as CSV files; the options that name them."""
    graph = make_graph()
    with (tmp_path / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["node", *"abcdefgh"], *([n, *row] for n, row in zip(NAMES, graph.x.tolist(), strict=True))]
        )
    one_way = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].t().tolist()
    with (tmp_path / "edges.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["from", "to"], *([NAMES[a], NAMES[b]] for a, b in one_way)])
    with (tmp_path / "y.csv").open("w", newline="") as file:
        labels = [
            CLASSES[y] if known else "" for y, known in zip(graph.y.tolist(), graph.train_mask.tolist(), strict=True)
        ]
        csv.writer(file).writerows([["node", "class"], *zip(NAMES, labels, strict=True)])
    graph_options = ["--features", str(tmp_path / "x.csv"), "--edges", str(tmp_path / "edges.csv")]
    return graph, tmp_path, graph_options, ["--labels", str(tmp_path / "y.csv")]


QUICK = ["--budget", "0", "--max-settings", "8", "--quiet"]


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_from_files_to_classes(files, capsys):
    graph, folder, options, labels = files
    model, output = folder / "model.pt", folder / "classes.csv"
    assert main(["fit", str(model), *options, *labels, *QUICK, "--predictions", str(output)]) == 0
    rows = read(output)
    assert [row["node"] for row in rows] == NAMES
    right = [row["class"] == CLASSES[y] for row, y in zip(rows, graph.y.tolist(), strict=True)]
    assert sum(right) > 45
    assert all(float(row["probability"]) >= float(row["second probability"]) for row in rows)
    assert "settings" in capsys.readouterr().err

    # The same again from the file, about its own graph and about the graph as if it were new.
    assert main(["predict", str(model), "--output", str(folder / "own.csv")]) == 0
    assert read(folder / "own.csv") == rows
    assert main(["predict", str(model), *options, "--output", str(folder / "given.csv")]) == 0
    assert [row["class"] for row in read(folder / "given.csv")] == [row["class"] for row in rows]

    capsys.readouterr()
    assert main(["suggest", str(model), "--count", "3"]) == 0
    suggested = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(suggested) == 3
    assert {row["node"] for row in suggested} <= set(NAMES[6:])
    predicted = {row["node"]: row for row in rows}
    for row in suggested:  # What is predicted for them, and how sure that is.
        assert row == {name: predicted[row["node"]][name] for name in row}
        assert float(row["probability"]) >= float(row["second probability"])
    assert main(["info", str(model)]) == 0
    assert "ant, bee, cat" in capsys.readouterr().out


def test_a_page_about_the_fit(files, capsys, monkeypatch):
    _, folder, options, labels = files
    model, report = folder / "model.pt", folder / "report.html"
    (folder / "y.csv").write_text((folder / "y.csv").read_text().replace("ant", "<ant>"))
    assert main(["fit", str(model), *options, *labels, *QUICK, "--report", str(report)]) == 0
    assert f"{report}: written" in capsys.readouterr().err
    page = report.read_text()
    assert "&lt;ant&gt;" in page
    assert "<ant>" not in page
    assert "gckm fit" in page
    assert "fit of the ensemble" in page
    model.unlink()
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "bokeh" else find(name, *a))
    assert main(["fit", str(model), *options, *labels, *QUICK, "--report", str(report)]) == 2
    message = capsys.readouterr().err
    assert "torch_gckm[report]" in message
    assert len(message.splitlines()) == 1
    assert main(["demo", "--report", str(report)]) == 2
    assert not model.exists()  # It is told before the work, not after it.


def test_small_files_speak_of_other_graphs(files, capsys):
    _, folder, options, labels = files
    model = folder / "small.pt"
    assert main(["fit", str(model), *options, *labels, *QUICK, "--inductive"]) == 0
    assert main(["predict", str(model), *options]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 61
    assert main(["predict", str(model)]) == 2
    assert "inductive" in capsys.readouterr().err


def test_settings_embeddings_and_clusters(files, capsys):
    _, folder, options, labels = files
    assert main(["search", *options, *labels, *QUICK, "--show", "3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert main(["embed", *options, "--channels", "4", "3", "--output", str(folder / "h.csv")]) == 0
    rows = read(folder / "h.csv")
    h = torch.tensor([[float(row[f"h{column}"]) for column in (1, 2, 3)] for row in rows])
    gram = h.t() @ h / 60  # The columns are orthogonal; the first has the norm sqrt(n), others less.
    torch.testing.assert_close(gram, torch.diag(gram.diagonal()), atol=1e-4, rtol=0.0)
    assert float(gram[0, 0]) == pytest.approx(1.0, abs=1e-4)
    assert 1.0 > float(gram[1, 1]) > float(gram[2, 2]) > 0.0
    assert (
        main(["cluster", *options, "--channels", "4", "3", "--clusters", "3", "--output", str(folder / "c.csv")]) == 0
    )
    assert {row["cluster"] for row in read(folder / "c.csv")} == {"0", "1", "2"}


def test_matrices_weights_and_neighbours(files, capsys):
    graph, folder, options, _ = files
    x = (graph.x * (graph.x > 0)).numpy()
    np.save(folder / "x.npy", x)
    np.savez(folder / "dense.npz", x=x)
    scipy.sparse.save_npz(folder / "sparse.npz", scipy.sparse.csr_matrix(x))
    scipy.sparse.save_npz(folder / "coo.npz", scipy.sparse.coo_matrix(x))
    tables = []
    for name in ("x.npy", "dense.npz", "sparse.npz", "coo.npz"):
        assert main(["embed", "--features", str(folder / name), "--n-neighbors", "5", "--channels", "4", "3"]) == 0
        tables.append([row.split(",")[1:] for row in capsys.readouterr().out.splitlines()[1:]])
    values = torch.tensor([[[float(cell) for cell in row] for row in table] for table in tables])
    torch.testing.assert_close(values[0], values[1])
    torch.testing.assert_close(values[0], values[2], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(values[2], values[3])
    edges = (folder / "edges.csv").read_text().splitlines()
    (folder / "weights.csv").write_text("\n".join(f"{line},{1 + i % 3}" for i, line in enumerate(edges[1:])))
    plain, weighted = (
        [*options[:2], "--edges", str(folder / name), "--channels", "4", "3"] for name in ("edges.csv", "weights.csv")
    )
    found = []
    for given in (plain, weighted):
        assert main(["embed", *given]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] != found[1]


@pytest.mark.parametrize(("change", "match"), [
    ({"x.csv": "n0,1\nn1,red\n"}, "line 2: 'red' is not a number"),
    ({"x.csv": "n0,1,2\nn1,3\n"}, "line 2: 2 cells instead of 3"),
    ({"x.csv": "n0,1\nn0,2\n"}, "line 2: there is another node called 'n0'"),
    ({"x.csv": ""}, "needs lines"),
    ({"x.csv": "node,a,b\nn0,1,2\nn1,inf,1\n"}, "line 3: a value is infinite"),
    ({"x.csv": "node,a\nn0,1\nn1,2\nn2,red\n"}, "line 4: 'red' is not a number, as most cells of column 'a' are"),
    ({"x.csv": "n0;1,5\nn1;3.5\n"}, "write all with points"),
    ({"x.csv": "n0,1,\nn1,1,2\n"}, "line 1: a value is missing"),
    ({"x.csv": "n0,1\n,2\n"}, "line 2: a node has no name"),
    ({"edges.csv": "n0,n1\nn0,nobody\n"}, "line 2: not two known nodes"),
    ({"edges.csv": "nobody,n1\nn0,n1\n"}, "line 1: not two known nodes"),
    ({"y.csv": "n0,ant\nnobody,bee\n"}, "line 2: not a known node"),
    ({"y.csv": "nobody,ant\nn0,ant\nn1,bee\n"}, "line 1: no node is called 'nobody'"),
    ({"y.csv": "n0,ant\nn1,bee\nn0,bee\n"}, "line 3: 'n0' has two classes, ant and bee"),
    ({"y.csv": "n0,\n"}, "no node has a class"),
    ({"y.csv": "n0,ant\nn1,ant\n"}, "at least two classes"),
])  # fmt: skip
def test_mistakes_in_files_are_told_in_one_line(files, capsys, change, match):
    _, folder, options, labels = files
    for name, content in change.items():
        (folder / name).write_text(content)
    assert main(["fit", str(folder / "model.pt"), *options, *labels, *QUICK]) == 2
    message = capsys.readouterr().err
    assert match in message
    assert len(message.splitlines()) == 1
    assert not (folder / "model.pt").exists()


@pytest.mark.parametrize(("arguments", "match"), [
    (["fit", "m.pt"], "--dataset"),
    (["fit", "m.pt", "--features", "nowhere.csv", "--edges", "e.csv"], "no file nowhere.csv"),
    (["fit", "m.pt", "--dataset", "atlantis"], "unknown dataset 'atlantis'"),
    (["fit", ".", "--dataset", "digits"], "is a folder"),
    (["fit", "m.pt", "--dataset", "digits", "--edges", "e.csv"], "go with files"),
    (["fit", "m.pt", "--dataset", "digits", "--budget", "-5"], "'budget' must be a positive number, got -5"),
    (["fit", "m.pt", "--dataset", "digits", "--max-settings", "0"], "'max_settings' must be a positive number"),
    (["embed", "--features", "."], "give --edges"),
    (["embed", "--features", ".", "--n-neighbors", "2"], "no file ."),
    (["embed", "--features", "utf16.csv", "--n-neighbors", "2"], "not a table in a text file in UTF-8"),
    (["embed", "--features", "x.npy", "--edges", "e.csv", "--n-neighbors", "2"], "not both"),
    (["embed", "--features", "x.npy", "--n-neighbors", "9"], "--n-neighbors must be from 1 to 2"),
    (["embed", "--features", "x.npy", "--n-neighbors", "2", "--labels-per-class", "1"], "--labels-per-class goes with"),
    (["embed", "--features", "x.npy", "--n-neighbors", "2", "--split", "0"], "--split goes with --dataset"),
    (["embed", "--dataset", "digits", "--split", "0"], "digits has one split at most"),
    (["embed", "--features", "x.npy", "--n-neighbors", "2", "--directed"], "--directed goes with --edges"),
    (["cluster", "--features", "x.npy", "--n-neighbors", "2", "--clusters", "9"], "from 2 to 3, got 9"),
    (["predict", "nowhere.pt"], "gckm fit"),
    (["predict", "utf16.csv"], "'utf16.csv' is not a file of torch_gckm"),
    (["info", "x.npy"], "'x.npy' is not a file of torch_gckm"),
    (["embed", "--features", "flat.npy", "--n-neighbors", "1"], "array of shape (3,)"),
    (["embed", "--features", "nan.npy", "--n-neighbors", "1"], "1 entries that are NaN"),
    (["embed", "--features", "empty.npy", "--n-neighbors", "1"], "holds no matrix"),
    (["embed", "--features", "utf16.npz", "--n-neighbors", "1"], "holds no matrix"),
])  # fmt: skip
def test_mistakes_in_options(arguments, match, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.eye(3))
    np.save("flat.npy", np.ones(3))
    np.save("nan.npy", np.array([[1.0, np.nan]]))
    (tmp_path / "empty.npy").touch()
    for suffix in ("csv", "npz"):
        (tmp_path / f"utf16.{suffix}").write_bytes("n0,1".encode("utf-16"))
    assert main(arguments) == 2
    message = capsys.readouterr().err.split("\r")[-1]  # Behind a bar.
    assert match in message
    assert len(message.splitlines()) == 1


def test_options_that_need_others(files, capsys):
    _, folder, options, labels = files
    model, small = folder / "model.pt", folder / "small.pt"
    assert main(["fit", str(model), *options, *labels, *QUICK]) == 0
    assert main(["predict", str(model), *options[2:]]) == 2
    assert "give --features" in capsys.readouterr().err
    assert main(["fit", str(small), *options, *labels, *QUICK, "--inductive"]) == 0
    assert main(["suggest", str(small)]) == 2
    assert "for other graphs only" in capsys.readouterr().err


def test_directions_of_edges(files, capsys):
    _, folder, options, labels = files
    model, own, given = (folder / name for name in ("model.pt", "own.csv", "given.csv"))
    for name, more in (("plain.csv", []), ("directed.csv", ["--directed"])):
        assert main(["embed", *options, *more, "--channels", "4", "3", "--output", str(folder / name)]) == 0
    assert read(folder / "plain.csv") != read(folder / "directed.csv")
    assert main(["fit", str(model), *options, *labels, *QUICK, "--directed", "--predictions", str(own)]) == 0
    assert main(["predict", str(model), *options, "--output", str(given)]) == 0  # As it was fitted.
    assert [row["class"] for row in read(given)] == [row["class"] for row in read(own)]
    assert main(["predict", str(model), *options[:2], "--n-neighbors", "4", "--output", str(given)]) == 0
    found = GCKMEnsemble.load(model)
    directions = {layer.aggregation.direction for member in found.members for layer in member.layers}
    assert directions != {"in"}
    assert main(["fit", str(model), *options, *labels, *QUICK]) == 0
    assert main(["predict", str(model), *options, "--directed"]) == 2
    assert "fitted to undirected edges" in capsys.readouterr().err


def test_files_of_single_models(tmp_path, capsys):
    graph = make_graph()
    model = GCKM(graph.num_features, (4, 3), 3)
    Trainer(model, steps=0, progress=False).fit(graph)
    model.save(tmp_path / "model.pt")
    assert main(["predict", str(tmp_path / "model.pt")]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [int(row["class"]) for row in rows] == model.predict().tolist()


def test_headings_and_unknown_classes(files, capsys):
    """The table of an index has a heading that begins with an empty cell; -1 is no class."""
    graph, folder, options, labels = files
    lines = (folder / "x.csv").read_text().splitlines()[1:]
    (folder / "x.csv").write_text("\n".join([",0,1,2,3,4,5,6,7", *lines]))
    known = [(n, y) for n, y, used in zip(NAMES, graph.y.tolist(), graph.train_mask.tolist(), strict=True) if used]
    rest = [f"{name},-1" for name in NAMES if name not in dict(known)]
    (folder / "y.csv").write_text("\n".join([*(f"{name},{y}" for name, y in known), *rest]))
    assert main(["fit", str(folder / "m.pt"), *options, *labels, *QUICK]) == 0
    assert main(["predict", str(folder / "m.pt")]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["node"] for row in rows] == NAMES
    assert {row["class"] for row in rows} == {"0", "1", "2"}


def test_datasets_of_several_splits(monkeypatch, capsys, tmp_path):
    graph = make_graph()
    graph.train_mask, graph.test_mask = (torch.stack([m, m], dim=1) for m in (graph.train_mask, graph.test_mask))
    monkeypatch.setattr("torch_gckm.cli.graphs.load", lambda *_, **__: graph.clone())
    assert main(["fit", str(tmp_path / "m.pt"), "--dataset", "two", *QUICK]) == 2
    assert "choose one with --split, from 0 to 1" in capsys.readouterr().err
    assert main(["fit", str(tmp_path / "m.pt"), "--dataset", "two", *QUICK, "--split", "1"]) == 0


def test_tables_of_spreadsheets(files, capsys):
    """A mark at the beginning of a file; a file of edges without any."""
    _, folder, options, _ = files
    assert main(["embed", *options, "--channels", "4", "3"]) == 0
    expected = capsys.readouterr().out
    (folder / "x.csv").write_text((folder / "x.csv").read_text().split("\n", 1)[1], encoding="utf-8-sig")
    assert main(["embed", *options, "--channels", "4", "3"]) == 0
    assert capsys.readouterr().out == expected
    (folder / "edges.csv").write_text("from,to\n")
    assert main(["embed", *options, "--channels", "4", "3"]) == 0
    assert "has no edges" in capsys.readouterr().err


def test_readers_may_stop(files):
    _, _, options, _ = files
    command = [sys.executable, "-m", "torch_gckm", "embed", *options, "--channels", "4", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        message = process.stderr.read()
        assert process.wait(timeout=120) == 0
    assert message.startswith("60 nodes, 8 columns")
    assert len(message.splitlines()) == 1


def test_demo_and_module(tmp_path):
    command = [sys.executable, "-m", "torch_gckm", "demo", *QUICK, "--model", str(tmp_path / "digits.pt")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "test nodes are right" in result.stderr
    assert (tmp_path / "digits.pt").exists()
