import os
import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data


def pytest_configure() -> None:
    """Let Ctrl-C through to tests of it: processes that a shell starts in the background ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what takes long, unless it is asked for."""
    for item in items:
        if "GCKM_SLOW" not in os.environ and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="takes long: make test-slow"))


@pytest.fixture
def data_root() -> Path:
    root = os.environ.get("GCKM_DATA_ROOT")
    if not root:
        pytest.skip("GCKM_DATA_ROOT is not set: no datasets")
    return Path(root)


@pytest.fixture(params=["cpu", "cuda"])
def device(request) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device(request.param)


def make_graph(num_nodes: int = 60, classes: int = 3, features: int = 8, seed: int = 0) -> Data:
    """A graph of noisy clusters, with two isolated nodes and two labels per class."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(num_nodes) % classes
    x = torch.randn(classes, features, generator=generator)[y] + 0.7 * torch.randn(
        num_nodes, features, generator=generator
    )
    same = y.unsqueeze(1) == y
    adjacency = torch.rand(num_nodes, num_nodes, generator=generator) < torch.where(same, 0.25, 0.02)
    adjacency = adjacency.triu(1)
    adjacency[-2:], adjacency[:, -2:] = False, False
    edges = adjacency.nonzero().t()
    train_mask = torch.zeros(num_nodes, dtype=torch.bool)
    train_mask[: 2 * classes] = True
    val_mask = torch.zeros(num_nodes, dtype=torch.bool)
    val_mask[2 * classes : 4 * classes] = True
    return Data(
        x=x,
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=y,
        train_mask=train_mask,
        val_mask=val_mask,
        test_mask=~(train_mask | val_mask),
    )


@pytest.fixture
def graph() -> Data:
    return make_graph()


@pytest.fixture
def graph64() -> Data:
    data = make_graph()
    data.x = data.x.double()
    return data


def projector_distance(a: Tensor, b: Tensor) -> float:
    """The spectral distance of the projectors onto two column spaces with orthonormal bases."""
    return float(torch.linalg.matrix_norm(a @ a.t() - b @ b.t(), ord=2))


def permute_graph(data: Data, order: Tensor) -> Data:
    """Node ``order[i]`` becomes node ``i``."""
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel())
    result = Data(x=data.x[order], edge_index=place[data.edge_index], y=data.y[order])
    for name in ("train_mask", "val_mask", "test_mask"):
        result[name] = data[name][order]
    return result
