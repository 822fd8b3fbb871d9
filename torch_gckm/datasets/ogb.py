"""Open Graph Benchmark datasets, through ogb's own class (extra ``datasets``)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage


def load_ogbn(name: str, root: Path) -> Data:
    """A node property prediction dataset with OGB's split as masks.

    ogb reads its processed file with a bare ``torch.load``, which current
    versions of torch refuse for PyG objects. The classes that such a file holds
    are named as safe here, so nothing else in it is executed.

    Args:
        name: The dataset's name, such as ``"ogbn-arxiv"``.
        root: The folder that holds, or is to hold, the dataset's folder.
    """
    try:
        from ogb.nodeproppred import PygNodePropPredDataset
    except ImportError as error:
        raise ImportError(f"'{name}' needs ogb; install it with: pip install 'torch_gckm[datasets]'") from error

    # Leaving the context withdraws what it was given, so it is not given what PyG has registered for itself.
    known = torch.serialization.get_safe_globals()
    needed = [kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if kind not in known]
    with torch.serialization.safe_globals(needed):
        dataset = PygNodePropPredDataset(name, root=str(root))
        data: Data = dataset[0]
        split = dataset.get_idx_split()
    data.y = data.y.view(-1)
    for mask, part in (("train_mask", "train"), ("val_mask", "valid"), ("test_mask", "test")):
        data[mask] = torch.zeros(data.num_nodes, dtype=torch.bool).index_fill(0, split[part], True)
    return data
