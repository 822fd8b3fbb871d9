import os

import pytest
import torch

from tests.select.helpers import SMALL
from torch_gckm.errors import InvalidInputError
from torch_gckm.select import workers as workers_module
from torch_gckm.select.time_limit import TimeLimit
from torch_gckm.select.trial import Trial
from torch_gckm.select.workers import bundles, can_fork, default_workers, run_all


def unexpected(trial):
    assert trial is None


SETTING = SMALL.setting(0, seed=0)
COUNTS = [1, pytest.param(3, marks=pytest.mark.skipif(not can_fork(), reason="processes cannot be copied here"))]


def test_bundles_are_what_is_missing():
    assert list(bundles(3, {1, 3, 4, 5}, 8)) == [[0, 2], [6, 7]]
    endless = bundles(2, set(), None)
    assert [next(endless), next(endless)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("workers", COUNTS)
def test_every_setting_is_tried_once(workers):
    found = []
    run_all(lambda number: Trial(number, SETTING), bundles(4, {2}, 30), TimeLimit(None), workers, found.append)
    assert sorted(trial.number for trial in found if trial is not None) == [0, 1, *range(3, 30)]


@pytest.mark.parametrize("workers", COUNTS[1:])
def test_a_bundle_stays_on_one_worker_with_one_thread(workers):
    found = {}

    def attempt(number):
        return Trial(number, SETTING, {"process": os.getpid(), "threads": torch.get_num_threads()})

    def done(trial):
        found.update({} if trial is None else {trial.number: trial.measures})

    run_all(attempt, bundles(4, set(), 24), TimeLimit(None), workers, done)
    for start in range(0, 24, 4):
        assert len({found[number]["process"] for number in range(start, start + 4)}) == 1
    assert len({measures["process"] for measures in found.values()}) == workers
    assert {measures["threads"] for measures in found.values()} == {1}


@pytest.mark.parametrize("workers", COUNTS)
def test_stops_at_the_deadline_and_on_errors(workers):
    limit = TimeLimit(0.0)
    limit.note(Trial(0, SETTING, {}))  # There is a first answer.
    run_all(pytest.fail, bundles(4, set(), None), limit, workers, unexpected)

    def broken(number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(broken, bundles(4, set(), None), TimeLimit(60.0), workers, unexpected)


@pytest.mark.parametrize("workers", COUNTS[1:])
def test_a_killed_worker_is_noticed(workers):
    with pytest.raises(RuntimeError, match="killed"):
        run_all(lambda number: os._exit(1), bundles(4, set(), None), TimeLimit(None), workers, unexpected)


def test_large_graphs_get_one_worker(monkeypatch):
    assert default_workers(10**6) == 1
    monkeypatch.setattr(workers_module, "can_fork", lambda: False)
    assert default_workers(1000) == 1
    with pytest.raises(InvalidInputError, match="workers=1"):
        run_all(pytest.fail, bundles(4, set(), 4), TimeLimit(None), 2, pytest.fail)
