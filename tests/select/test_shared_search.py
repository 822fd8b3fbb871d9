"""Searches that several processes share."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import make_graph
from tests.select.helpers import SMALL, quick
from torch_gckm import GCKMClassifier, GCKMRegressor
from torch_gckm.cli import main
from torch_gckm.errors import GCKMWarning, GraphMismatchError, InvalidInputError, WorkerError
from torch_gckm.select import search, search_run, shared_search
from torch_gckm.select.shared_search import SharedSearch
from torch_gckm.select.study import study_search
from torch_gckm.select.trial import Evaluator, Trial
from torch_gckm.select.workers import can_fork

optuna = pytest.importorskip("optuna", reason="optuna is not installed (extra 'tune')")
needs_fork = pytest.mark.skipif(not can_fork(), reason="processes cannot be copied here")
SETTING = SMALL.setting(0, seed=0)
# Another process, which waits to be killed when it has begun its third setting.
PROCESS = """
import sys, time, torch
from tests.conftest import make_graph
from tests.select.helpers import quick
from torch_gckm.select.trial import Evaluator

torch.set_num_threads(1)
original, begun = Evaluator.__call__, []

def attempt(self, number, setting):
    begun.append(number)
    if len(begun) == 3:
        time.sleep(60)
    return original(self, number, setting)

Evaluator.__call__ = attempt
print("ready", flush=True)
sys.stdin.readline()
quick(make_graph(), 14, workers=1, storage=sys.argv[1])
"""


def process(storage):
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(storage)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip


def plain(result):
    return json.dumps([{**trial.to_dict(), "seconds": 0.0} for trial in result.trials])


def claims(storage, name="gckm"):
    """The claims of all trials of a study by their states."""
    study = optuna.load_study(study_name=name, storage=shared_search.open_storage(storage))
    found = {}
    for trial in study.trials:
        found.setdefault(trial.state.name, []).append(trial.user_attrs["claim"])
    return found


def part(storage, name="gckm", **identity):
    return SharedSearch(storage, name, {"seed": 0, **identity}, lambda trial: 0.5)


def numbers(result):
    return [trial.number for trial in result.trials]


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "search.journal"


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def elsewhere(monkeypatch):
    """Claim as a process of another machine."""

    def claim(shared, number):
        with monkeypatch.context() as patch:
            patch.setattr(shared_search, "_host", lambda: "elsewhere")
            shared._token = f"of {number}"
            shared._claim(number)

    return claim


@pytest.mark.slow
class TestProcesses:
    def test_two_find_what_one_finds_though_one_is_killed(self, graph, journal, one_thread, monkeypatch):
        original = Evaluator.__call__

        def slow(*args):
            time.sleep(0.1)
            return original(*args)

        with process(journal) as other:
            alone = quick(graph, 14, workers=1)
            assert other.stdout.readline() == "ready\n"
            other.stdin.write("go\n")
            other.stdin.flush()
            while not (journal.exists() and "claim" in journal.read_text()):
                time.sleep(0.01)
            monkeypatch.setattr(Evaluator, "__call__", slow)
            # While it lives, its setting is left to it, and waited for.
            most = search(graph, SMALL, 3.0, max_settings=14, storage=journal, progress=False, workers=1)
            (claimed,) = claims(journal)["RUNNING"]
            assert numbers(most) == [number for number in range(14) if number != claimed["number"]]
            other.kill()
            whole = quick(graph, 14, storage=journal, workers=1)
        assert plain(whole) == plain(alone)
        assert [trial.number for trial in whole.ranked()] == [trial.number for trial in alone.ranked()]
        assert torch.equal(whole.ensemble(3).predict_proba(), alone.ensemble(3).predict_proba())
        found = claims(journal)
        assert claimed in found.pop("FAIL")
        tried = [claim for parts in found.values() for claim in parts]
        assert sorted(claim["number"] for claim in tried) == list(range(14))
        assert {claim["pid"] for claim in tried} == {other.pid, os.getpid()}
        again = quick(graph, 14, storage=journal)
        assert [trial.to_dict() for trial in again.trials] == [trial.to_dict() for trial in whole.trials]

    @needs_fork
    @pytest.mark.parametrize("storage", ["search.journal", "sqlite:///search.db"])
    def test_workers(self, graph, tmp_path, monkeypatch, storage, one_thread):
        monkeypatch.chdir(tmp_path)
        shared = quick(graph, 20, workers=2, storage=storage)
        assert plain(shared) == plain(quick(graph, 20, workers=1))
        found = claims(storage)
        tried = [claim for state, parts in found.items() if state != "FAIL" for claim in parts]
        assert sorted(claim["number"] for claim in tried) == list(range(20))
        assert os.getpid() not in {claim["pid"] for claim in tried}

    @needs_fork
    def test_what_a_killed_worker_claimed_is_free_again(self, graph, journal, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(Evaluator, "__call__", lambda *_: os._exit(1))
            with pytest.raises(WorkerError):
                quick(graph, 14, workers=2, storage=journal)
        assert set(claims(journal)) == {"FAIL"}
        assert numbers(quick(graph, 14, workers=2, storage=journal)) == list(range(14))

    def test_interrupted_it_gives_its_claim_back(self, graph, journal, monkeypatch):
        original = Evaluator.__call__

        def interrupted(self, number, setting):
            if number == 2:
                raise KeyboardInterrupt
            return original(self, number, setting)

        with monkeypatch.context() as patch:
            patch.setattr(Evaluator, "__call__", interrupted)
            with pytest.warns(GCKMWarning, match="interrupted after 2 settings; continue with the same storage"):
                assert numbers(quick(graph, 5, storage=journal, workers=1)) == [0, 1]
        assert [claim["number"] for claim in claims(journal)["FAIL"]] == [2]
        assert numbers(quick(graph, 3, storage=journal, workers=1)) == [0, 1, 2]
        assert numbers(quick(graph, 5, storage=journal, workers=1)) == [0, 1, 2, 3, 4]


class TestClaims:
    def test_the_first_of_two_has_the_number(self, journal):
        first, second = part(journal), part(journal)
        first._token, second._token = "first", "second"
        first._claim(0)
        second._claim(0)
        assert first._claimed(0) is not None
        assert second._claimed(0) is None
        assert second.attempt(0, pytest.fail) is None
        assert first.num_running() == 1

    def test_others_begin_with_bundles_that_nobody_is_at(self, journal):
        first, second = part(journal), part(journal)
        first._claim(0)
        assert next(second.work(3, 9, 0)) == [3, 4, 5]
        assert next(second.work(3, 3, 0)) == [1, 2]
        assert next(second.work(3, 1, 0)) == []
        third = part(journal, name="others")
        third._claim(4)
        assert list(third.work(3, 0, 0)) == []  # One who tries fewer settings does not wait for it.
        second.attempt(1, lambda: Trial(1, SETTING))
        first._release()
        assert next(second.work(3, 9, 0)) == [0, 2]
        assert next(second.work(3, None, 2)) == [0]

    def test_one_that_runs_for_too_long_is_tried_again(self, graph, journal, elsewhere, monkeypatch):
        shared = quick(graph, 4, storage=journal, workers=1)
        identity = shared_search.SharedSearch(journal, "other", {}, lambda trial: 0.0)
        study = optuna.load_study(study_name="gckm", storage=identity._storage)
        identity.name, identity.identity = "gckm", study.trials[0].user_attrs["search"]
        elsewhere(identity, 4)
        waited = search(graph, SMALL, 0.5, max_settings=6, storage=journal, workers=1, progress=False)
        assert numbers(waited) == [0, 1, 2, 3, 5]
        monkeypatch.setattr(shared_search, "_OVERDUE", (0.0, 0.0))
        assert numbers(quick(graph, 6, storage=journal, workers=1)) == list(range(6))
        assert len(shared) == 4

    def test_without_any_finished_setting_nothing_is_known_to_run_for_too_long(self, journal, elsewhere, monkeypatch):
        monkeypatch.setattr(shared_search, "_OVERDUE", (10.0, 0.0))
        shared = part(journal)
        elsewhere(shared, 0)
        assert part(journal).num_running() == 1

    @pytest.mark.parametrize("is_finished", [True, False])
    def test_what_a_slow_process_finishes_counts_if_nobody_was_faster(self, journal, monkeypatch, is_finished):
        slow, fast = part(journal), part(journal)

        def fit():
            fast.attempt(1, lambda: Trial(1, SETTING))
            monkeypatch.setattr(shared_search, "_OVERDUE", (0.0, 0.0))  # Its claim is taken away.
            assert fast.num_running() == 0
            if is_finished:
                fast.attempt(0, lambda: Trial(0, SETTING, {"by": 1.0}))
            return Trial(0, SETTING, {"by": 2.0})

        slow.attempt(0, fit)
        assert [trial.measures for trial in fast.trials()] == [{"by": 1.0 if is_finished else 2.0}, {}]
        assert len(claims(journal)["COMPLETE"]) == 2

    def test_failed_settings_are_finished(self, journal):
        shared = SharedSearch(journal, "gckm", {}, lambda trial: -np.inf)
        shared.attempt(0, lambda: Trial(0, SETTING, error="no"))
        assert [(trial.number, trial.error) for trial in shared.trials()] == [(0, "no")]
        assert list(shared.work(1, 1, 0)) == []

    def test_of_two_searches_that_begin_a_study_the_first_has_it(self, journal):
        first, second = part(journal), part(journal, graph=2)
        assert second.trials() == []
        first.attempt(0, lambda: Trial(0, SETTING))
        with pytest.raises(GraphMismatchError, match="the study 'gckm' belongs to another search: other graph"):
            second.attempt(0, pytest.fail)
        assert (len(first.trials()), first.num_running()) == (1, 0)


class TestRefusals:
    def test_other_searches(self, graph, journal):
        quick(graph, 2, storage=journal, seed=np.int64(1), workers=1)
        assert len(quick(graph, 2, storage=journal, seed=1, workers=1)) == 2
        for data, options, match in (
            (make_graph(50), {"seed": 1}, "other graph"), (graph, {}, "other seed"),
            (graph, {"seed": 1, "gram": "dense"}, "other gram"),
        ):  # fmt: skip
            with pytest.raises(GraphMismatchError, match=f"the study 'gckm' belongs to another search: {match}"):
                quick(data, 3, storage=journal, **options)
        with pytest.raises(GraphMismatchError, match="portfolio"):
            search(graph, None, None, seed=1, storage=journal, progress=False)
        assert numbers(quick(make_graph(50), 1, storage=journal, study="other", workers=1)) == [0]
        with pytest.raises(GraphMismatchError, match="the study 'gckm' belongs to another"):
            study_search(graph, SMALL, None, max_settings=1, storage=journal, progress=False)

    def test_a_study_with_a_sampler(self, graph, journal):
        study_search(graph, SMALL, None, max_settings=1, storage=journal, progress=False)
        with pytest.raises(GraphMismatchError, match="the study 'gckm' belongs to another"):
            quick(graph, 2, storage=journal)

    @pytest.mark.parametrize("content", ["node,class\n1,2\n", '"op_code"\n', "3\n", '{"op_code": 1'])
    def test_files_that_are_no_journals(self, graph, tmp_path, content):
        file = tmp_path / "y.csv"
        file.write_text(content)
        with pytest.raises(InvalidInputError, match=r"y\.csv' is not a journal of Optuna, or it is damaged"):
            quick(graph, 2, storage=file)
        assert file.read_text() == content
        with pytest.raises(InvalidInputError, match="is a folder"):
            quick(graph, 2, storage=str(tmp_path))

    def test_other_storages(self, graph, tmp_path):
        with pytest.raises(InvalidInputError, match="leave out 'checkpoint'"):
            quick(graph, 2, storage=tmp_path / "a", checkpoint=tmp_path / "b")
        with pytest.raises(InvalidInputError, match="in memory"):
            quick(graph, 2, storage=optuna.storages.InMemoryStorage())
        with pytest.raises(
            InvalidInputError, match="the path of a journal, a database URL or an Optuna storage, got 3"
        ):
            quick(graph, 2, storage=3)
        with pytest.raises(InvalidInputError, match="cannot open the database"):
            quick(graph, 2, storage="nonsense://there")

    def test_without_optuna(self, graph, journal, monkeypatch):
        monkeypatch.setitem(sys.modules, "optuna", None)
        with pytest.raises(ImportError, match=r"torch_gckm\[tune\]"):
            quick(graph, 2, storage=journal)


def test_an_optuna_storage_and_the_progress(graph, journal, monkeypatch, capsys):
    monkeypatch.setattr(search_run, "_SHOW_EVERY", 0.0)
    storage = shared_search.open_storage(journal)
    assert numbers(quick(graph, 3, storage=storage, workers=1)) == [0, 1, 2]
    study = optuna.load_study(study_name="gckm", storage=storage)
    other = SharedSearch(journal, "gckm", {}, lambda trial: 0.0)
    other.identity = study.trials[0].user_attrs["search"]
    other._claim(3)
    search(graph, SMALL, 1.5, max_settings=5, storage=journal, workers=1)
    shown = capsys.readouterr().err
    assert "4/5" in shown
    assert "waits for=1 settings" in shown


def test_estimators(graph, journal):
    options = {"search": SMALL, "budget": None, "progress": False, "workers": 1, "storage": journal}
    first = GCKMClassifier(max_settings=4, **options).fit(graph)
    second = GCKMClassifier(max_settings=6, **options).fit(graph)
    assert [trial.to_dict() for trial in second.result_.trials[:4]] == [t.to_dict() for t in first.result_.trials]
    with pytest.raises(GraphMismatchError):
        GCKMRegressor(max_settings=4, **options).fit(graph)
    assert len(GCKMRegressor(max_settings=4, study="numbers", **options).fit(graph).result_) == 4


def test_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [",".join([f"n{node}", *map(str, row)]) for node, row in enumerate(make_graph().x.tolist())]
    Path("x.csv").write_text("\n".join(["node,a,b,c,d,e,f,g,h", *rows]))
    Path("y.csv").write_text("\n".join(["node,class", *(f"n{node},{'ab'[node % 2]}" for node in range(8))]))
    graph = ["--features", "x.csv", "--n-neighbors", "5", "--labels", "y.csv"]
    options = [*graph, "--budget", "0", "--quiet", "--storage"]
    assert main(["search", *options, "folder/search.journal", "--max-settings", "6"]) == 0
    capsys.readouterr()
    assert main(["fit", "model.pt", *options, "folder/search.journal", "--max-settings", "8"]) == 0
    assert "8 settings" in capsys.readouterr().err
    assert len(claims("folder/search.journal")["COMPLETE"]) == 8
    assert main(["search", *options, "x.csv"]) == 2
    assert "x.csv is named twice" in capsys.readouterr().err
    assert main(["search", *options, "a.journal", "--checkpoint", "a.pt"]) == 2
    assert "leave out 'checkpoint'" in capsys.readouterr().err
