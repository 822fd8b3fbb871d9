"""How edge weights are read: as they are given, as logarithms, or not at all."""

import math
import warnings
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import panels
from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.graph.edges import canonical_edges, graph_of
from torch_gckm.partition import WHOLE, Partition, partition_of

Weights = Literal["given", "log", "none"]
WEIGHTS: tuple[Weights, ...] = ("log", "none", "given")
_HEAVY = 10.0  # So many times the median is a 99 % quantile that deserves a warning; 7 for exponential weights.


class Weighting(NamedTuple):
    r"""What a propagation makes of edge weights.

    - ``"given"``: :math:`w` itself;
    - ``"log"``: :math:`\log(1 + w / u)`, for weights that differ by orders of magnitude. With a ``unit`` :math:`u` in
      proportion to the weights, such as :func:`typical_weight`, it does not depend on what they are measured in. A
      negative weight keeps its sign;
    - ``"none"``: 1, as if no weights were given; an edge of weight 0 stays none.
    """

    kind: Weights = "given"
    unit: float = 1.0

    def __call__(self, weight: Tensor | None) -> Tensor | None:
        """The weights to propagate with, ``[E]``; differentiable."""
        if weight is None or self.kind == "given":
            return weight
        if self.kind == "none":
            return (weight != 0).to(weight)
        return weight.sign() * (weight.abs() / self.unit).log1p()

    def __str__(self) -> str:
        return {"given": "", "log": f"log(1 + w/{self.unit:g})", "none": "unweighted"}[self.kind]


AS_GIVEN = Weighting()


def weighting(kind: Weights, unit: float) -> Weighting:
    """A checked :class:`Weighting`."""
    if kind not in WEIGHTS:
        raise InvalidInputError(f"'weights' must be 'given', 'log' or 'none', got {kind!r}")
    if not 0.0 < unit < math.inf:
        raise InvalidInputError(f"'unit' must be a positive number, got {unit!r}")
    return Weighting(kind, float(unit))


def weights_of(data: Data) -> Tensor | None:
    """The edge weights of a graph, checked, ``[E]``."""
    x, edge_index, edge_weight = graph_of(data)
    return canonical_edges(edge_index, edge_weight, partition_of(data).all_rows(x.size(0)))[1]


def has_weights(weight: Tensor | None, over: Partition = WHOLE) -> bool:
    """Whether some edge has another weight than 1."""
    return weight is not None and panels.holds_somewhere(weight.detach() != 1, over)


def typical_weight(weight: Tensor, over: Partition = WHOLE) -> float:
    """The geometric mean of all weights but zeros, to three digits: a unit that few large weights hardly move."""
    size = weight.detach().abs().double()
    mean = float(panels.mean(size[size > 0].log(), over))
    return 1.0 if math.isnan(mean) else float(f"{math.exp(mean):.3g}")


def warn_of_unusable(weight: Tensor | None) -> None:
    """Warn if all weights are zero, or of negative ones, which settings that divide by sums of weights cannot use."""
    count = 0 if weight is None else panels.count(weight < 0, WHOLE)
    if weight is not None and weight.numel() and not panels.count(weight, WHOLE):
        text = "all edge weights are zero, so edges count for nothing; leave the weights out"
        warnings.warn(text, GCKMWarning, stacklevel=3)
    if weight is not None and count:
        text = (
            f"{count:,} of {weight.numel():,} edge weights are negative. Settings are left out for which the weights "
            "of some node sum to zero or less; drop such edges, or pass absolute values"
        )
        warnings.warn(text, GCKMWarning, stacklevel=3)


def warn_of_heavy_tail(weight: Tensor | None, advice: str) -> None:
    """Warn if few edges have so large weights that, taken as they are, they outweigh all others."""
    if weight is None or not weight.numel():
        return
    half, most, largest = np.quantile(weight.detach().abs().cpu().double().numpy(), [0.5, 0.99, 1.0])
    if most > _HEAVY * half:
        text = (
            f"half of them are at most {half:,.3g}, one in a hundred is above {most:,.3g}, the largest {largest:,.3g}"
        )
        warnings.warn(f"edge weights have a heavy tail: {text}; {advice}", GCKMWarning, stacklevel=3)
