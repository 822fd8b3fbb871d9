"""One fitted model, asked by many threads at a time."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF


@pytest.fixture
def one_core():
    """Eight threads with workers of their own would wait for one another most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize(("gram", "layers", "asked"), [
    (LowRank(max_rank=20), (4,), 1000), ("dense", (4, 3), 100),
], ids=["low_rank", "dense"])  # fmt: skip
def test_scores_of_several_graphs_from_eight_threads(gram, layers, asked):
    graph = make_graph()
    kernels = [*(["rbf"] * len(layers)), RBF() * RBF().on("x")]
    model = GCKM(8, layers, 3, kernel=kernels, normalize="columns", gram=gram)
    Trainer(model, steps=0, progress=False).fit(graph)
    graphs = [graph, *(make_graph(6 + 3 * seed, seed=seed) for seed in range(1, 5))]
    graphs += [model.prepare(data) for data in graphs]  # Threads may also share what was prepared.
    expected = [copy.deepcopy(model).scores(data) for data in graphs]  # The model itself has extended nothing yet.

    def ask(number):
        which = number % len(graphs)
        return torch.equal(model.scores(graphs[which]), expected[which])

    with ThreadPoolExecutor(8) as pool:
        right = list(pool.map(ask, range(asked)))
    assert len(right) == asked
    assert all(right)
