"""One call of a search: which settings are tried, until when, and what is shown and kept meanwhile."""

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.graph import Direction
from torch_gckm.nn import ModelSettings
from torch_gckm.progress import Bar
from torch_gckm.select.portfolio import portfolio
from torch_gckm.select.result import SearchResult
from torch_gckm.select.search_checkpoint import SearchCheckpoint
from torch_gckm.select.shared_search import SharedSearch
from torch_gckm.select.space import Space
from torch_gckm.select.time_limit import TimeLimit
from torch_gckm.select.trial import Evaluator, PreparedGraphs, Trial, quiet
from torch_gckm.select.workers import bundles, run_all

_SHOW_EVERY = 2.0  # Seconds between two looks at the best setting.


@dataclass(frozen=True)
class Plan:
    """The settings of a search by their numbers: those of the portfolio, then random ones.

    Args:
        space: What to draw random ones from, with the directions and edge weights of the graph.
        first: The settings of the portfolio, and what they promise.
        count: How many to try; ``None`` for no limit.
        seed: Of the random ones.
    """

    space: Space
    first: Sequence[tuple[ModelSettings, float]]
    count: int | None
    seed: int

    @classmethod
    def of(
        cls, space: Space, directions: Sequence[Direction] | None, graphs: PreparedGraphs | None, count: int | None,
        seed: int,
    ) -> "Plan":  # fmt: skip
        """With the portfolio, if graphs are given to order it by; then, by default, with nothing else."""
        seen = directions or (space.main_direction,)
        first = [] if graphs is None else portfolio(graphs, seen, space.weightings)
        return cls(space, first, len(first) if graphs is not None and count is None else count, seed)

    @property
    def promises(self) -> list[float]:
        """What the first settings promise."""
        return [promise for _, promise in self.first]

    @property
    def most_workers(self) -> float:
        """How many bundles of settings there are."""
        if self.count is None:
            return math.inf
        return max(1, self.count if self.first else math.ceil(self.count / self.space.readouts))

    def setting(self, number: int) -> ModelSettings:
        """The setting of a number."""
        rest = number - len(self.first)
        return self.first[number][0] if rest < 0 else self.space.setting(rest, self.seed)


class SearchRun:
    """Adds trials to a result until all settings are tried, the time is up, or Ctrl-C.

    Args:
        result: Where trials are added.
        rough: What fits and measures settings.
        plan: The settings.
        limit: When to stop.
        checkpoint: The file that keeps what was tried.
        shared: The search of several processes that this one takes part in, if there is one.
        shown: Whether to show a bar.
    """

    def __init__(
        self, result: SearchResult, rough: Evaluator, plan: Plan, limit: TimeLimit, checkpoint: SearchCheckpoint,
        shared: SharedSearch | None, shown: bool,
    ) -> None:  # fmt: skip
        self.result, self.rough, self.plan, self.limit = result, rough, plan, limit
        self.checkpoint, self.shared = checkpoint, shared
        self.partition, self.shown = result.evaluator.partition, shown and result.evaluator.partition.rank == 0
        self._said = time.perf_counter()

    def resume(self) -> None:
        """Take what was tried before."""
        self.result.trials = self.checkpoint.trials() if self.shared is None else self.shared.trials()
        processes = self.partition.processes
        if not processes.everywhere(processes.of_first(len(self.result)) == len(self.result)):
            raise InvalidInputError(
                "processes see different checkpoints; name one on a file system that all of them share"
            )
        for trial in self.result.trials:
            self.limit.note(trial)

    def run(self, workers: int) -> None:
        """Try settings; after Ctrl-C, the result is that of the settings tried before, if there are any."""
        interruption = None
        with self._bar(moves=workers == 1) as self.bar:
            try:
                with quiet():
                    run_all(
                        self._attempt, self._numbers(), self.limit, workers, self._done, claims=self.shared is not None
                    )
            except KeyboardInterrupt as error:
                interruption = error
            finally:
                trials = self.result.trials if self.shared is None else self.shared.trials()
                self.result.trials = sorted(trials, key=lambda trial: trial.number)
                self._save(now=True)
        if interruption is not None:
            if not self.partition.is_whole:
                raise interruption
            if not self.result.ranked():
                warnings.warn("the search was interrupted before it had fitted a setting", GCKMWarning, stacklevel=2)
                raise interruption
            self.result.interrupted = True
            warnings.warn(self._how_to_go_on(), GCKMWarning, stacklevel=2)

    def _numbers(self) -> Iterator[list[int]]:
        size, count, single = self.plan.space.readouts, self.plan.count, len(self.plan.first)
        if self.shared is not None:
            return self.shared.work(size, count, single)
        return bundles(size, {trial.number for trial in self.result.trials}, count, single)

    def _attempt(self, number: int) -> Trial | None:
        setting = self.plan.setting(number)
        if self.shared is None:
            return self.rough(number, setting)
        return self.shared.attempt(number, lambda: self.rough(number, setting))

    def _done(self, trial: Trial | None) -> None:
        if trial is not None:
            self.result.trials.append(trial)
        now, said = time.perf_counter(), None
        if self.shown and now - self._said > _SHOW_EVERY:
            said, self._said = self._progress(is_waiting=trial is None), now
        self.bar.until = self.limit.search_end
        self.bar.update(len(self.result) - self.bar.steps, said=said)
        self._save()

    def _progress(self, is_waiting: bool) -> str:
        waits = {}
        if self.shared is not None:
            self.result.trials = self.shared.trials()
            waits = {"waits for": f"{self.shared.num_running()} settings"} if is_waiting else {}
        return ", ".join(f"{name}={value}" for name, value in {**self.result.progress(), **waits}.items())

    def _bar(self, moves: bool) -> Bar:
        return Bar(
            "search", self.plan.count, done=len(self.result), unit=" settings", shown=self.shown,
            until=self.limit.search_end, moves=moves,
        )  # fmt: skip

    def _save(self, *, now: bool = False) -> None:
        if self.partition.rank == 0:
            self.checkpoint.save(self.result.trials, now=now)

    def _how_to_go_on(self) -> str:
        if self.shared is not None:
            way = "continue with the same storage"
        elif self.checkpoint.path is not None:
            way = f"continue with the same checkpoint, '{self.checkpoint.path}'"
        else:
            way = "with a checkpoint, such as checkpoint='search.pt' or --checkpoint search.pt, a later call continues"
        follows = "; their best ones are fitted now, and a second Ctrl-C stops that" if self.limit.members else ""
        return f"the search was interrupted after {len(self.result)} settings{follows}; {way}"
