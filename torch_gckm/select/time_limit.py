"""How a fit divides its time between the search and the models that are combined in the end.

The models have kernel matrices of a higher rank than the trials of the search. What a model takes is estimated by the
seconds of trials times the ratio of the ranks, until the first one has been fitted, and so is self-training. If the
time is too short for all of them, the best are fitted in full rank, others in the rank of the search, whose layers are
still known; if it is too short for these, too, there are fewer.
"""

import time
from collections.abc import Sequence
from statistics import median
from typing import Literal

from torch_gckm.gram import Auto, GramFactory
from torch_gckm.processes import ALONE, Processes
from torch_gckm.select.trial import Trial

Rank = Literal["full", "search"]
_MOST = 1 / 3  # The share of the time that is kept for the models at most.
_FIRST = 8  # So many settings may fail before there is a first answer, however late it is.
_SELF_TRAINING = 1.75  # How many times as long as the fit of a model, estimated by its trial, its self-training takes.


class TimeLimit:
    """When a search ends.

    Args:
        seconds: The time of the search and of the fit of its models; ``None`` for no limit.
        members: How many models are fitted after it, in the same time; by default none.
        slowdown: How many times as long as a trial the fit of a model takes.
        processes: Those that search together; the clock of the first one counts.
    """

    def __init__(
        self, seconds: float | None, members: int = 0, slowdown: float = 1.0, processes: Processes = ALONE
    ) -> None:
        self.seconds, self.members, self.slowdown, self.processes = seconds, members, slowdown, processes
        self.end = None if seconds is None else time.perf_counter() + seconds
        self._tried, self._took = 0, list[float]()  # Settings that went well, and how long.

    def note(self, trial: Trial | None) -> None:
        """Learn from a trial."""
        self._tried += trial is not None
        if trial is not None and trial.is_valid:
            self._took.append(trial.seconds)

    @property
    def search_end(self) -> float | None:
        """When the last setting should have ended, on the clock of ``time.perf_counter``."""
        if self.end is None or self.seconds is None or not self.members:
            return self.end
        needed = self.members * self.slowdown * (1.0 + _SELF_TRAINING) * typical(self._took)
        return self.end - min(needed, _MOST * self.seconds)

    def is_over(self) -> bool:
        """Whether no further setting should begin; there is a first answer in any case."""
        return self.end is not None and bool(self.processes.of_first(self._is_over()))

    def _is_over(self) -> bool:
        now, end = time.perf_counter(), self.search_end
        assert end is not None
        if not self._took:
            return now > end and self._tried >= _FIRST
        return now + (typical(self._took) if self.members else 0.0) >= end


class MemberTime:
    """In which rank the next model is fitted, so that all of them are fitted in time, and whether they self-train.

    Args:
        end: When all must be done, on the clock of ``time.perf_counter``; ``None`` for no limit.
        trials: Those of the models.
        slowdown: As of :class:`TimeLimit`.
        self_training: Whether it is to follow.
        processes: As of :class:`TimeLimit`.
    """

    def __init__(
        self,
        end: float | None,
        trials: Sequence[Trial],
        slowdown: float,
        self_training: bool,
        processes: Processes = ALONE,
    ) -> None:
        self.end, self.slowdown, self.self_training, self.processes = end, slowdown, self_training, processes
        usual, share = typical([trial.seconds for trial in trials]), _SELF_TRAINING if self_training else 0.0
        self.expected: dict[Rank, float] = {"full": slowdown * usual, "search": usual}
        self._share = share
        self._took: dict[Rank, list[float]] = {"full": [], "search": []}
        self._left_out, self._gave_up = 0, False

    def rank(self, waiting: int) -> Rank | None:
        """The rank of the next one of so many models; ``None`` if there is no time for another one."""
        rank: Rank | None = "full" if self.end is None else self.processes.of_first(self._rank(waiting, self.end))
        self._left_out = waiting if rank is None else 0
        return rank

    def note(self, rank: Rank, seconds: float) -> None:
        """Learn how long a model took."""
        self._took[rank].append(seconds)
        self.expected[rank] = typical(self._took[rank])

    def self_trains(self) -> bool:
        """Whether there is time for self-training, or for half of it, as the time is estimated."""
        if self.self_training and self.end is not None:
            late = time.perf_counter() + 0.5 * self._training() > self.end
            self.self_training = not self.processes.of_first(late)
            self._gave_up = not self.self_training
        return self.self_training

    @property
    def shortage(self) -> str | None:
        """What the time was too short for, in a sentence."""
        rough = len(self._took["search"])
        parts = [f"{rough} models have the lower rank of the search"] if rough else []
        parts += [f"{self._left_out} models were left out"] if self._left_out else []
        parts += ["there was no self-training"] if self._gave_up else []
        return f"the time was too short for a full fit: {', '.join(parts)}; give it a larger budget" if parts else None

    def _rank(self, waiting: int, end: float) -> Rank | None:
        left = end - time.perf_counter()
        full, search = (expected * (1.0 + self._share) for expected in self.expected.values())
        if full + (waiting - 1) * search + self._training() <= left:
            return "full"
        if self.expected["search"] <= left or not any(self._took.values()):  # Rather more models than self-training.
            return "search" if self.slowdown > 1.0 else "full"
        return None

    def _training(self) -> float:
        """Seconds of self-training of the models so far, as estimated by what they took."""
        return self._share * sum(map(sum, self._took.values()))


def slowdown_of(gram: GramFactory, search: GramFactory, num_nodes: int) -> float:
    """How many times as long as a trial the fit of a model takes: about in proportion to the rank of its matrices.

    For rank m it is O(n m d + n m^2); not all matrices reach their largest rank.
    """
    if not (isinstance(gram, Auto) and isinstance(search, Auto)) or num_nodes <= gram.dense_below:
        return 1.0
    return max(1.0, gram.low_rank.max_rank / search.low_rank.max_rank)


def typical(seconds: Sequence[float]) -> float:
    """The median, 0 of nothing: the first settings of a search take longer, as nothing is shared yet."""
    return median(seconds) if seconds else 0.0
