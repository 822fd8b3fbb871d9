"""The real loading path of ogbn-arxiv, on a few nodes written in OGB's own file format."""

import gzip

import pytest
import torch

from torch_gckm.datasets import load

pytest.importorskip("ogb", reason="ogb is not installed (extra 'datasets')")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    write(folder / "raw" / "edge.csv.gz", [(0, 1), (1, 2), (3, 2)])
    write(folder / "raw" / "node-feat.csv.gz", [[node + 0.5] * 128 for node in range(4)])
    write(folder / "raw" / "node-label.csv.gz", [(4,), (0,), (39,), (4,)])
    write(folder / "raw" / "node_year.csv.gz", [(2015,), (2016,), (2018,), (2019,)])
    write(folder / "raw" / "num-node-list.csv.gz", [(4,)])
    write(folder / "raw" / "num-edge-list.csv.gz", [(3,)])
    for part, nodes in (("train", (0, 1)), ("valid", (2,)), ("test", (3,))):
        write(folder / "split" / "time" / f"{part}.csv.gz", [(node,) for node in nodes])
    (folder / "RELEASE_v1.txt").touch()
    return tmp_path


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
