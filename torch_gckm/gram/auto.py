"""Exact where that is cheap, low-rank beyond."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torch_gckm.gram.dense import Dense
from torch_gckm.gram.gram import Gram, GramFactory
from torch_gckm.gram.low_rank import LowRank
from torch_gckm.kernels import Kernel, Rows


class Auto(GramFactory):
    """Choose between :class:`Dense` and :class:`LowRank` by the number of nodes.

    Up to ``dense_below`` nodes an exact matrix is at least as fast, and has no
    tolerance to think about. Beyond, the low-rank matrix is faster, and the only
    one whose memory does not grow with the square of the number of nodes. The
    threshold is where whole fits to subgraphs of Cora, CiteSeer, PubMed and Physics
    cross over (``benchmarks/policies.py``).

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
    def from_arguments(cls, dense_below: int, low_rank: dict[str, Any]) -> Auto:
        """Rebuild from :meth:`config`."""
        return cls(dense_below, LowRank(**low_rank))

    def __repr__(self) -> str:
        default = Auto()
        return "Auto()" if self.config() == default.config() else f"Auto({self.dense_below}, {self.low_rank!r})"
