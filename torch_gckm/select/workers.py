"""Try settings of a search, several at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch

from torch_gckm.select.trial import Trial

Attempt = Callable[[int], Trial]
_BUSY = 30_000  # Nodes from which one setting keeps all cores busy by itself.


def default_workers(num_nodes: int) -> int:
    """As many as there are threads; on a large graph one, whose matrix products use all of them."""
    return torch.get_num_threads() if num_nodes < _BUSY else 1


def run_all(
    attempts: list[Attempt],
    bundles: Iterable[list[int]],
    deadline: float | None,
    done: Callable[[Trial], None],
) -> None:
    """Try the settings of all bundles until the time is up.

    With several workers each one is a thread that computes on one core: kernel matrices of a
    small graph are too small to be shared among cores, and torch does not hold Python's lock
    while it computes.

    Args:
        attempts: For every worker, what fits and measures the setting of a number.
        bundles: Numbers of settings that share layers, and so belong on one worker.
        deadline: When to begin no further setting, on the clock of ``time.perf_counter``; ``None``: never.
        done: Called with every finished trial, one at a time.
    """
    lock, stop = threading.Lock(), threading.Event()
    queue = iter(bundles)

    def work(attempt: Attempt) -> None:
        while True:
            with lock:
                bundle = next(queue, None)
            if bundle is None:
                return
            for number in bundle:
                if stop.is_set() or (deadline is not None and time.perf_counter() >= deadline):
                    return
                try:
                    trial = attempt(number)
                    with lock:
                        done(trial)
                except BaseException:
                    stop.set()  # For the other workers, too.
                    raise

    if len(attempts) == 1:
        work(attempts[0])
        return
    # The number of threads that torch computes with belongs to the calling thread.
    with ThreadPoolExecutor(len(attempts), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        futures = [pool.submit(work, attempt) for attempt in attempts]
        try:
            for future in futures:
                future.result()
        finally:
            stop.set()


def bundles(size: int, known: set[int], limit: int | None) -> Iterator[list[int]]:
    """All numbers below a limit that are not known yet, in bundles that begin at multiples of a size."""
    start = 0
    while limit is None or start < limit:
        stop = start + size if limit is None else min(start + size, limit)
        missing = [number for number in range(start, stop) if number not in known]
        if missing:
            yield missing
        start += size
