"""Why a node is suggested: what it may be, and between which classes the model is unsure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError

_ENOUGH = 0.8  # The probability that the classes a node may have are to reach together.
_MOST = 3  # Classes that are named.


@dataclass(frozen=True)
class Reason:
    """What is predicted for a node whose label was asked for.

    Attributes:
        node: Its number.
        guess: The likeliest class.
        probability: Its probability.
        second: The second likeliest class.
        second_probability: Its probability.
        between: The likeliest classes that have a probability of 0.8 together, at most three.
    """

    node: int
    guess: Any
    probability: float
    second: Any
    second_probability: float
    between: tuple[Any, ...]

    @property
    def words(self) -> str:
        """Why its label would tell something, in words."""
        if len(self.between) == 1:
            return f"probably {self.guess}; nodes like it depend on its label"
        if len(self.between) == 2:
            return f"unsure between {self.between[0]} and {self.between[1]}"
        return f"unsure between {', '.join(map(str, self.between[:-1]))} and {self.between[-1]}"


def explain(probabilities: Tensor, nodes: Any, classes: Sequence[Any]) -> list[Reason]:
    """What is predicted for some nodes, from the probabilities ``[n, num_classes]`` of all."""
    numbers, count = torch.as_tensor(nodes).reshape(-1), probabilities.size(0)
    if not set(numbers.tolist()) <= set(range(count)):
        raise InvalidInputError(f"'nodes' must be whole numbers from 0 to {count - 1}, got {numbers.tolist()}")
    values, places = probabilities[numbers.long()].topk(min(_MOST, len(classes)), dim=1)
    needed = 1 + (values.cumsum(dim=1) < _ENOUGH).sum(dim=1).clamp(max=values.size(1) - 1)
    return [
        Reason(node, classes[a[0]], p[0], classes[a[1]], p[1], tuple(classes[place] for place in a[:most]))
        for node, p, a, most in zip(numbers.tolist(), values.tolist(), places.tolist(), needed.tolist(), strict=True)
    ]
