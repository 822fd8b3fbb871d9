"""Try settings of a search, several at a time."""

import itertools
import math
import multiprocessing
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import cast

import torch

from torch_gckm.errors import GCKMWarning, InvalidInputError, WorkerError
from torch_gckm.select.time_limit import TimeLimit
from torch_gckm.select.trial import Trial

Attempt = Callable[[int], Trial | None]
_END = "end"
_BUSY = 30_000  # Nodes from which one setting keeps all cores busy by itself.
_MOST = 16  # More workers would need much memory.
_PATIENCE = 60.0  # Seconds that a setting may take beyond the time of the search.
_GLANCE = 1.0  # Seconds between two looks at the clock while nothing is finished.


def can_fork() -> bool:
    """Whether this process may be copied: not on every system, not once a GPU is in use, not in a pool's worker."""
    is_worker = multiprocessing.current_process().daemon
    return sys.platform == "linux" and not torch.cuda.is_initialized() and not is_worker


def default_workers(num_nodes: int) -> int:
    """As many as there are threads, within reason; on a large graph one, whose matrix products use all of them."""
    return min(torch.get_num_threads(), _MOST) if num_nodes < _BUSY and can_fork() else 1


def bundles(size: int, known: set[int], limit: int | None, single: int = 0) -> Iterator[list[int]]:
    """All numbers below a limit that are not known yet: so many single ones, then in bundles of a size."""
    for number in range(single if limit is None else min(single, limit)):
        if number not in known:
            yield [number]
    start = single
    while limit is None or start < limit:
        stop = start + size if limit is None else min(start + size, limit)
        missing = [number for number in range(start, stop) if number not in known]
        if missing:
            yield missing
        start += size


def run_all(
    attempt: Attempt,
    work: Iterator[list[int]],
    limit: TimeLimit,
    workers: int,
    done: Callable[[Trial | None], None],
    *,
    claims: bool = False,
) -> None:
    """Try the settings of all bundles until the time is up.

    Several workers are copies of this process that compute on one core each: the kernel matrices of a small graph are
    too small to be shared among cores, and a fit is too much Python for threads. With one worker all happens in this
    process. Settings of one bundle share layers, and so belong on one worker. No setting begins when the limit is over;
    those of several workers that have not ended a minute later are given up. ``done`` is called with every finished
    trial, in this process, and by several workers also with ``None``, about every second.

    With ``claims``, every worker goes through all bundles, and ``attempt`` returns ``None`` for a number that another
    process has claimed; the rest of its bundle is left to that one. An empty bundle says that there is nothing to do at
    present. ``done`` is called with ``None`` in both cases.
    """
    if workers == 1:
        for trial in _attempts(attempt, work, limit):
            done(trial)
        return
    if not can_fork():
        raise InvalidInputError(
            "several workers need Linux, and a process that has used no GPU and is no worker itself; use workers=1"
        )
    context = multiprocessing.get_context("fork")
    # A worker takes every so-many-th bundle, or what it can claim.
    shares: list[Iterator[list[int]]] = [work] * workers
    if not claims:
        shares = [itertools.islice(copied, i, None, workers) for i, copied in enumerate(itertools.tee(work, workers))]
    links: list[Connection] = []
    processes = []
    try:
        for share in shares:
            ours, theirs = context.Pipe(duplex=False)
            links.append(ours)
            process = context.Process(target=_work, args=(attempt, share, limit, theirs, list(links)), daemon=True)
            with warnings.catch_warnings():  # Its copy computes on one thread, so no lock of another can hold it up.
                warnings.filterwarnings("ignore", ".*multi-threaded, use of fork.*", DeprecationWarning)
                process.start()
            theirs.close()
            processes.append(process)
        while links:
            end = limit.search_end
            patience = math.inf if end is None else max(0.0, end + _PATIENCE - time.perf_counter())
            ready = cast(list[Connection], wait(links, min(patience, _GLANCE)))
            if not ready and patience > _GLANCE:
                done(None)
                continue
            if not ready:
                text = f"{len(links)} settings did not end in {_PATIENCE:g} s after the time was up and are left out"
                warnings.warn(text, GCKMWarning, stacklevel=2)
                break
            for link in ready:
                try:
                    received = link.recv()
                except EOFError:
                    raise WorkerError("a worker of the search was killed; it may have run out of memory") from None
                if received == _END:
                    links.remove(link)
                elif isinstance(received, BaseException):
                    raise received
                else:
                    limit.note(received)
                    done(received)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _attempts(attempt: Attempt, work: Iterator[list[int]], limit: TimeLimit) -> Iterator[Trial | None]:
    for bundle in work:
        for number in bundle or (None,):
            if limit.is_over():
                return
            trial = None if number is None else attempt(number)
            limit.note(trial)
            yield trial
            if trial is None:
                break


def _work(
    attempt: Attempt, work: Iterator[list[int]], limit: TimeLimit, link: Connection, inherited: list[Connection]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The process that waits for this one decides.
    for other in inherited:
        other.close()  # Else the link would stay open, and this process alive, after that one's death.
    torch.set_num_threads(1)
    try:
        for trial in _attempts(attempt, work, limit):
            link.send(trial)
        link.send(_END)
    except BrokenPipeError:
        return
    except BaseException as error:
        link.send(error)
