"""The choice of a representation: by the number of nodes, by name, from a saved configuration."""

from collections.abc import Callable
from typing import Any, Self, Union

from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.gram.dense import Dense
from torch_gckm.gram.gram import Gram, GramFactory
from torch_gckm.gram.low_rank import LowRank
from torch_gckm.kernels import Kernel, Rows

GramLike = Union[str, GramFactory]


class Auto(GramFactory):
    """Choose between :class:`Dense` and :class:`LowRank` by the number of nodes.

    Up to ``dense_below`` nodes an exact matrix is at least as fast, and has no tolerance to think about. Beyond, the
    low-rank matrix is faster, and the only one whose memory does not grow with the square of the number of nodes. The
    threshold is where whole fits to subgraphs of Cora, CiteSeer, PubMed and Physics cross over
    (``benchmarks/policies.py``).

    Args:
        dense_below: The largest number of nodes to represent exactly.
        low_rank: The representation for more nodes.
    """

    def __init__(self, dense_below: int = 600, low_rank: LowRank | None = None) -> None:
        self.dense_below, self.low_rank = dense_below, low_rank or LowRank()

    def centred(self, kernel: Kernel, rows: Rows, *, min_rank: int = 1, landmarks: Tensor | None = None) -> Gram:
        return self._for(rows).centred(kernel, rows, min_rank=min_rank, landmarks=landmarks)

    def uncentred(self, kernel: Kernel, rows: Rows, *, landmarks: Tensor | None = None) -> Gram:
        return self._for(rows).uncentred(kernel, rows, landmarks=landmarks)

    def _for(self, rows: Rows) -> GramFactory:
        return Dense() if rows.num_rows <= self.dense_below else self.low_rank

    def config(self) -> dict[str, Any]:
        arguments = {"dense_below": self.dense_below, "low_rank": self.low_rank.config()["arguments"]}
        return {"kind": "Auto", "arguments": arguments}

    @classmethod
    def from_arguments(cls, dense_below: int, low_rank: dict[str, Any]) -> Self:
        """Rebuild from :meth:`config`."""
        return cls(dense_below, LowRank(**low_rank))

    def __repr__(self) -> str:
        return "Auto()" if self.config() == Auto().config() else f"Auto({self.dense_below}, {self.low_rank!r})"


_BY_NAME: dict[str, type[GramFactory]] = {"auto": Auto, "dense": Dense, "low_rank": LowRank}
_BY_KIND: dict[str, Callable[..., GramFactory]] = {"Auto": Auto.from_arguments, "Dense": Dense, "LowRank": LowRank}


def as_gram(gram: GramLike) -> GramFactory:
    """A representation from its name (``"auto"``, ``"dense"``, ``"low_rank"``), or itself."""
    if isinstance(gram, GramFactory):
        return gram
    if gram not in _BY_NAME:
        raise InvalidInputError(f"unknown gram {gram!r}; choose from {', '.join(sorted(_BY_NAME))}, or pass Dense()")
    return _BY_NAME[gram]()


def gram_from_config(config: dict[str, Any]) -> GramFactory:
    """Rebuild a representation from :meth:`GramFactory.config`."""
    return _BY_KIND[config["kind"]](**config["arguments"])
