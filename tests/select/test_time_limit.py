"""How the time of a fit is divided."""

from itertools import pairwise

import pytest
import torch

from tests.conftest import make_graph
from tests.select.helpers import SMALL, quick
from torch_gckm import GCKMClassifier
from torch_gckm.errors import GCKMWarning
from torch_gckm.gram import Auto, Dense, LowRank
from torch_gckm.select import search, time_limit
from torch_gckm.select.result import SearchResult, sharing_layers
from torch_gckm.select.search import ROUGH
from torch_gckm.select.time_limit import MemberTime, TimeLimit, slowdown_of
from torch_gckm.select.trial import Trial

SETTING = SMALL.setting(0, seed=0)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""

    class Clock:
        now = 1000.0

        def perf_counter(self):
            return self.now

    found = Clock()
    monkeypatch.setattr(time_limit, "time", found)
    return found


def trial(seconds=2.0, error=None):
    return Trial(0, SETTING, seconds=seconds, error=error)


class TestTimeLimit:
    def test_of_a_search_alone(self, clock):
        assert not TimeLimit(None).is_over()
        limit = TimeLimit(10.0)
        limit.note(trial(100.0))
        clock.now += 9.9
        assert not limit.is_over()
        clock.now += 0.1
        assert limit.is_over()
        assert limit.search_end == 1010.0

    def test_time_for_models_is_kept_by_what_settings_take(self, clock):
        limit = TimeLimit(100.0, members=2, slowdown=2.0)
        assert limit.search_end == 1100.0
        limit.note(trial(1.0))
        limit.note(trial(3.0))
        limit.note(None)
        needed = 2 * 2.0 * 2.0 * (1.0 + time_limit._SELF_TRAINING)
        assert limit.search_end == pytest.approx(1100.0 - needed)
        clock.now = 1100.0 - needed - 2.1  # One more setting would end in time.
        assert not limit.is_over()
        clock.now += 0.2
        assert limit.is_over()
        limit.note(trial(1e6))
        limit.note(trial(1e6))
        limit.note(trial(1e6))
        assert limit.search_end == pytest.approx(1100.0 - 100.0 / 3.0)  # At most a third of the time.

    def test_there_is_a_first_answer(self, clock):
        limit = TimeLimit(1.0, members=4)
        clock.now += 100.0
        for _ in range(time_limit._FIRST):
            assert not limit.is_over()
            limit.note(trial(error="no"))
        assert limit.is_over()
        limit = TimeLimit(1.0, members=4)
        limit.note(trial())
        clock.now += 100.0
        assert limit.is_over()


class TestMemberTime:
    def test_in_full_rank_while_the_others_fit_in_the_rank_of_the_search(self, clock):
        timing = MemberTime(1020.0, [trial(2.0)], 3.0, self_training=False)
        found = []
        for waiting in range(5, 0, -1):
            found.append(timing.rank(waiting))
            if found[-1] is None:
                break
            took = {"full": 6.0, "search": 2.0}[found[-1]]
            clock.now += took
            timing.note(found[-1], took)
        assert found == ["full", "full", "search", "search", "search"]
        assert timing.shortage == (
            "the time was too short for a full fit: 3 models have the lower rank of the search; give it a larger budget"
        )

    def test_fewer_but_at_least_one(self, clock):
        timing = MemberTime(1000.0, [trial()], 2.0, self_training=True)
        assert timing.rank(3) == "search"
        timing.note("search", 5.0)
        assert timing.rank(2) is None
        assert not timing.self_trains()
        assert "2 models were left out, there was no self-training" in timing.shortage
        assert MemberTime(1000.0, [trial()], 1.0, self_training=True).rank(3) == "full"  # There is no lower rank.

    def test_what_the_first_models_take_counts(self, clock):
        timing = MemberTime(1100.0, [trial(2.0)], 2.0, self_training=False)
        assert timing.rank(8) == "full"
        timing.note("full", 90.0)
        clock.now += 90.0
        assert timing.rank(7) == "search"

    def test_without_a_limit(self):
        timing = MemberTime(None, [], 2.0, self_training=True)
        assert timing.rank(8) == "full"
        assert timing.self_trains()
        assert timing.shortage is None

    def test_self_training_has_its_time(self, clock):
        trials = [trial(2.0)]
        one = 2.0 + 2.0 * time_limit._SELF_TRAINING
        timing = MemberTime(1000.0 + 3 * one, trials, 1.0, self_training=True)
        for waiting in (3, 2, 1):
            assert timing.rank(waiting) == "full"
            clock.now += 2.0
            timing.note("full", 2.0)
        assert timing.self_trains()
        assert timing.shortage is None
        clock.now += 3 * one
        assert not timing.self_trains()


def test_ranks_say_how_much_longer_models_take():
    assert slowdown_of(Auto(), ROUGH, 1000) == LowRank().max_rank / 256
    assert slowdown_of(Auto(), ROUGH, 600) == slowdown_of(Dense(), Dense(), 10**6) == 1.0


def test_ensembles_take_what_there_is_time_for(monkeypatch):
    data = make_graph(700)
    result = search(data, SMALL, None, max_settings=6, progress=False, workers=1, members=4)
    full = result.ensemble(3)
    ranks = iter(["full", "search", None])
    monkeypatch.setattr(MemberTime, "_rank", lambda *_: next(ranks))
    assert not result.rough.fits._layers
    with pytest.warns(GCKMWarning, match=r"1 models have the lower rank of the search, 1 models were left out"):
        short = result.ensemble(3, budget=100.0)
    assert (len(full.members), len(short.members)) == (3, 2)
    assert list(result.seconds) == ["preparing the graph", "search", "fit of the ensemble", "self-training"]
    rough, best = result.rough.solve(result.best.setting), result.evaluator.solve(result.best.setting)
    limits = [model.readout.gram.low_rank.max_rank for model in (rough, best)]
    assert sorted(model.readout.gram.low_rank.max_rank for model in short.members) == sorted(limits)


def test_members_that_share_layers_follow_each_other(graph):
    ranked = quick(graph, 24).ranked()
    ordered = sharing_layers(ranked)
    keys = [next(iter(one.setting.layer_keys()), "") for one in ordered]
    assert sorted(one.number for one in ordered) == sorted(one.number for one in ranked)
    assert ordered[0] is ranked[0]
    assert sum(a != b for a, b in pairwise(keys)) == len(set(keys)) - 1


def test_the_budget_is_that_of_the_whole_fit(graph, monkeypatch):
    """What the search is given, and what is left for the ensemble."""
    given, original = [], SearchResult.ensemble

    def ensemble(self, size, *, budget, **options):
        given.append(budget)
        return original(self, size, budget=budget, **options)

    monkeypatch.setattr(SearchResult, "ensemble", ensemble)
    fitted = GCKMClassifier(search=SMALL, budget=1.0, workers=1, progress=False).fit(graph)
    assert sum(fitted.seconds_.values()) < 3.0  # One second when nothing else runs.
    before = fitted.seconds_["preparing the graph"] + fitted.seconds_["search"]
    assert given[0] == pytest.approx(1.0 - before, abs=0.05)
    assert len(fitted.result_) > 1
    GCKMClassifier(search=SMALL, budget=None, max_settings=2, workers=1, progress=False).fit(graph)
    assert given[1] is None


def test_a_tiny_budget_has_an_answer(graph):
    with pytest.warns(GCKMWarning, match="the search tried 1 settings in a budget of 1e-06 s"):
        fitted = GCKMClassifier(budget=1e-6, workers=1, progress=False).fit(graph)
    assert len(fitted.model_.members) == 1
    assert torch.is_tensor(fitted.predict())
