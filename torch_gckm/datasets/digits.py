"""A graph that needs no download: scikit-learn's digits and their nearest neighbours."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from torch_gckm.neighbours import nearest_rows


def load_digits_graph(neighbours: int = 10) -> Data:
    """1,797 images of 64 grey values; an edge from each to its nearest others.

    Args:
        neighbours: The number of edges from every image.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install 'torch_gckm[sklearn]'") from error

    images, classes = load_digits(return_X_y=True)
    near = nearest_rows(images, neighbours)
    edges = torch.stack([torch.arange(len(near)).repeat_interleave(neighbours), near.flatten()])
    return Data(x=torch.from_numpy(images).float() / 16, edge_index=edges, y=torch.from_numpy(classes))
