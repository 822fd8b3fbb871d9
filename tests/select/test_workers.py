import threading
import time

import pytest
import torch

from torch_gckm.select.trial import Trial
from torch_gckm.select.workers import bundles, default_workers, run_all


def test_bundles_are_what_is_missing():
    assert list(bundles(3, {1, 3, 4, 5}, 8)) == [[0, 2], [6, 7]]
    endless = bundles(2, set(), None)
    assert [next(endless), next(endless)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("workers", [1, 3])
def test_every_setting_is_tried_once(workers):
    found = []
    run_all([lambda number: Trial(number, {})] * workers, bundles(4, {2}, 30), None, found.append)
    assert sorted(trial.number for trial in found) == [0, 1, *range(3, 30)]


def test_a_bundle_stays_on_one_worker_with_one_thread():
    seen = {}
    before = torch.get_num_threads()

    def attempt(number):
        time.sleep(0.002)
        seen[number] = (threading.get_ident(), torch.get_num_threads())
        return Trial(number, {})

    run_all([attempt] * 2, bundles(4, set(), 24), None, lambda trial: None)
    for start in range(0, 24, 4):
        assert len({seen[number] for number in range(start, start + 4)}) == 1
    assert {threads for _, threads in seen.values()} == {1}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("workers", [1, 2])
def test_stops_at_the_deadline_and_on_errors(workers):
    run_all([pytest.fail] * workers, bundles(4, set(), None), time.perf_counter(), pytest.fail)

    def broken(number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all([broken] * workers, bundles(4, set(), None), time.perf_counter() + 60, pytest.fail)


def test_large_graphs_get_one_worker():
    assert default_workers(1000) == torch.get_num_threads()
    assert default_workers(10**6) == 1
