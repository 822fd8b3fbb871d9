"""Load the paper's graphs and splits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid, WikipediaNetwork
from torch_geometric.utils import remove_self_loops, to_undirected

from torch_gckm.datasets.coauthor import load_coauthor
from torch_gckm.datasets.ogb import load_ogbn

ROOT_VARIABLE = "GCKM_DATA_ROOT"
Split = Literal["public", "few_labels"]

DATASETS: dict[str, Callable[[Path], Data]] = {
    "cora": lambda root: Planetoid(str(root / "Planetoid"), "Cora")[0],
    "citeseer": lambda root: Planetoid(str(root / "Planetoid"), "CiteSeer")[0],
    "pubmed": lambda root: Planetoid(str(root / "Planetoid"), "PubMed")[0],
    "chameleon": lambda root: WikipediaNetwork(str(root / "WikipediaNetwork"), "chameleon")[0],
    "squirrel": lambda root: WikipediaNetwork(str(root / "WikipediaNetwork"), "squirrel")[0],
    "physics": lambda root: load_coauthor("Physics", root / "Coauthor"),
    "ogbn-arxiv": lambda root: load_ogbn("ogbn-arxiv", root / "ogb"),
}


def data_root() -> Path | None:
    """The folder named by the environment variable ``GCKM_DATA_ROOT``, if it is set."""
    value = os.environ.get(ROOT_VARIABLE)
    return Path(value) if value else None


def load(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    split: Split | None = None,
    undirected: bool = True,
) -> Data:
    """Load a graph of the paper; PyG downloads what is not in ``root`` yet.

    Args:
        name: One of ``"cora"``, ``"citeseer"``, ``"pubmed"``, ``"chameleon"``, ``"squirrel"``, ``"physics"``
            (with sparse features), ``"ogbn-arxiv"`` (extra ``datasets``).
        root: A writable folder; by default the one named by ``GCKM_DATA_ROOT``, else ``data``.
        split: ``None`` keeps the masks that PyG ships. ``"few_labels"`` and ``"public"`` take the
            paper's masks from ``root/splits``.
        undirected: Remove self-loops and make the graph undirected, as the paper does.
    """
    key = name.lower()
    if key not in DATASETS:
        raise ValueError(f"unknown dataset '{name}'; choose from {', '.join(DATASETS)}")
    folder = Path(root) if root is not None else (data_root() or Path("data"))
    data = DATASETS[key](folder)
    if undirected:
        edge_index, _ = remove_self_loops(data.edge_index)
        data.edge_index = to_undirected(edge_index, num_nodes=data.num_nodes)
    if split is not None:
        _apply_split(data, folder / "splits", key, split)
    return data


def _apply_split(data: Data, folder: Path, name: str, split: Split) -> None:
    files = {
        "few_labels": {"train_mask": "fewlabels_full_train_mask", "test_mask": "fewlabels_test_mask"},
        "public": {"train_mask": "train_mask", "val_mask": "full_val_mask", "test_mask": "test_mask"},
    }
    if split not in files:
        raise ValueError(f"unknown split '{split}'; choose from {', '.join(files)}")
    for mask in ("train_mask", "val_mask", "test_mask"):
        if mask not in files[split]:
            data[mask] = torch.zeros(data.num_nodes, dtype=torch.bool)
            continue
        path = folder / f"{name}_{files[split][mask]}.pt"
        if not path.exists():
            raise FileNotFoundError(f"the split '{split}' of {name} needs the file {path}")
        data[mask] = torch.load(path, weights_only=True)
