"""Masks of the paper: found, downloaded, checked, or missed with a word of what to do."""

import hashlib
import shutil

import pytest
import torch

from torch_gckm.datasets import load, paper_splits
from torch_gckm.datasets.paper import HASHES
from torch_gckm.errors import InvalidInputError, MissingDataError

MODULE = "torch_gckm.datasets.paper"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder in place of the authors' repository, with masks of ten nodes in place of Cora's."""
    folder = tmp_path / "repository"
    folder.mkdir()
    hashes = {}
    for number, part in enumerate(("fewlabels_full_train", "fewlabels_test")):
        path = folder / f"cora_{part}_mask.pt"
        torch.save(torch.arange(10) % 2 == number, path)
        hashes[f"cora_{part}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(f"{MODULE}.ADDRESS", folder.as_uri())
    monkeypatch.setattr(f"{MODULE}.HASHES", hashes)
    return folder


def test_masks_are_downloaded_once(source, tmp_path):
    root = tmp_path / "data"
    masks = paper_splits("Cora", "few_labels", root)
    assert masks["train_mask"].tolist() == [True, False] * 5
    assert sorted(masks) == ["test_mask", "train_mask"]
    shutil.rmtree(source)
    again = paper_splits("cora", "few_labels", root)
    assert torch.equal(again["test_mask"], masks["test_mask"])


def test_the_folder_comes_from_the_environment(source, tmp_path, monkeypatch):
    monkeypatch.setenv("GCKM_DATA_ROOT", str(tmp_path / "named"))
    paper_splits("cora")
    assert (tmp_path / "named" / "splits" / "cora_fewlabels_test_mask.pt").exists()


def test_another_file_is_refused_and_not_kept(source, tmp_path):
    torch.save(torch.ones(10, dtype=torch.bool), source / "cora_fewlabels_test_mask.pt")
    with pytest.raises(InvalidInputError, match=r"is not the paper's file.*GCKM_DATA_ROOT"):
        paper_splits("cora", "few_labels", tmp_path)
    assert not (tmp_path / "splits" / "cora_fewlabels_test_mask.pt").exists()


def test_a_damaged_file_is_noticed(source, tmp_path):
    paper_splits("cora", "few_labels", tmp_path)
    path = tmp_path / "splits" / "cora_fewlabels_test_mask.pt"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidInputError, match=r"cora_fewlabels_test_mask.pt is not the paper's.*remove it"):
        paper_splits("cora", "few_labels", tmp_path)


def test_without_a_network(monkeypatch, tmp_path):
    monkeypatch.setattr(f"{MODULE}.ADDRESS", "http://127.0.0.1:9/masks")  # Nobody answers on this port.
    monkeypatch.setattr(f"{MODULE}.TIMEOUT", 1.0)
    with pytest.raises(MissingDataError, match=r"test_mask.pt is not there.*sonnyachten/GCKM.*GCKM_DATA_ROOT"):
        paper_splits("cora", "few_labels", tmp_path)


@pytest.mark.parametrize(("name", "split", "match"), [
    ("chameleon", "public", r"no chameleon_train_mask.pt\): of chameleon it has few_labels, few_labels_folds"),
    ("photo", "few_labels", "it has none of photo"),
    ("cora", "half", "unknown split 'half'; choose from few_labels"),
])  # fmt: skip
def test_splits_that_the_paper_does_not_have(tmp_path, name, split, match):
    with pytest.raises(InvalidInputError, match=match):
        paper_splits(name, split, tmp_path)


@pytest.mark.data
def test_the_hashes_are_those_of_the_masks(data_root):
    for key, known in HASHES.items():
        assert hashlib.sha256((data_root / "splits" / f"{key}_mask.pt").read_bytes()).hexdigest() == known


@pytest.mark.data
def test_load_takes_them(data_root):
    data, masks = load("cora", data_root, split="few_labels"), paper_splits("cora", "few_labels", data_root)
    assert torch.equal(data.train_mask, masks["train_mask"])
    assert not bool(data.val_mask.any())
    assert data.val_mask.shape == (2708,)
