import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import stochastic_blockmodel_graph

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(autouse=True)
def quiet_torch():
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")
        yield


@pytest.fixture
def graph() -> Data:
    """Three groups that features and edges tell apart, with a few isolated nodes."""
    torch.manual_seed(0)
    sizes = [20, 20, 20]
    probabilities = torch.full((3, 3), 0.02) + 0.3 * torch.eye(3)
    edges = stochastic_blockmodel_graph(sizes, probabilities)
    y = torch.arange(3).repeat_interleave(20)
    keep = ((edges != 0) & (edges != 59)).all(dim=0)
    own = torch.arange(12) % 3 == y.unsqueeze(1)
    x = (torch.rand(60, 12) < torch.where(own, 0.7, 0.1)).float()
    data = Data(x=x, edge_index=edges[:, keep], y=y)
    data.train_mask = torch.zeros(60, dtype=torch.bool)
    data.train_mask[torch.tensor([1, 2, 3, 4, 5, 21, 22, 23, 24, 25, 41, 42, 43, 44, 45])] = True
    data.val_mask, data.test_mask = torch.zeros_like(data.train_mask), ~data.train_mask
    return data
