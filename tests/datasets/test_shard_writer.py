"""Graphs that are written block by block."""

import gc
import os

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from tests.conftest import make_graph
from torch_gckm.datasets import ShardFolder, ShardWriter, edge_sort, write_shards
from torch_gckm.errors import InvalidInputError, InvalidLabelError
from torch_gckm.layouts import to_csr


def test_edges_are_sorted_in_groups(tmp_path, monkeypatch):
    """As of a graph that is larger than the memory: many chunks, many groups, a node with more edges than a group."""
    monkeypatch.setattr(edge_sort, "_CHUNK", 5000)
    monkeypatch.setattr(edge_sort, "_GROUP", 7000)
    generator = torch.Generator().manual_seed(0)
    size, count = 2000, 60_000
    edges = torch.randint(size, (2, count), generator=generator)
    edges[1, ::5] = 1234
    weight = torch.rand(count, generator=generator)
    with ShardWriter(tmp_path / "graph", size, 1, weight_dtype=torch.float32) as writer:
        for part in torch.arange(size).float().view(-1, 1).split(700):
            writer.append_rows(part)
        for part in torch.randperm(count, generator=generator).split(8000):
            writer.append_edges(edges[:, part], weight[part])
    folder = ShardFolder(tmp_path / "graph")
    assert folder.is_directed
    found = folder.read()
    assert torch.equal(found.x.view(-1), torch.arange(size).float())
    for prefix, by in (("", 1), ("out_", 0)):
        ends, values = found[f"{prefix}edge_index"], found[f"{prefix}edge_weight"]
        assert bool((ends[by].diff() >= 0).all())
        places = ends[by] * size + ends[1 - by]
        assert bool((places.diff() >= 0).all())
        expected = coalesce(edges, weight.double(), size)
        torch.testing.assert_close(coalesce(ends, values.double(), size), expected)
    assert {path.suffix for path in folder.folder.iterdir()} == {".json", ".npy"}  # No temporary files.


def test_200_000_nodes(tmp_path):
    size, count = 200_000, 1_000_000
    rng = np.random.default_rng(0)
    edges = rng.integers(0, size, (2, count))
    with ShardWriter(tmp_path / "graph", size, 4) as writer:
        for start in range(0, size, 50_000):
            writer.append_rows(np.full((50_000, 4), start, np.float32))
        for start in range(0, count, 250_000):
            writer.append_edges(edges[:, start : start + 250_000])
            writer.append_edges(edges[::-1, start : start + 250_000])
        writer.add("y", np.arange(size) % 7)
    folder = ShardFolder(tmp_path / "graph")
    assert not folder.is_directed
    assert not (tmp_path / "graph" / "out_indptr.npy").exists()
    expected = np.sort(np.concatenate([edges[1] * size + edges[0], edges[0] * size + edges[1]]))
    parts = [folder.read(start, stop) for start, stop in folder.ranges(3)]
    found = np.concatenate([(part.edge_index[1] * size + part.edge_index[0]).numpy() for part in parts])
    assert np.array_equal(found, expected)
    assert torch.cat([part.y for part in parts]).tolist() == (np.arange(size) % 7).tolist()


@pytest.mark.parametrize(("directed", "expected"), [(None, False), (False, False), (True, True)])
def test_whether_edges_are_stored_both_ways(tmp_path, directed, expected):
    data = make_graph()
    with ShardWriter(tmp_path / "graph", 60, 8, directed=directed) as writer:
        writer.append_rows(data.x)
        writer.append_edges(data.edge_index)
    assert ShardFolder(tmp_path / "graph").is_directed == expected


def test_weights_that_differ_are_directions(tmp_path):
    edges = torch.tensor([[0, 1], [1, 0]])
    for name, weight in (("same", [2.0, 2.0]), ("other", [2.0, 3.0])):
        with ShardWriter(tmp_path / name, 2, 1, weight_dtype=torch.float64) as writer:
            writer.append_rows(torch.ones(2, 1))
            writer.append_edges(edges, torch.tensor(weight))
    assert not ShardFolder(tmp_path / "same").is_directed
    assert ShardFolder(tmp_path / "other").read(1, 2).out_edge_weight.tolist() == [3.0]


@pytest.mark.parametrize("form", ["csr", "coo", "scipy"])
def test_sparse_rows(tmp_path, form):
    rows = scipy.sparse.random_array((50, 30), density=0.1, rng=np.random.default_rng(0), dtype=np.float32).tocsr()
    dense = torch.from_numpy(rows.toarray())
    with ShardWriter(tmp_path / "graph", 50, 30, is_sparse=True) as writer:
        for part in (slice(0, 20), slice(20, 21), slice(21, 50)):
            blocks = {"scipy": rows[part], "coo": dense[part].to_sparse(), "csr": to_csr(dense[part])}
            writer.append_rows(blocks[form])
    folder = ShardFolder(tmp_path / "graph")
    assert folder.is_sparse
    assert torch.equal(folder.read().x.to_dense(), dense)
    assert torch.equal(folder.read(19, 33).x.to_dense(), dense[19:33])
    np.save(tmp_path / "graph" / "x_indices.npy", np.full(rows.nnz, 30, np.int32))
    with pytest.raises(InvalidInputError, match=r"x_indices\.npy' is damaged"):
        ShardFolder(tmp_path / "graph").read()


class TestBadInput:
    @pytest.fixture
    def writer(self, tmp_path):
        writer = ShardWriter(tmp_path / "graph", 10, 2)
        yield writer
        writer.close()
        assert not list(tmp_path.iterdir())

    def test_features(self, writer):
        writer.append_rows(torch.ones(4, 2))
        rows = torch.ones(3, 2)
        rows[1, 0], rows[2, 1] = torch.nan, torch.inf
        for bad, message in (
            (rows, "2 entries that are NaN or infinite, first in row 5"),
            (torch.full((1, 2), 1e300, dtype=torch.double), "first in row 4"),
            (torch.ones(7, 2), "rows for 6 nodes at most"),
            (torch.ones(3, 3), r"\[k, 2\]"),
            (torch.ones(3), r"\[k, 2\]"),
            (torch.ones(3, 2).to_sparse(), "is_sparse=True"),
            (torch.ones(3, 2, dtype=torch.cfloat), "real numbers"),
            (np.array([["a", "b"]]), "real numbers"),
        ):
            with pytest.raises(InvalidInputError, match=message):
                writer.append_rows(bad)

    def test_sparse_features(self, tmp_path):
        rows = scipy.sparse.csr_array(([1.0, np.nan], ([0, 3], [1, 1])), shape=(4, 2))
        with (
            pytest.raises(InvalidInputError, match="1 entries that are NaN or infinite, first in row 3"),
            ShardWriter(tmp_path / "sparse", 4, 2, is_sparse=True) as writer,
        ):
            writer.append_rows(rows)
        assert not list(tmp_path.iterdir())

    def test_edges_and_labels(self, writer):
        for edges, weight, message in (
            (torch.tensor([[0], [10]]), None, "names nodes 0 to 10"),
            (torch.tensor([[0.0], [1.0]]), None, "integer tensor"),
            (torch.tensor([[0], [1]]), torch.ones(1), "weight_dtype="),
            (torch.eye(10).to_sparse(), None, "not a sparse matrix"),
        ):
            with pytest.raises(InvalidInputError, match=message):
                writer.append_edges(edges, weight)
        with pytest.raises(InvalidLabelError, match="10 rows"):
            writer.add("y", torch.ones(9))
        with pytest.raises(InvalidInputError, match="'pos' is not stored"):
            writer.add("pos", torch.ones(10))

    def test_rows_that_are_missing(self, writer):
        writer.append_rows(torch.ones(4, 2))
        with pytest.raises(InvalidInputError, match="features of 4 nodes"):
            writer.finish()

    def test_sizes(self, tmp_path):
        for count in (0, -1, 4 * 10**9):
            with pytest.raises(InvalidInputError, match="'num_nodes' must be"):
                ShardWriter(tmp_path / "graph", count, 2)
        with pytest.raises(InvalidInputError, match="'order' must hold"):
            ShardWriter(tmp_path / "graph", 10, 2, order=torch.arange(9))
        assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_dropped_writer_leaves_nothing(tmp_path):
    writer = ShardWriter(tmp_path / "graph", 10, 2)
    writer.append_rows(torch.ones(10, 2))
    del writer
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_writer_may_be_finished_by_hand(tmp_path):
    with ShardWriter(tmp_path / "graph", 10, 2, progress=False) as writer:
        writer.append_rows(torch.ones(10, 2))
        folder = writer.finish()
        assert isinstance(folder.read(), Data)
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


@pytest.mark.skipif(os.name != "posix", reason="no limits of file sizes")
def test_a_full_disk_is_an_error_that_names_a_file(tmp_path):
    import resource

    path, limits = tmp_path / "graph", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        for rows, edges in ((50_000, 0), (10, 50_000), (10, 20_000)):
            with pytest.raises(OSError, match=r"File too large: '.*graph"):
                write_shards(Data(x=torch.ones(rows, 1), edge_index=torch.arange(2 * edges).view(2, -1) % 10), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_orders_and_boundaries(tmp_path):
    for order in (torch.arange(10) + 1, torch.zeros(10, dtype=torch.long)):
        with pytest.raises(InvalidInputError, match="'order' must hold every number from 0 to 9"):
            ShardWriter(tmp_path / "graph", 10, 2, order=order)
    for boundaries in ([0, 5], [1, 10], [0, 5, 5, 10], []):
        with pytest.raises(InvalidInputError, match="'boundaries' must rise"):
            ShardWriter(tmp_path / "graph", 10, 2, boundaries=boundaries)
    with ShardWriter(tmp_path / "graph", 10, 2, order=torch.arange(9, -1, -1), boundaries=[0, 4, 10]) as writer:
        writer.append_rows(torch.ones(10, 2))
    folder = ShardFolder(tmp_path / "graph")
    assert folder.ranges(2) == [(0, 4), (4, 10)]
    assert folder.order.tolist() == list(range(9, -1, -1))


def test_a_folder_that_is_replaced_is_not_mixed_with_the_other(tmp_path):
    opened = write_shards(make_graph(), tmp_path / "graph")
    write_shards(make_graph(), tmp_path / "graph", overwrite=True)
    for mmap in (False, True):
        with pytest.raises(InvalidInputError, match="was replaced since it was opened"):
            opened.read(mmap=mmap)


def test_progress_is_shown(tmp_path, capsys):
    with ShardWriter(tmp_path / "graph", 10, 2, progress=True) as writer:
        writer.append_rows(torch.ones(10, 2))
        writer.append_edges(torch.tensor([[0, 1], [1, 0]]))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "rows: 100%" in shown.err
    assert "edges: 100%" in shown.err
