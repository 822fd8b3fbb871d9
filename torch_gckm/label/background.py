"""Does the tasks of a session in a process of its own, so that answers never wait for a fit.

A process rather than a thread: it can be ended in the middle of a fit, a fit that runs out of memory does not take the
answers with it, and Python does not divide its time between a fit and a page.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Self

from torch_gckm.label.findings import Findings, Task, find
from torch_gckm.label.session import LabellingSession, describe

_PATIENCE = 10.0  # Seconds that a process is given to end; usually it ends at once.


class Background:
    """One process that works for a session, on one task at a time.

    .. code-block:: python

        with Background(session) as background:
            while ...:
                background.step()   # now and then; it does not wait

    Attributes:
        task: The task that is being worked on, or ``None``.
    """

    def __init__(self, session: LabellingSession) -> None:
        self._session = session
        self.task: Task | None = None
        self._process: BaseProcess | None = None

    def step(self) -> None:
        """Take what a finished task has found, and begin the next one; returns at once."""
        if self.task is not None and (self._link.poll() or not self._is_alive()):
            self._finish()
        task = self._session.task() if self.task is None else None
        if task is not None:
            self._session.begin(task)
            if not self._is_alive():
                self._start()
            self._link.send(task)
            self.task = task

    def wait(self, seconds: float) -> None:
        """Step until there is nothing to do, at most so long."""
        end = time.monotonic() + seconds
        self.step()
        while self.task is not None and time.monotonic() < end:
            time.sleep(0.02)
            self.step()

    def stop(self) -> None:
        """End the process, also in the middle of a task."""
        if self._process is None:
            return
        if self.task is not None:
            self._process.terminate()
        self._link.close()  # Tells a process that waits for a task that there will be none.
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        Path(self._path).unlink(missing_ok=True)  # The process may not have come to it.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def _start(self) -> None:
        """Start the process; it finds the graph in a file, as a pipe would have to wait until it reads."""
        handle, self._path = tempfile.mkstemp(prefix="gckm-label-")
        with os.fdopen(handle, "wb") as file:
            pickle.dump((self._session.graph, self._session.classifier), file)
        context = multiprocessing.get_context("spawn")  # A copy of a process with a server would hold its sockets.
        self._link, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, self._path), name="gckm label: fits")
        self._process.start()
        theirs.close()

    def _finish(self) -> None:
        self.task = None
        try:
            found = self._link.recv()
        except (EOFError, OSError):
            self._session.fail("the process that fits was killed; it may have run out of memory")
            return
        if isinstance(found, Findings):
            self._session.take(found)
        else:
            self._session.fail(found)


def _work(link: Connection, path: str) -> None:
    """Do tasks as they come, until the process that sends them closes the link or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits for this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # An exit ends the workers of a search, too.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with open(path, "rb") as file:
        graph, classifier = pickle.load(file)
    Path(path).unlink()
    try:
        while True:
            task = link.recv()
            try:
                found: Findings | str = find(graph, task, classifier)
            except Exception as error:  # Whatever it is, the page shows it and goes on.
                found = describe(error)
            link.send(found)
    except (EOFError, OSError):
        return


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
