"""The real loading path of ogbn-arxiv, on a few nodes written in OGB's own file format."""

import gzip
import importlib
from pathlib import Path

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm.datasets import load

pytest.importorskip("ogb", reason="ogb is not installed (extra 'datasets')")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)


def write_arxiv(root, edges, x, y, parts):
    folder = root / "ogb" / "ogbn_arxiv"
    write(folder / "raw" / "edge.csv.gz", edges)
    write(folder / "raw" / "node-feat.csv.gz", x)
    write(folder / "raw" / "node-label.csv.gz", [(label,) for label in y])
    write(folder / "raw" / "node_year.csv.gz", [(2015,)] * len(y))
    write(folder / "raw" / "num-node-list.csv.gz", [(len(y),)])
    write(folder / "raw" / "num-edge-list.csv.gz", [(len(edges),)])
    for part, nodes in zip(("train", "valid", "test"), parts, strict=True):
        write(folder / "split" / "time" / f"{part}.csv.gz", [(node,) for node in nodes])
    (folder / "RELEASE_v1.txt").touch()
    return root


@pytest.fixture
def root(tmp_path):
    x = [[node + 0.5] * 128 for node in range(4)]
    return write_arxiv(tmp_path, [(0, 1), (1, 2), (3, 2)], x, [4, 0, 39, 4], [(0, 1), (2,), (3,)])


def test_loading_leaves_the_safe_globals_as_they_were(root):
    before = set(torch.serialization.get_safe_globals())
    load("ogbn-arxiv", root)
    assert set(torch.serialization.get_safe_globals()) == before


def test_arxiv_loads_through_ogb(root):
    for _ in range(2):  # The second time from the processed file.
        data = load("ogbn-arxiv", root)
        assert data.num_nodes == 4
        assert data.x.shape == (4, 128)
        assert data.y.tolist() == [4, 0, 39, 4]
        assert data.is_undirected()
        assert data.num_edges == 6
        assert data.train_mask.tolist() == [True, True, False, False]
        assert data.test_mask.tolist() == [False, False, False, True]
    assert load("ogbn-arxiv", root, undirected=False).num_edges == 3
    assert torch.equal(data.x[:, 0], torch.tensor([0.5, 1.5, 2.5, 3.5]))


def test_the_paper_s_row_runs_where_the_data_is(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    run, arxiv = importlib.import_module("run"), importlib.import_module("experiments.arxiv")
    monkeypatch.setattr(arxiv, "CHANNELS", (6, 3))
    monkeypatch.setattr(arxiv, "RANK", 40)
    graph = make_graph(200, seed=1)
    x = torch.nn.functional.pad(graph.x, (0, 120))
    write_arxiv(tmp_path, graph.edge_index.t().tolist(), x.tolist(), graph.y.tolist(), [range(9), (9,), range(10, 200)])
    options = ["--datasets", "ogbn-arxiv", "--root", str(tmp_path), "--seeds", "2", "--out", str(tmp_path)]
    rows = run.main(["arxiv", *options])
    assert [row["seed"] for row in rows] == [0, 1]
    assert "| ogbn-arxiv | 2 | " in capsys.readouterr().out
