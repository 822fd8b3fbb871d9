"""Processes that work on the rows of one graph, and errors that all of them raise."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch.distributed as dist

from torch_gckm.errors import InvalidInputError

_KINDS: tuple[type[Exception], ...] = (InvalidInputError, ImportError, MemoryError)
T = TypeVar("T")


class Ranks(Protocol):
    """Processes among which rows are spread: process ``r`` holds those from ``offsets[r]`` to ``offsets[r + 1]``.

    ``group`` may be ``None`` for one process, and for all that ``torch.distributed`` knows.
    """

    @property
    def rank(self) -> int: ...
    @property
    def world(self) -> int: ...
    @property
    def offsets(self) -> tuple[int, ...]: ...
    @property
    def group(self) -> dist.ProcessGroup | None: ...
    def exchange(self, text: str) -> list[str]:
        """What every process calls this with, in their order."""
        ...


@dataclass(frozen=True)
class Alone:
    """One process that holds all rows."""

    offsets: tuple[int, ...] = (0, 0)
    rank: int = 0
    world: int = 1
    group: dist.ProcessGroup | None = None

    def exchange(self, text: str) -> list[str]:
        return [text]


def agreed(ranks: Ranks, work: Callable[[], tuple[T, Any]]) -> tuple[T, list[Any]]:
    """Work in every process; own result, and what all tell about theirs. An error of one is raised in all."""
    done: list[T] = []
    own: Exception | None = None
    try:
        result, told = work()
        done.append(result)
        report = {"told": told}
    except Exception as error:
        own = error
        if isinstance(error, OSError) and error.errno is not None:
            report = {"system": [error.errno, error.strerror, error.filename and str(error.filename)]}
        else:
            kind = next((kind for kind in _KINDS if isinstance(error, kind)), RuntimeError)
            report = {"kind": kind.__name__, "text": f"{type(error).__name__}: " * (kind is RuntimeError) + str(error)}
    reports = [json.loads(text) for text in ranks.exchange(json.dumps(report))]
    for rank, other in enumerate(reports):
        where = f" (process {rank} of {ranks.world})" if ranks.world > 1 else ""
        if "system" in other:
            number, text, name = other["system"]
            raise OSError(number, f"{text}{where}", name) from own
        if "kind" in other:
            kind = next((kind for kind in _KINDS if kind.__name__ == other["kind"]), RuntimeError)
            raise kind(other["text"] + where) from own
    return done[0], [other["told"] for other in reports]
