"""Load graphs, and the paper's splits."""

import inspect
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch_geometric.datasets
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.datasets import Coauthor
from torch_geometric.io.npz import parse_npz
from torch_geometric.utils import index_to_mask, remove_self_loops, to_undirected

from torch_gckm.datasets.paper import Split, data_root, paper_splits
from torch_gckm.errors import MissingDataError
from torch_gckm.neighbours import nearest_rows


class SparseCoauthor(Coauthor):  # type: ignore[misc]
    """PyG's :class:`~torch_geometric.datasets.Coauthor` with features as a sparse COO tensor.

    Physics has 34,493 nodes and 8,415 words, of which a node uses 0.4 %: the dense matrix takes 1.2 GB, this one 14 MB.
    """

    processed_file_names = "sparse.pt"

    def process(self) -> None:
        with np.load(self.raw_paths[0]) as file:
            content = {key: file[key] for key in file.files if key == "labels" or key.startswith(("attr_", "adj_"))}
        size = tuple(int(length) for length in content["attr_shape"])
        index, columns = (torch.from_numpy(content[key]).long() for key in ("attr_indptr", "attr_indices"))
        rows = torch.repeat_interleave(index.diff())
        ones = torch.ones(columns.numel())  # A word is there or not, as in PyG.
        x = torch.sparse_coo_tensor(torch.stack([rows, columns]), ones, size, check_invariants=False)
        nothing = {"attr_data": np.empty(0), "attr_indices": np.empty(0, dtype=np.int64), "attr_shape": (size[0], 0)}
        data = parse_npz({**content, **nothing, "attr_indptr": np.zeros(size[0] + 1, dtype=np.int64)})
        data.x = x.coalesce()
        self.save([data], self.processed_paths[0])


def load_digits_graph(neighbours: int = 10) -> Data:
    """1,797 images of 64 grey values, without a download; edges from each to so many nearest others."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install 'torch_gckm[sklearn]'") from error

    images, classes = load_digits(return_X_y=True)
    near = nearest_rows(images, neighbours)
    edges = torch.stack([torch.arange(len(near)).repeat_interleave(neighbours), near.flatten()])
    return Data(x=torch.from_numpy(images).float() / 16, edge_index=edges, y=torch.from_numpy(classes))


def load_ogbn(name: str, root: Path) -> Data:
    """A node property prediction dataset of the Open Graph Benchmark, with its split as masks."""
    try:
        from ogb.nodeproppred import PygNodePropPredDataset
    except ImportError as error:
        raise ImportError(f"'{name}' needs ogb; install it with: pip install 'torch_gckm[datasets]'") from error

    # ogb reads its file with a bare torch.load, which refuses PyG's classes unless they are named as safe. Leaving the
    # context withdraws what it was given, so it is not given what PyG has registered for itself.
    known = torch.serialization.get_safe_globals()
    needed = [kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if kind not in known]
    with torch.serialization.safe_globals(needed):
        dataset = PygNodePropPredDataset(name, root=str(root))
        data: Data = dataset[0]
        split = dataset.get_idx_split()
    data.y = data.y.view(-1)
    for mask, part in (("train_mask", "train"), ("val_mask", "valid"), ("test_mask", "test")):
        data[mask] = index_to_mask(split[part], data.num_nodes)
    return data


def _load_from_pyg(name: str, folder: Path) -> Data:
    kind, _, part = name.partition("/")
    if not hasattr(torch_geometric.datasets, kind):
        hint = f"choose from {', '.join(DATASETS)}, or name one of PyG as 'Class/name' or 'Class'"
        raise ValueError(f"unknown dataset '{name}'; {hint}")
    make = getattr(torch_geometric.datasets, kind)
    has_root = "root" in inspect.signature(make.__init__).parameters  # KarateClub has none.
    try:
        dataset = make(*([str(folder / kind)] if has_root else []), *([part] if part else []))
    except TypeError as error:
        raise ValueError(f"'{name}' cannot be made from a name alone: {error}") from error
    data = dataset[0]
    if len(dataset) != 1 or not isinstance(data, Data) or data.y is None or data.y.numel() != data.num_nodes:
        raise ValueError(f"'{name}' is not one graph with a class for every node")
    data.y = data.y.view(-1)
    return data


_FROM_PYG = (
    "Planetoid/Cora", "Planetoid/CiteSeer", "Planetoid/PubMed", "WikipediaNetwork/chameleon",
    "WikipediaNetwork/squirrel", "Amazon/Photo", "CitationFull/Cora_ML", "Actor", "WebKB/wisconsin",
    "HeterophilousGraphDataset/Minesweeper", "LINKXDataset/reed98",
)  # fmt: skip
DATASETS: dict[str, Callable[[Path], Data]] = {
    **{name.rpartition("/")[2].lower(): partial(_load_from_pyg, name) for name in _FROM_PYG},
    "physics": lambda root: SparseCoauthor(str(root / "Coauthor"), "Physics")[0],
    "ogbn-arxiv": lambda root: load_ogbn("ogbn-arxiv", root / "ogb"),
    "digits": lambda root: load_digits_graph(),
}


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
        name: One of ``"cora"``, ``"citeseer"``, ``"pubmed"``, ``"chameleon"``, ``"squirrel"``, ``"photo"``,
            ``"cora_ml"``, ``"actor"``, ``"wisconsin"``, ``"minesweeper"``, ``"reed98"`` (label -1: unknown),
            ``"physics"`` (with sparse features), ``"ogbn-arxiv"`` (extra ``datasets``), ``"digits"`` (extra
            ``sklearn``, no download), or any node dataset of PyG: its class, and after a slash its name if it has one.
        root: A writable folder; by default the one named by ``GCKM_DATA_ROOT``, else ``data``.
        split: ``None`` keeps the masks that PyG ships. The others are those of
            :func:`~torch_gckm.datasets.paper_splits`; a mask that a split does not have is empty.
        transform: What to do to the graph then, such as a split of :mod:`torch_gckm.datasets.splits`.
        undirected: Remove self-loops and make the graph undirected, as the paper does.
    """
    folder = Path(root) if root is not None else data_root() or Path("data")
    data = _loaded(name, folder)
    if undirected:
        edges, weight = remove_self_loops(data.edge_index, data.edge_weight)
        if weight is None:
            data.edge_index = to_undirected(edges, num_nodes=data.num_nodes)
        else:  # A pair that is joined both ways counts once.
            data.edge_index, data.edge_weight = to_undirected(edges, weight, data.num_nodes, reduce="mean")
    if split is not None:
        masks = paper_splits(name, split, folder)
        for mask in ("train_mask", "val_mask", "test_mask"):
            data[mask] = masks.get(mask, torch.zeros(data.num_nodes, dtype=torch.bool))
    return data if transform is None else transform(data)


def _loaded(name: str, folder: Path) -> Data:
    key = name.lower()
    try:
        return DATASETS[key](folder) if key in DATASETS else _load_from_pyg(name, folder)
    except OSError as error:
        raise MissingDataError(
            f"the dataset '{name}' is not in '{folder}' and cannot be downloaded ({getattr(error, 'reason', error)}); "
            "set GCKM_DATA_ROOT to a writable folder that has it, or load it once on a machine with a network and copy "
            "the folder"
        ) from error
