"""What a long computation is doing, on the standard error: a bar that keeps moving, with the time left."""

import sys
import threading
import time
from types import TracebackType
from typing import Self

from tqdm import tqdm

_AT_TERMINALS, _ELSEWHERE = 0.5, 5.0  # Seconds between two looks at the clock.


class Bar:
    """A bar, or without steps a line that says how long something has taken.

    Args:
        title: What is being done.
        total: How many steps there are, if that is known.
        done: How many of them were done before.
        unit: What a step is.
        shown: If not, nothing is written.
        until: When it is over at the latest, on the clock of ``time.perf_counter``; it may be changed.
        moves: Whether the clock goes on while nothing is reported. A thread sees to it, so not while processes fork.
    """

    def __init__(
        self, title: str, total: int | None = None, *, done: int = 0, unit: str = "", shown: bool = True,
        until: float | None = None, moves: bool = True,
    ) -> None:  # fmt: skip
        self.until, self._begun, self._moves = until, time.perf_counter(), moves and shown
        self._total, self._done, self.steps, self._unit = total, done, done, unit
        self._is_counted = total is not None or bool(unit)
        self._bar = tqdm(
            desc=title, total=total, initial=done, disable=not shown, leave=self._is_counted,
            bar_format=self._format(), mininterval=0.0,
        )  # fmt: skip
        self._ended, self._drawing = threading.Event(), threading.Lock()
        self._clock = threading.Thread(target=self._tick, daemon=True)
        if self._moves:
            self._clock.start()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.perf_counter() - self._begun

    @property
    def left(self) -> float | None:
        """Seconds until the end, if they can be told."""
        now, steps = time.perf_counter(), self.steps - self._done
        ends = [] if self.until is None else [max(0.0, self.until - now)]
        if self._total is not None and steps > 0:
            ends.append((now - self._begun) / steps * (self._total - self.steps))
        return min(ends, default=None)

    def update(self, count: int = 1, *, said: str | None = None) -> None:
        """Some steps are done; ``said`` stands behind the bar."""
        self.steps += count
        self.refresh(said)

    def refresh(self, said: str | None = None) -> None:
        """Show the time, and what is said behind the bar."""
        if self._bar.disable:
            return
        with self._drawing:  # A lock of tqdm stays locked if Ctrl-C comes while a bar is drawn.
            if said is not None:
                self._bar.set_postfix_str(said, refresh=False)
            self._bar.n, self._bar.bar_format = self.steps, self._format()
            self._bar.refresh(nolock=True)

    def close(self) -> None:
        """End it; the bar remains, a line without steps does not."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._moves:
            self._clock.join()
        self.refresh()
        self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tick(self) -> None:
        while not self._ended.wait(_AT_TERMINALS if sys.stderr.isatty() else _ELSEWHERE):
            self.refresh()

    def _format(self) -> str:
        if not self._is_counted:
            return "{desc}: {elapsed}{postfix}"
        left = "?" if self.left is None else tqdm.format_interval(self.left)
        of = "" if self._total is None else f"/{self._total}"
        bar = "" if self._total is None else " {bar:20}|"
        return f"{{desc}}:{bar} {self.steps}{of}{self._unit} [{{elapsed}}, {left} left{{postfix}}]"
