"""Where rows come from, so that rows of one matrix know each other again."""

from __future__ import annotations

from typing import NamedTuple, Union

import torch
from torch import Tensor

Index = Union[slice, Tensor]


class Origin(NamedTuple):
    """The matrix that rows were taken from, and their numbers in it."""

    matrix: object
    numbers: range | Tensor

    def pick(self, index: Index) -> Origin:
        """The origin of the rows ``index`` of rows with this origin."""
        if isinstance(self.numbers, Tensor):
            return Origin(self.matrix, self.numbers[index])
        if isinstance(index, slice) and index.step in (None, 1):
            return Origin(self.matrix, self.numbers[index])
        device = None if isinstance(index, slice) else index.device
        every = torch.arange(self.numbers.start, self.numbers.stop, device=device)
        return Origin(self.matrix, every[index])

    def shared(self, other: Origin) -> tuple[Tensor, Tensor] | None:
        """Positions ``(i, j)`` of the same row here and there, or ``None`` if the matrices differ."""
        if self.matrix is not other.matrix:
            return None
        here, there = self.numbers, other.numbers
        if isinstance(here, range) and isinstance(there, range):
            start = max(here.start, there.start)
            both = torch.arange(start, max(start, min(here.stop, there.stop)))
            return both - here.start, both - there.start
        if isinstance(here, range):
            assert isinstance(there, Tensor)
            found = ((there >= here.start) & (there < here.stop)).nonzero().squeeze(1)
            return there[found] - here.start, found
        if isinstance(there, range):
            swapped = other.shared(self)
            return None if swapped is None else swapped[::-1]
        ordered, order = there.sort()
        first = torch.searchsorted(ordered, here)
        count = torch.searchsorted(ordered, here, right=True) - first
        place = torch.repeat_interleave(count)  # A row may occur more than once on either side.
        within = torch.arange(place.numel(), device=here.device) - (count.cumsum(0) - count)[place]
        return place, order[first[place] + within]
