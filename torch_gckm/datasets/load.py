"""Load graphs, and the paper's splits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
import torch_geometric.datasets
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid, WikipediaNetwork
from torch_geometric.utils import remove_self_loops, to_undirected

from torch_gckm.datasets.coauthor import load_coauthor
from torch_gckm.datasets.digits import load_digits_graph
from torch_gckm.datasets.ogb import load_ogbn

ROOT_VARIABLE = "GCKM_DATA_ROOT"
Split = Literal["few_labels", "few_labels_folds", "public", "val_1", "val_5", "val_10"]
_MASKS: dict[str, dict[str, str]] = {
    "few_labels": {"train_mask": "fewlabels_full_train_mask", "test_mask": "fewlabels_test_mask"},
    "few_labels_folds": {
        "train_mask": "fewlabels_5fold_train_mask",
        "val_mask": "fewlabels_5fold_val_mask",
        "test_mask": "fewlabels_test_mask",
    },
    "public": {"train_mask": "train_mask", "val_mask": "full_val_mask", "test_mask": "test_mask"},
    **{
        f"val_{count}": {"train_mask": "train_mask", "val_mask": f"{count}_val_mask", "test_mask": "test_mask"}
        for count in (1, 5, 10)
    },
}

DATASETS: dict[str, Callable[[Path], Data]] = {
    "cora": lambda root: Planetoid(str(root / "Planetoid"), "Cora")[0],
    "citeseer": lambda root: Planetoid(str(root / "Planetoid"), "CiteSeer")[0],
    "pubmed": lambda root: Planetoid(str(root / "Planetoid"), "PubMed")[0],
    "chameleon": lambda root: WikipediaNetwork(str(root / "WikipediaNetwork"), "chameleon")[0],
    "squirrel": lambda root: WikipediaNetwork(str(root / "WikipediaNetwork"), "squirrel")[0],
    "physics": lambda root: load_coauthor("Physics", root / "Coauthor"),
    "ogbn-arxiv": lambda root: load_ogbn("ogbn-arxiv", root / "ogb"),
    "digits": lambda root: load_digits_graph(),
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
    transform: Callable[[Data], Data] | None = None,
    undirected: bool = True,
) -> Data:
    """Load a graph; PyG downloads what is not in ``root`` yet.

    .. code-block:: python

        load("cora", split="few_labels")
        load("Amazon/Photo", transform=PerClassSplit(5, seed=1))

    Args:
        name: One of ``"cora"``, ``"citeseer"``, ``"pubmed"``, ``"chameleon"``, ``"squirrel"``, ``"physics"``
            (with sparse features), ``"ogbn-arxiv"`` (extra ``datasets``), ``"digits"`` (extra ``sklearn``, no
            download), or any node dataset of PyG: its class, and after a slash its name if it has one.
        root: A writable folder; by default the one named by ``GCKM_DATA_ROOT``, else ``data``.
        split: ``None`` keeps the masks that PyG ships. The others take the paper's masks from ``root/splits``:
            ``"few_labels"``, the same in five folds ``[n, 5]`` (``"few_labels_folds"``), ``"public"``, and the
            public split with 1, 5 or 10 validation nodes a class (``"val_1"``, ``"val_5"``, ``"val_10"``).
        transform: What to do to the graph then, such as a split of :mod:`torch_gckm.datasets.splits`.
        undirected: Remove self-loops and make the graph undirected, as the paper does.
    """
    key = name.lower()
    folder = Path(root) if root is not None else (data_root() or Path("data"))
    data = DATASETS[key](folder) if key in DATASETS else _load_from_pyg(name, folder)
    if undirected:
        edges, weight = remove_self_loops(data.edge_index, data.edge_weight)
        data.edge_index, data.edge_weight = edges, weight
        if weight is None:
            data.edge_index = to_undirected(edges, num_nodes=data.num_nodes)
        else:  # A pair that is joined both ways counts once.
            data.edge_index, data.edge_weight = to_undirected(edges, weight, data.num_nodes, reduce="mean")
    if split is not None:
        _apply_split(data, folder / "splits", key, split)
    return data if transform is None else transform(data)


def _load_from_pyg(name: str, folder: Path) -> Data:
    kind, _, part = name.partition("/")
    if not hasattr(torch_geometric.datasets, kind):
        known = ", ".join(DATASETS)
        raise ValueError(
            f"unknown dataset '{name}'; choose from {known}, or name one of PyG as 'Class/name' or 'Class'"
        )
    make = getattr(torch_geometric.datasets, kind)
    place = str(folder / kind)
    dataset = make(place, part) if part else make(place)
    data = dataset[0]
    if len(dataset) != 1 or not isinstance(data, Data) or data.y is None or data.y.numel() != data.num_nodes:
        raise ValueError(f"'{name}' is not one graph with a class for every node")
    data.y = data.y.view(-1)
    return data


def _apply_split(data: Data, folder: Path, name: str, split: Split) -> None:
    if split not in _MASKS:
        raise ValueError(f"unknown split '{split}'; choose from {', '.join(_MASKS)}")
    for mask in ("train_mask", "val_mask", "test_mask"):
        if mask not in _MASKS[split]:
            data[mask] = torch.zeros(data.num_nodes, dtype=torch.bool)
            continue
        path = folder / f"{name}_{_MASKS[split][mask]}.pt"
        if not path.exists():
            raise FileNotFoundError(f"the split '{split}' of {name} needs the file {path}")
        loaded = torch.load(path, weights_only=True)
        data[mask] = loaded.t().contiguous() if loaded.dim() == 2 else loaded
