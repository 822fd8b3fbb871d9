"""Loops end, whatever the numbers."""

import sys
import time

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM
from torch_gckm.errors import GCKMError, GCKMWarning, InvalidInputError, WorkerError
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF, Laplacian, Linear, Polynomial
from torch_gckm.select.time_limit import TimeLimit
from torch_gckm.select.trial import Trial
from torch_gckm.select.workers import can_fork, run_all

several_workers = pytest.mark.skipif(not can_fork(), reason="several workers need Linux and no GPU in use")


def fit(kernel="rbf", factor=1.0, dtype=torch.float32):
    graph = make_graph(90)
    graph.x = factor * graph.x.to(dtype)
    model = GCKM(8, (4,), 3, kernel=kernel, gram=LowRank(max_rank=40)).to(dtype)
    return model.initialize(graph).solve(graph)


@pytest.mark.parametrize(
    "kernel", [RBF(), Laplacian(), Linear(), Polynomial(2)], ids=lambda kernel: type(kernel).__name__
)
@pytest.mark.parametrize(("factor", "dtype"), [
    (1e20, torch.float32), (1e-20, torch.float32), (1e30, torch.float32), (1e160, torch.float64),
    (1e-170, torch.float64),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::torch_gckm.errors.GCKMWarning")
def test_huge_and_tiny_features_end_in_scores_or_an_error(kernel, factor, dtype):
    try:
        scores = fit(kernel, factor, dtype)
    except GCKMError:
        return
    assert bool(scores.isfinite().all())


def test_the_error_names_a_node():
    with pytest.raises(InvalidInputError, match=r"overflow or are NaN, first those of node \d+; rescale the features"):
        fit(factor=1e20)


@pytest.mark.parametrize("sigma2", [1e-300, 1e-40, 1e300])
@pytest.mark.filterwarnings("ignore::torch_gckm.errors.GCKMWarning")
def test_bandwidths_beyond_single_precision(sigma2):
    try:
        scores = fit(RBF(sigma2))
    except GCKMError:
        return
    assert bool(scores.isfinite().all())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_one_value_of_a_kernel_that_is_no_number(value):
    def kernel(a, b):
        values = torch.exp(-0.1 * torch.cdist(a, b).square())
        values[(a[:, :1] == b[:, 0]) & (a[:, :1] > 0)] = value
        return values

    with pytest.raises(InvalidInputError, match="overflow or are NaN, first those of node"):
        fit(kernel)


@several_workers
def test_a_setting_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(sys.modules["torch_gckm.select.workers"], "_PATIENCE", 0.5)

    def attempt(number):
        if number == 1:
            time.sleep(60.0)
        return Trial(number, None)

    found, start = [], time.perf_counter()
    with pytest.warns(GCKMWarning, match=r"1 settings did not end in 0\.5 s"):
        run_all(attempt, iter([[0], [1], [2]]), TimeLimit(0.5), 2, found.append)
    assert time.perf_counter() - start < 20.0
    assert 0 in {trial.number for trial in found if trial is not None}


@several_workers
def test_a_worker_that_is_killed_is_reported():
    def attempt(number):
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerError, match="was killed"):
        run_all(attempt, iter([[0], [1]]), TimeLimit(None), 2, print)
