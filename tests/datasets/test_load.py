import urllib.error

import pytest
import torch

from torch_gckm.datasets import DATASETS, PerClassSplit, data_root, load
from torch_gckm.errors import MissingDataError


def test_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="unknown dataset 'coora'; choose from cora"):
        load("coora", tmp_path)


def test_root_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("GCKM_DATA_ROOT", str(tmp_path))
    assert data_root() == tmp_path
    monkeypatch.delenv("GCKM_DATA_ROOT")
    assert data_root() is None


@pytest.mark.parametrize("name", ["cora", "Planetoid/Cora"])
def test_without_a_network_the_error_names_the_folder(monkeypatch, tmp_path, name):
    def refuse(*_, **__):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr("torch_geometric.datasets.Planetoid.download", refuse)
    match = rf"'{name}' is not in .*no network.*GCKM_DATA_ROOT"
    with pytest.raises(MissingDataError, match=match) as found:
        load(name, tmp_path)
    assert isinstance(found.value, FileNotFoundError)


SIZES = {
    "cora": (2708, 10556, 1433, 7),
    "citeseer": (3327, 9104, 3703, 6),
    "pubmed": (19717, 88648, 500, 3),
    "chameleon": (2277, 2 * 31371, 2325, 5),
    "squirrel": (5201, 2 * 198353, 2089, 5),
    "physics": (34493, 495924, 8415, 5),
    "photo": (7650, 238162, 745, 8),
    "cora_ml": (2995, 16316, 2879, 7),
    "actor": (7600, 53318, 932, 5),
    "wisconsin": (251, 900, 1703, 5),
    "minesweeper": (10000, 78804, 7, 2),
    "reed98": (962, 37624, 745, 2),
}


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name in DATASETS if name in SIZES])
def test_sizes(data_root, name):
    data = load(name, data_root)
    assert (data.num_nodes, data.num_edges, data.num_features, int(data.y.max()) + 1) == SIZES[name]
    assert data.is_undirected()
    assert not data.has_self_loops()


@pytest.mark.data
def test_unknown_labels_stay_so(data_root):
    assert int((load("reed98", data_root).y == -1).sum()) == 97


@pytest.mark.data
def test_physics_stays_sparse(data_root):
    x = load("physics", data_root).x
    assert x.layout == torch.sparse_coo
    assert x.is_coalesced()
    assert x.values().unique().tolist() == [1.0]
    assert x.values().numel() < 0.005 * x.numel()


@pytest.mark.data
def test_directed_graphs_stay_so_if_asked(data_root):
    assert load("chameleon", data_root, undirected=False).num_edges == 36101


@pytest.mark.data
@pytest.mark.parametrize(("name", "split", "train", "test"), [
    ("cora", "few_labels", 128, 2580), ("citeseer", "few_labels", 124, 3203), ("pubmed", "few_labels", 112, 19605),
    ("chameleon", "few_labels", 23, 2254), ("squirrel", "few_labels", 52, 5149),
    ("cora", "public", 140, 1000), ("citeseer", "public", 120, 1000), ("pubmed", "public", 60, 1000),
])  # fmt: skip
def test_splits_of_the_paper(data_root, name, split, train, test):
    data = load(name, data_root, split=split)
    assert int(data.train_mask.sum()) == train
    assert int(data.test_mask.sum()) == test
    assert not bool((data.train_mask & data.test_mask).any())
    assert data.val_mask.dtype == torch.bool


@pytest.mark.data
def test_folds_of_the_paper(data_root):
    """Five folds of the few labels."""
    folds, merged = (load("cora", data_root, split=split) for split in ("few_labels_folds", "few_labels"))
    assert folds.train_mask.shape == folds.val_mask.shape == (2708, 5)
    assert torch.equal((folds.train_mask | folds.val_mask).any(dim=1), merged.train_mask)
    assert not bool((folds.train_mask & folds.val_mask).any())


@pytest.mark.data
@pytest.mark.parametrize("count", [1, 5, 10])
def test_few_validation_labels(data_root, count):
    data = load("citeseer", data_root, split=f"val_{count}")
    assert torch.bincount(data.y[data.val_mask]).tolist() == [count] * 6
    assert int(data.train_mask.sum()) == 120


@pytest.mark.data
def test_any_dataset_of_pyg(data_root):
    data = load("Planetoid/Cora", data_root, transform=PerClassSplit(3))
    assert int(data.train_mask.sum()) == 21
    assert data.num_edges == 10556


def test_digits_need_no_download(tmp_path):
    data = load("digits", tmp_path, transform=PerClassSplit(4, seed=1))
    assert (data.num_nodes, data.num_features, int(data.train_mask.sum())) == (1797, 64, 40)
    assert data.is_undirected()
    assert not list(tmp_path.iterdir())
