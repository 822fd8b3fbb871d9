"""One search that several processes take part in, on one machine or on many (extra ``tune``).

An Optuna study has a trial for every setting that a process has begun, and says which number in the search it has. All
processes see the trials of a study in the same order. So a number belongs to the process whose trial of it comes first.
What is tried does not depend on who does it: numbers determine settings.

A process that ends before a setting is finished leaves a trial that is still running. Others mark it as failed, and its
number is free again. They know that the process has ended if it ran on the same machine; on another one, they conclude
it from the time that passed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import pickle
import secrets
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil

from torch_gckm.errors import InvalidInputError
from torch_gckm.select.identity import check_identity
from torch_gckm.select.studies import (
    StorageLike,
    from_attributes,
    is_in_memory,
    open_storage,
    open_study,
    to_attributes,
)
from torch_gckm.select.trial import Trial
from torch_gckm.select.workers import bundles

if TYPE_CHECKING:
    import optuna

_PAUSE = 0.3  # Seconds between two looks at settings that others are trying.
_OVERDUE = 10.0, 60.0  # A setting is given up after so many times the slowest finished one, plus so many seconds.
_CLOCKS = 5.0  # Seconds by which two readings of when a process started may differ.
_MOST_LOSSES = 5  # After so many, a number is taken from 2 to the power of it.


@contextmanager
def _whole() -> Iterator[None]:
    """Write to a storage without being ended halfway by a signal to terminate: others would wait for its lock."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class SharedSearch:
    """The part that one process, with its workers, has in a shared search.

    Args:
        storage: Where the study is, see :func:`~torch_gckm.select.studies.open_storage`.
        name: The name of the study.
        identity: What all processes must have in common, as plain values.
        value: The score of a trial, for whoever looks at the study.
    """

    def __init__(
        self, storage: StorageLike, name: str, identity: dict[str, Any], value: Callable[[Trial], float]
    ) -> None:
        self.name, self.value = name, value
        self.identity = {key: _digest(part) for key, part in identity.items()}  # Databases limit the length of texts.
        self._storage = open_storage(storage)
        if is_in_memory(self._storage):
            raise InvalidInputError("no other process can reach a storage in memory; give a path or a database URL")
        # A connection is of one process. Those that a worker inherits are kept: closing them would close the original.
        self._opened: dict[int, tuple[optuna.storages.BaseStorage, optuna.Study]] = {}
        self._read: dict[int, Trial] = {}  # Finished trials by their number in the study.
        self._token = ""  # Of the present claim.
        self._losses = 0  # How many numbers in a row another process was faster to claim.

    def trials(self) -> list[Trial]:
        """The finished settings of all processes, by number; of one tried twice, the first in the study."""
        return list(self._look()[0].values())

    def num_running(self) -> int:
        """How many settings are being tried, by any process."""
        return len(self._look()[1])

    def work(self, size: int, limit: int | None, single: int) -> Iterator[list[int]]:
        """Numbers to claim, see :func:`~torch_gckm.select.workers.bundles`; an empty list while only others have some.

        Bundles are proposed as a whole if no process is at them. It ends when all settings are finished.
        """
        while True:
            finished, running = self._look()
            known = set(finished)
            free = (bundle for bundle in bundles(size, known, limit, single) if running.keys().isdisjoint(bundle))
            # After a claim that came too late, take one at random: else the same processes may meet again.
            choice = list(itertools.islice(free, 2**self._losses))
            choice = choice or list(itertools.islice(bundles(size, known | set(running), limit, single), 1))
            if choice:
                yield secrets.choice(choice)
            elif any(limit is None or number < limit for number in running):  # Others may have a larger limit.
                time.sleep(_PAUSE)
                yield []
            else:
                return

    def attempt(self, number: int, fit: Callable[[], Trial]) -> Trial | None:
        """Claim a number, try its setting and keep what came of it; ``None`` if another process has claimed it."""
        self._token = uuid.uuid4().hex
        try:
            self._claim(number)
            if self._claimed(number) is None:
                self._release()
                self._losses = min(self._losses + 1, _MOST_LOSSES)
                return None
            self._losses = 0
            trial = fit()
            self._finish(trial)
        except BaseException:  # Also when it is interrupted.
            self._release()
            raise
        return trial

    def _claim(self, number: int) -> None:
        import optuna

        claim = {"number": number, "token": self._token, "since": time.time(), **_this_process()}
        self._add(optuna.trial.TrialState.RUNNING, {"search": self.identity, "claim": claim})

    def _claimed(self, number: int) -> optuna.trial.FrozenTrial | None:
        """The claim of a number if it is the one of this process."""
        claimed = self._look()[1].get(number)
        return claimed if claimed is not None and _claim_of(claimed)["token"] == self._token else None

    def _release(self) -> None:
        """Give the claim of this process back, if it has not finished it."""
        for trial in self._trials():
            if trial.state.name == "RUNNING" and _claim_of(trial)["token"] == self._token:
                self._fail(trial)

    @_whole()
    def _finish(self, trial: Trial) -> None:
        """Keep a trial, unless another process has finished its setting."""
        import optuna

        value, states = self.value(trial), optuna.trial.TrialState
        # Only finite numbers are values of trials that are complete.
        state, values = (states.COMPLETE, [value]) if math.isfinite(value) else (states.PRUNED, None)
        claimed = self._claimed(trial.number)
        try:
            if claimed is not None:
                storage, _ = self._connection()
                for key, content in to_attributes(trial).items():
                    storage.set_trial_user_attr(claimed._trial_id, key, content)
                storage.set_trial_state_values(claimed._trial_id, state, values)
                return
        except optuna.exceptions.UpdateFinishedTrialError:
            pass
        self._release()
        if trial.number not in self._look()[0]:  # This process has been slow, and another one has taken the claim.
            claim = {"number": trial.number, "token": self._token}
            self._add(state, {"search": self.identity, "claim": claim, **to_attributes(trial)}, values)

    def _look(self) -> tuple[dict[int, Trial], dict[int, optuna.trial.FrozenTrial]]:
        """Finished trials, and claims of running ones, by number; claims of processes that ended are given back."""
        finished: dict[int, Trial] = {}
        claims: list[optuna.trial.FrozenTrial] = []
        for frozen in self._trials():  # Those that were read at one time: the first of a number is the same for all.
            if frozen.state.name == "RUNNING":
                claims.append(frozen)
            elif frozen.state.name in ("COMPLETE", "PRUNED"):
                if frozen.number not in self._read:
                    self._read[frozen.number] = from_attributes(frozen.user_attrs)
                finished.setdefault(_claim_of(frozen)["number"], self._read[frozen.number])
        slowest = max((trial.seconds for trial in finished.values()), default=math.inf)
        running: dict[int, optuna.trial.FrozenTrial] = {}
        for frozen in claims:
            claim = _claim_of(frozen)
            is_overdue = time.time() - claim["since"] > _OVERDUE[0] * slowest + _OVERDUE[1]
            if claim["token"] != self._token and (is_overdue or _has_ended(claim)):
                self._fail(frozen)
            elif claim["number"] not in finished:
                running.setdefault(claim["number"], frozen)
        return dict(sorted(finished.items())), running

    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        """The trials of this search; raises if the first one of the study belongs to another."""
        _, study = self._connection()
        trials = study.get_trials(deepcopy=False)
        if trials:
            check_identity(trials[0].user_attrs.get("search", {}), self.identity, f"the study '{self.name}'")
        # Two searches may have begun a study at the same time. The other one is refused, too late for its first trials.
        return [trial for trial in trials if trial.user_attrs.get("search") == self.identity]

    @_whole()
    def _add(
        self, state: optuna.trial.TrialState, attributes: dict[str, Any], values: list[float] | None = None
    ) -> None:
        import optuna

        _, study = self._connection()
        study.add_trial(optuna.trial.create_trial(state=state, values=values, user_attrs=attributes))

    @_whole()
    def _fail(self, trial: optuna.trial.FrozenTrial) -> None:
        import optuna

        storage, _ = self._connection()
        try:
            storage.set_trial_state_values(trial._trial_id, optuna.trial.TrialState.FAIL)
        except optuna.exceptions.UpdateFinishedTrialError:
            return

    def _connection(self) -> tuple[optuna.storages.BaseStorage, optuna.Study]:
        """The storage and the study, opened by this process."""
        process = os.getpid()
        if process not in self._opened:
            storage = pickle.loads(pickle.dumps(self._storage)) if self._opened else self._storage
            with _whole():
                self._opened[process] = storage, open_study(storage, self.name)
        return self._opened[process]


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=int)  # Seeds may be numbers of NumPy.
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _claim_of(trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    claim: dict[str, Any] = trial.user_attrs["claim"]
    return claim


def _host() -> str:
    """This machine; processes of different containers do not see each other, even if they have the same host name."""
    space = "/proc/self/ns/pid"
    return f"{socket.gethostname()} {os.readlink(space) if os.path.islink(space) else ''}".strip()


def _this_process() -> dict[str, Any]:
    process = psutil.Process()
    return {"host": _host(), "pid": process.pid, "started": process.create_time()}


def _has_ended(claim: dict[str, Any]) -> bool:
    """Whether the process of a claim is known to have ended; of those on other machines nothing is known."""
    if claim["host"] != _host():
        return False
    try:
        process = psutil.Process(claim["pid"])
        is_another = abs(process.create_time() - claim["started"]) > _CLOCKS
        return is_another or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
