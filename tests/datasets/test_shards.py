"""Folders of arrays: what is written is read, as a whole and in parts."""

import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from tests.conftest import make_graph, permute_graph
from torch_gckm import GCKM, Trainer, memory
from torch_gckm.datasets import ShardFolder, ShardWriter, edge_sort, write_shards
from torch_gckm.errors import GCKMWarning, InvalidInputError, InvalidLabelError, OutOfMemoryError
from torch_gckm.graph import is_directed

MASKS = ("train_mask", "val_mask", "test_mask")


def directed_graph() -> Data:
    data = make_graph()
    data.edge_index = data.edge_index[:, ::3]
    return data


def weighted_graph() -> Data:
    data = make_graph()
    data.edge_weight = data.edge_index.sum(dim=0) / 7.0
    return data


def sparse_graph() -> Data:
    data = make_graph()
    data.x = torch.where(data.x > 1.0, data.x, 0.0).to_sparse_csr()
    return data


def weighted_directed_graph() -> Data:
    data = directed_graph()
    data.edge_weight = torch.arange(data.num_edges).double() + 0.5
    return data


def real_targets() -> Data:
    data = make_graph()
    data.y = torch.randn(60, 2, dtype=torch.double)
    data.y[3, 1] = torch.nan
    return data


GRAPHS = {
    "plain": make_graph, "directed": directed_graph, "weighted": weighted_graph, "sparse": sparse_graph,
    "both": weighted_directed_graph, "real": real_targets,
}  # fmt: skip


@pytest.fixture(params=GRAPHS)
def data(request) -> Data:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*CSR tensor support is in beta.*")
        return GRAPHS[request.param]()


def edges_of(edges, weight):
    weight = torch.ones(edges.size(1)) if weight is None else weight
    return coalesce(edges, weight)


def assert_same(found: Data, expected: Data) -> None:
    dense = [x if x.layout == torch.strided else x.to_dense() for x in (found.x, expected.x)]
    assert found.x.layout == expected.x.layout
    torch.testing.assert_close(*dense, rtol=0.0, atol=0.0)
    for name in ("y", *MASKS):
        torch.testing.assert_close(found[name], expected[name], rtol=0.0, atol=0.0, equal_nan=True)
    pairs = (edges_of(graph.edge_index, graph.edge_weight) for graph in (found, expected))
    for there, here in zip(*pairs, strict=True):
        torch.testing.assert_close(there, here, rtol=0.0, atol=0.0)


class TestRoundTrips:
    def test_of_everything(self, data, tmp_path):
        folder = write_shards(data, tmp_path / "graph")
        assert_same(folder.read(), data)
        assert folder.is_directed == is_directed(data)
        assert folder.dtype == data.x.dtype
        assert (folder.num_nodes, folder.num_edges, folder.num_features) == (60, data.num_edges, 8)
        assert folder.masks == MASKS
        assert folder.num_classes == (None if data.y.is_floating_point() else 3)
        assert [path.name for path in tmp_path.iterdir()] == ["graph"]
        assert all(path.suffix in (".npy", ".json") for path in folder.folder.iterdir())

    @pytest.mark.parametrize("count", [1, 2, 3, 7])
    def test_parts_add_up(self, data, tmp_path, count):
        folder = write_shards(data, tmp_path / "graph")
        ranges = folder.ranges(count)
        assert [start for start, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]
        parts = [folder.read(start, stop) for start, stop in ranges]
        for (start, stop), part in zip(ranges, parts, strict=True):
            assert part.num_nodes == stop - start
            assert bool(((part.edge_index[1] >= start) & (part.edge_index[1] < stop)).all())
            if folder.is_directed:
                assert bool(((part.out_edge_index[0] >= start) & (part.out_edge_index[0] < stop)).all())
        whole = Data(x=torch.cat([part.x.to_dense() for part in parts]))
        whole.x = whole.x if data.x.layout == torch.strided else folder.read().x
        for name in ("y", *MASKS):
            whole[name] = torch.cat([part[name] for part in parts])
        for prefix in ("", "out_") if folder.is_directed else ("",):
            whole.edge_index = torch.cat([part[f"{prefix}edge_index"] for part in parts], dim=1)
            if folder.is_weighted:
                whole.edge_weight = torch.cat([part[f"{prefix}edge_weight"] for part in parts])
            assert whole.num_edges == data.num_edges
            assert_same(whole, data)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.double, torch.int64, torch.uint8, torch.bool])
    def test_types_of_features(self, tmp_path, dtype):
        data = make_graph()
        data.x = (data.x > 0).to(dtype)
        assert torch.equal(write_shards(data, tmp_path / "graph").read().x, data.x)

    def test_masks_in_other_forms(self, tmp_path):
        data = make_graph()
        data.val_mask = data.val_mask.nonzero().view(-1)
        data.train_mask = data.train_mask / 3.0
        data.test_mask = torch.stack([data.test_mask, ~data.test_mask], dim=1)
        found = write_shards(data, tmp_path / "graph", partition=torch.arange(60) % 3)
        back = torch.argsort(found.order)
        part = found.read()
        assert torch.equal(part.val_mask[back].nonzero().view(-1), data.val_mask)
        assert torch.equal(part.train_mask[back], data.train_mask)
        assert torch.equal(part.test_mask[back], data.test_mask)

    def test_graphs_without_edges_or_labels(self, tmp_path):
        folder = write_shards(Data(x=torch.randn(5, 2)), tmp_path / "graph")
        part = folder.read(1, 3)
        assert part.edge_index.shape == (2, 0)
        assert "y" not in part
        assert not folder.has_labels
        assert not folder.is_directed

    def test_loops_and_equal_edges_stay(self, tmp_path):
        edges = torch.tensor([[0, 0, 1, 1, 2], [0, 1, 0, 0, 1]])
        found = write_shards(Data(x=torch.randn(3, 2), edge_index=edges), tmp_path / "graph").read()
        assert found.edge_index.t().tolist() == [[0, 0], [1, 0], [1, 0], [0, 1], [2, 1]]
        assert found.out_edge_index.t().tolist() == [[0, 0], [0, 1], [1, 0], [1, 0], [2, 1]]

    def test_names(self, tmp_path):
        names = [f"nöde {'x' * (node % 4)}{node}" for node in range(60)]
        args = {"class_names": ["ä", "b", "c"], "node_names": names, "feature_names": list("abcdefgh")}
        folder = write_shards(make_graph(), tmp_path / "graph", partition=torch.arange(60) % 2, **args)
        assert folder.node_names() == names[::2] + names[1::2]
        assert folder.node_names(29, 31) == [names[58], names[1]]
        assert (folder.class_names, folder.feature_names) == (["ä", "b", "c"], list("abcdefgh"))

    def test_mapped_features(self, tmp_path):
        data = make_graph()
        folder = write_shards(data, tmp_path / "graph")
        x = folder.read(10, 20, mmap=True).x
        assert torch.equal(x, data.x[10:20])
        x.zero_()  # In memory of this process only.
        assert torch.equal(folder.read().x, data.x)

    @pytest.mark.filterwarnings("ignore::torch_gckm.errors.LowRankWarning")
    def test_models_fit_what_is_read(self, tmp_path):
        data = make_graph()
        scores = []
        for graph in (data, write_shards(data, tmp_path / "graph").read()):
            model = GCKM(8, (4, 3), 3)
            Trainer(model, steps=0, progress=False).fit(graph)
            scores.append(model.predict_proba())
        torch.testing.assert_close(*scores)


class TestPartitions:
    def test_nodes_are_renumbered(self, data, tmp_path):
        partition = torch.randint(3, (60,), generator=torch.Generator().manual_seed(0))
        folder = write_shards(data, tmp_path / "graph", partition=partition)
        order = folder.order
        assert sorted(order.tolist()) == list(range(60))
        ranges = folder.ranges(3)
        for number, (start, stop) in enumerate(ranges):
            assert bool((partition[order[start:stop]] == number).all())
            assert torch.equal(folder.read(start, stop).order, order[start:stop])
        assert folder.ranges(2) == [(0, 30), (30, 60)]
        is_sparse = data.x.layout != torch.strided
        moved = permute_graph(data if not is_sparse else Data(**{**data.to_dict(), "x": data.x.to_dense()}), order)
        moved.edge_weight = data.edge_weight
        moved.x = folder.read().x if is_sparse else moved.x
        assert_same(folder.read(), moved)
        torch.testing.assert_close(folder.read().x.to_dense(), data.x.to_dense()[order])

    @pytest.mark.parametrize(
        ("partition", "message"),
        [
            (torch.zeros(59, dtype=torch.long), "each of the 60 nodes"),
            (torch.zeros(60), "whole number"),
            (torch.arange(60) % 3 * 2, "no node into part 1"),
            (torch.arange(60) - 1, "parts -1 to 58"),
            (torch.arange(60) * 10**9, "parts 0 to"),
        ],
    )
    def test_bad_ones_are_refused(self, tmp_path, partition, message):
        with pytest.raises(InvalidInputError, match=message):
            write_shards(make_graph(), tmp_path / "graph", partition=partition)
        assert not list(tmp_path.iterdir())


class TestRanges:
    def test_no_range_is_empty(self, tmp_path):
        folder = write_shards(Data(x=torch.randn(10, 2)), tmp_path / "graph")
        assert folder.ranges(4) == [(0, 3), (3, 6), (6, 9), (9, 10)]
        for count in (7, 11, 10**9):
            with pytest.raises(InvalidInputError, match="10 nodes cannot be spread"):
                folder.ranges(count)
        with pytest.raises(InvalidInputError, match="at least 1"):
            folder.ranges(0)

    @pytest.mark.parametrize(("start", "stop"), [(0, 11), (-1, 3), (3, 3), (5, 4)])
    def test_others_are_refused(self, tmp_path, start, stop):
        folder = write_shards(Data(x=torch.randn(10, 2)), tmp_path / "graph")
        with pytest.raises(InvalidInputError, match="no range of the 10 nodes"):
            folder.read(start, stop)


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"x": torch.full((60, 8), torch.nan)}, "480 entries that are NaN or infinite, first in row 0"),
            ({"x": torch.randn(60, 8).bfloat16()}, "'dtype' must hold real numbers that NumPy knows"),
            ({"edge_index": torch.tensor([[0], [60]])}, "names nodes 0 to 60"),
            ({"edge_weight": torch.ones(3)}, "one value per edge"),
            ({"y": torch.zeros(59)}, "'y' must have 60 rows"),
            ({"train_mask": torch.ones(59, dtype=torch.bool)}, "'train_mask' must have 60 rows"),
            ({"val_mask": torch.tensor([60])}, "numbers of nodes below 60"),
            ({"val_mask": torch.tensor([1, 1])}, "names nodes twice"),
        ],
    )
    @pytest.mark.parametrize("partition", [None, torch.arange(60) % 2])
    def test_is_refused_and_nothing_is_left(self, tmp_path, change, message, partition):
        data = make_graph()
        data.update(change)
        with pytest.raises((InvalidInputError, InvalidLabelError), match=message):
            write_shards(data, tmp_path / "graph", partition=partition)
        assert not list(tmp_path.iterdir())

    def test_names_that_do_not_fit(self, tmp_path):
        with pytest.raises(InvalidInputError, match="59 names for 60 nodes"):
            write_shards(make_graph(), tmp_path / "graph", node_names=["a"] * 59)
        with pytest.raises(InvalidLabelError, match="class 2, but 2 names"):
            write_shards(make_graph(), tmp_path / "graph", class_names=["a", "b"])

    def test_attributes_that_are_not_stored(self, tmp_path):
        data = make_graph()
        data.edge_attr = torch.ones(data.num_edges, 2)
        with pytest.warns(GCKMWarning, match="edge_attr"):
            write_shards(data, tmp_path / "graph")


class TestFolders:
    def test_existing_ones_are_kept(self, tmp_path):
        data, path = make_graph(), tmp_path / "graph"
        folder = write_shards(data, path)
        with pytest.raises(InvalidInputError, match="graph' exists"):
            write_shards(data, path)
        data.x = data.x + 1.0
        assert torch.equal(write_shards(data, path, overwrite=True).read().x, data.x)
        assert [found.name for found in tmp_path.iterdir()] == ["graph"]
        assert folder.num_nodes == 60
        (path / "notes.txt").write_text("mine")
        with pytest.raises(InvalidInputError, match="holds other files"):
            write_shards(data, path, overwrite=True)
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "x.npy").write_bytes(b"mine")
        with pytest.raises(InvalidInputError, match=r"meta\.json' is missing"):
            write_shards(data, tmp_path / "other", overwrite=True)

    def test_a_failed_overwriting_keeps_the_old_one(self, tmp_path, monkeypatch):
        data, path = make_graph(), tmp_path / "graph"
        write_shards(data, path)

        def interrupted(*args):
            raise KeyboardInterrupt

        monkeypatch.setattr(edge_sort.EdgeSpool, "write_sorted", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_shards(data, path, overwrite=True)
        assert_same(ShardFolder(path).read(), data)
        assert [found.name for found in tmp_path.iterdir()] == ["graph"]

    def test_what_a_killed_process_left_is_removed_by_the_next(self, tmp_path):
        code = (
            "import os, sys; from torch_gckm.files import PartialFolder; partial = PartialFolder(sys.argv[1])\n"
            "(partial.path / 'x.npy').write_bytes(b'half'); os._exit(9)"
        )
        path = tmp_path / "graph"
        assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
        assert not path.exists()
        assert len(list(tmp_path.iterdir())) == 1
        write_shards(make_graph(), path)
        assert [found.name for found in tmp_path.iterdir()] == ["graph"]

    def test_several_write_the_same_at_once(self, tmp_path):
        data, path = make_graph(), tmp_path / "graph"
        with ShardWriter(path, 60, 8, overwrite=True) as writer:
            writer.append_rows(data.x)
            write_shards(data, path)  # Does not take the other's files for abandoned.
            writer.append_edges(data.edge_index)
        assert ShardFolder(path).masks == ()
        assert [found.name for found in tmp_path.iterdir()] == ["graph"]

    def test_they_go_to_other_processes(self, tmp_path):
        folder = write_shards(make_graph(), tmp_path / "graph")
        assert torch.equal(pickle.loads(pickle.dumps(folder)).read(3, 9).x, folder.read(3, 9).x)

    def test_what_does_not_fit_into_memory_is_not_read(self, tmp_path, monkeypatch):
        folder = write_shards(Data(x=torch.randn(1000, 100), edge_index=torch.zeros(2, 3).long()), tmp_path / "graph")
        monkeypatch.setattr(memory, "available_bytes", lambda device: 100_000)
        with pytest.raises(OutOfMemoryError, match="mmap=True"):
            folder.read()
        assert folder.read(0, 200).num_nodes == 200
        assert folder.read(mmap=True).num_nodes == 1000


class TestDamage:
    @pytest.fixture
    def path(self, tmp_path):
        write_shards(weighted_directed_graph(), tmp_path / "graph", partition=torch.arange(60) % 2)
        return tmp_path / "graph"

    @pytest.mark.parametrize("name", ["x", "edge_indptr", "edge_sources", "edge_weights", "out_targets", "y", "order"])
    def test_missing_short_and_foreign_files(self, path, name):
        file = path / f"{name}.npy"
        content = file.read_bytes()
        for other in (content[:-1], content + b"\0", b"", b"node,class\n"):
            file.write_bytes(other)
            with pytest.raises(InvalidInputError, match=rf"{name}\.npy' is"):
                ShardFolder(path)
        file.unlink()
        with pytest.raises(InvalidInputError, match=rf"{name}\.npy' is missing"):
            ShardFolder(path)

    @pytest.mark.parametrize("name", ["x", "y", "train_mask", "edge_indptr", "boundaries"])
    def test_arrays_of_another_graph(self, path, name):
        np.save(path / f"{name}.npy", np.zeros((59, 8)))
        with pytest.raises(InvalidInputError, match=rf"{name}\.npy' holds float64"):
            ShardFolder(path)

    @pytest.mark.parametrize(
        ("name", "value"), [("edge_sources", 60), ("edge_sources", -1), ("edge_indptr", 10**6), ("out_targets", 60)]
    )
    def test_numbers_that_cannot_be(self, path, name, value):
        array = np.load(path / f"{name}.npy")
        array[5] = value
        np.save(path / f"{name}.npy", array)
        with pytest.raises(InvalidInputError, match=rf"{name}\.npy' is damaged"):
            ShardFolder(path).read()

    def test_boundaries_that_cannot_be(self, path):
        np.save(path / "boundaries.npy", np.array([0, 70, 60]))
        meta = json.loads((path / "meta.json").read_text())
        meta["arrays"]["boundaries"] = ["<i8", [3]]
        (path / "meta.json").write_text(json.dumps(meta))
        with pytest.raises(InvalidInputError, match=r"boundaries\.npy' is damaged"):
            ShardFolder(path).ranges(2)

    def test_pickles_are_not_executed(self, path, capsys):
        class Evil:
            def __reduce__(self):
                return print, ("executed",)

        np.save(path / "y.npy", np.array([Evil()] * 60), allow_pickle=True)
        with pytest.raises(InvalidInputError, match=r"y\.npy' holds object"):
            ShardFolder(path)
        (path / "y.npy").write_bytes(pickle.dumps(Evil()))
        with pytest.raises(InvalidInputError, match=r"y\.npy' is not a file of NumPy"):
            ShardFolder(path)
        assert "executed" not in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": "other"}, "does not describe a graph"),
            ({"version": 2}, "of version 2"),
            ({"num_nodes": 59}, "does not go with"),
            ({"num_nodes": -1}, "'num_nodes' is '-1'"),
            ({"num_nodes": True}, "'num_nodes' is 'True'"),
            ({"num_edges": "many"}, "'num_edges' is 'many'"),
            ({"dtype": "float64"}, "x.npy' holds float32"),
            ({"is_sparse": True}, "x_indptr"),
            ({"is_weighted": None}, "'is_weighted' is 'None'"),
            ({"masks": ["../y"]}, "'masks' is"),
            ({"arrays": []}, "'arrays' is"),
            ({"arrays": {"../x": 1}}, "x.npy"),
        ],
    )
    def test_facts_that_cannot_be(self, path, change, message):
        meta = json.loads((path / "meta.json").read_text())
        (path / "meta.json").write_text(json.dumps({**meta, **change}))
        with pytest.raises(InvalidInputError, match=message):
            ShardFolder(path)

    @pytest.mark.parametrize("text", ["", "[1]", "{", "\x00", "[" * 100_000])
    def test_other_files_instead_of_the_facts(self, path, text):
        (path / "meta.json").write_text(text)
        with pytest.raises(InvalidInputError, match=r"meta\.json'"):
            ShardFolder(path)

    def test_other_folders(self, tmp_path):
        for path in (tmp_path, tmp_path / "none"):
            with pytest.raises(InvalidInputError, match=r"meta\.json' is missing"):
                ShardFolder(path)
        (tmp_path / "file").write_text("")
        with pytest.raises(InvalidInputError):
            ShardFolder(tmp_path / "file")
