"""Which rows a process holds: contiguous ranges of them, one per process, or all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.processes import ALONE, Processes

P = ParamSpec("P")
R = TypeVar("R")


class Partition:
    """Contiguous ranges of rows, one per process. Rows have global numbers; tensors over rows hold a process's own.

    One process by itself has all rows, however many there are.

    Args:
        offsets: Where the ranges begin, and at last the number of all rows, ``world + 1`` numbers.
        processes: The processes.
    """

    def __init__(self, offsets: Sequence[int] = (), processes: Processes = ALONE) -> None:
        self.offsets, self.processes = tuple(int(offset) for offset in offsets), processes
        if processes.world == 1:
            self.start = 0
            return
        if len(self.offsets) != processes.world + 1 or self.offsets[0] != 0:
            raise InvalidInputError(f"{processes.world} processes need as many ranges of rows, got {self.offsets}")
        empty = [rank for rank, (start, stop) in enumerate(pairwise(self.offsets)) if stop <= start]
        if empty:
            raise InvalidInputError(
                f"process {empty[0]} of {processes.world} has no rows; use at most as many processes as there are nodes"
            )
        self.start = self.offsets[processes.rank]

    @classmethod
    def of(cls, own: int, processes: Processes) -> Partition:
        """The partition in which every process has so many rows of its own."""
        if processes.world == 1:
            return WHOLE
        counts = processes.gather(torch.tensor(own))
        return cls([0, *counts.cumsum(0).tolist()], processes)

    @property
    def is_whole(self) -> bool:
        """Whether one process has all rows."""
        return self.processes.world == 1

    @property
    def rank(self) -> int:
        """The number of this process."""
        return self.processes.rank

    @property
    def world(self) -> int:
        """The number of processes."""
        return self.processes.world

    def all_rows(self, own: int) -> int:
        """The number of all rows, of which this process has so many."""
        return own if self.is_whole else self.offsets[-1]

    def numbers(self, own: int) -> range:
        """The global numbers of the rows of this process."""
        return range(self.start, self.start + own)

    def own(self, index: Tensor, own: int) -> tuple[Tensor, Tensor]:
        """Where global numbers ``index`` name rows of this process, and which of its so many rows these are."""
        places = ((index >= self.start) & (index < self.start + own)).nonzero().squeeze(1)
        return places, index[places] - self.start

    def owner(self, nodes: Tensor) -> Tensor:
        """The number of the process that has each of some rows."""
        return torch.searchsorted(torch.tensor(self.offsets), nodes, right=True) - 1

    def pick(self, x: Tensor, index: Tensor) -> Tensor:
        """Rows by their global numbers, the same on all processes; differentiable. R(k d) for ``k`` of them."""
        if self.is_whole:
            return x[index]
        places, rows = self.own(index, x.size(0))
        return self.processes.sum(x.new_zeros(index.numel(), *x.shape[1:]).index_copy(0, places, x[rows]))

    def number_at(self, x: Tensor, row: int) -> float:
        """The entry of ``[n]`` at a global number. R(1)."""
        return float(self.pick(x.detach(), torch.tensor([row], device=x.device)))

    def fill_(self, x: Tensor, index: Tensor, value: float) -> Tensor:
        """Set rows of given global numbers in place. Sends nothing."""
        rows = index if self.is_whole else self.own(index, x.size(0))[1]
        return x.index_fill_(0, rows, value)

    def add_(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        """Add values, the same on all processes, to rows of given global numbers in place. Sends nothing."""
        if self.is_whole:
            return x.index_add_(0, index, values)
        places, rows = self.own(index, x.size(0))
        return x.index_add_(0, rows, values[places])

    def unit(self, like: Tensor, row: Tensor) -> Tensor:
        """Zeros like ``[n]``, with a one at a global number. Sends nothing."""
        return self.fill_(torch.zeros_like(like), row.view(1), 1.0)

    def collect(self, x: Tensor) -> Tensor:
        """The rows of all processes, in the order of their numbers. Sends all of them."""
        return self.processes.gather_rows(x)

    def agreed(self) -> AbstractContextManager[None]:
        """See :meth:`Processes.agreed <torch_gckm.processes.Processes.agreed>`."""
        return self.processes.agreed()

    def refuse(self, what: str, hint: str = "use one process") -> None:
        """Raise if rows are spread over several processes, where something cannot be done."""
        if not self.is_whole:
            raise InvalidInputError(f"{what} not possible over several processes; {hint}")

    def __deepcopy__(self, memo: dict[int, object]) -> Partition:
        return self

    def __reduce__(self) -> tuple[type[Partition], tuple[()]]:
        return Partition, ()  # Whoever reads a copy is by itself.

    def __repr__(self) -> str:
        return "Partition()" if self.is_whole else f"Partition({self.offsets}, {self.processes!r})"


WHOLE = Partition()  #: All rows belong to one process.


def in_agreement(function: Callable[P, R]) -> Callable[P, R]:
    """For a function of a graph, ``data``: an error is raised by all processes that have parts of it."""

    @functools.wraps(function)
    def agreed(*args: P.args, **kwargs: P.kwargs) -> R:
        with partition_of(args[0] if args else kwargs.get("data")).agreed():
            return function(*args, **kwargs)

    return agreed


def partition_of(data: object) -> Partition:
    """Which nodes of a graph a ``Data`` object has: all, except for a :class:`~torch_gckm.graph.ShardedGraph`."""
    if isinstance(data, Dataset) or (isinstance(data, list) and any(isinstance(part, Data) for part in data[:1])):
        raise InvalidInputError("one graph is needed, got a dataset of graphs; pass one of them, such as dataset[0]")
    found = vars(data).get("partition") if hasattr(data, "__dict__") else None
    return found if isinstance(found, Partition) else WHOLE
