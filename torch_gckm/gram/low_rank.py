r"""The choice of a representation: low-rank matrices, by the number of nodes, by name, from a saved configuration."""

from collections.abc import Callable
from typing import Any, Self, Union

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.gram.dense import Dense
from torch_gckm.gram.factor import PanelForm, check_form, is_stored
from torch_gckm.gram.gram import Gram, GramFactory, Panel
from torch_gckm.gram.landmark_gram import CentredLowRankGram, LowRankGram
from torch_gckm.gram.pivoted_cholesky import pivoted_cholesky
from torch_gckm.kernels import Kernel, Rows

GramLike = Union[str, GramFactory]


class LowRank(GramFactory):
    r"""Represent kernel matrices by some of their columns, :math:`K \approx F F'`, :math:`F` with ``m`` columns.

    The columns are chosen by randomly pivoted Cholesky: it evaluates ``m`` columns, costs :math:`O(n m d + n m^2)` and
    knows its error. Nothing of size :math:`n \times n` exists.

    Args:
        max_rank: The largest number of columns ``m``; a layer takes at least twice as many as it has channels.
        tol: Stop when what is left of the trace is below this share of the centred matrix's trace.
            (Wide kernels are almost constant: a share of the plain trace would be reached by one column.)
        block_size: The largest number of columns to choose at a time.
        seed: The same seed chooses the same columns.
        panel: ``"stored"`` keeps :math:`F`, which takes ``4 n m`` bytes. ``"recomputed"`` computes its rows again, a
            block at a time, for every product; it takes memory for some numbers per node, and several times as long.
            ``"auto"`` stores :math:`F` if it takes less than half of the free memory. Results agree up to rounding.
    """

    def __init__(
        self,
        max_rank: int = 512,
        tol: float = 0.05,
        block_size: int = 128,
        seed: int = 0,
        panel: PanelForm = "auto",
    ) -> None:
        if max_rank < 1 or block_size < 1 or not 0.0 <= tol < 1.0:
            raise InvalidInputError("LowRank needs positive 'max_rank' and 'block_size', and 'tol' in [0, 1)")
        check_form(panel)
        self.max_rank, self.tol, self.block_size, self.seed, self.panel = max_rank, tol, block_size, seed, panel

    def centred(
        self, kernel: Kernel, rows: Rows, *, min_rank: int = 1, landmarks: Tensor | None = None
    ) -> CentredLowRankGram:
        if landmarks is not None:
            return CentredLowRankGram(kernel, rows, landmarks, form=self.panel)
        panel = self._choose(kernel, rows, min_rank, centred=True)
        return CentredLowRankGram(kernel, rows, panel.landmarks, panel, self.panel)

    def uncentred(self, kernel: Kernel, rows: Rows, *, landmarks: Tensor | None = None) -> LowRankGram:
        panel = None
        if landmarks is None:
            panel = self._choose(kernel, rows, 1, centred=False)
            landmarks = panel.landmarks
        return self._with_positive_degrees(LowRankGram(kernel, rows, landmarks, panel, self.panel))

    def config(self) -> dict[str, Any]:
        arguments = dict(vars(self))
        if self.panel == "auto":  # As in files that were written before there was a choice.
            del arguments["panel"]
        return {"kind": "LowRank", "arguments": arguments}

    @torch.no_grad()
    def _choose(self, kernel: Kernel, rows: Rows, min_rank: int, *, centred: bool) -> Panel:
        min_rank = min(min_rank, rows.num_nodes)
        rank = max(min(self.max_rank, rows.num_nodes), min_rank)
        return pivoted_cholesky(
            kernel, rows.detach(), max_rank=rank, min_rank=min_rank, tol=self.tol,
            block_size=self.block_size, seed=self.seed, centred=centred,
            stored=is_stored(self.panel, rows, rank, self.block_size),
        )  # fmt: skip

    @torch.no_grad()
    def _with_positive_degrees(self, gram: LowRankGram) -> LowRankGram:
        """Choose more landmarks while the approximation alone makes the degree of a node non-positive."""
        kernel, rows = gram.kernel, gram.rows.detach()
        while gram.landmarks.numel() < gram.num_nodes:
            bad = gram.constant_degrees() <= 0
            if not panels.holds_somewhere(bad, rows.partition):
                break
            first = rows.rows(torch.tensor([panels.first(bad, rows.partition)], device=rows.device))
            if float(panels.total(kernel(first, rows), rows.partition)) <= 0:
                break  # It is so exactly, and the readout will say so.
            panel = self._choose(kernel, rows, 2 * gram.landmarks.numel(), centred=False)
            if panel.landmarks.numel() <= gram.landmarks.numel():
                break  # The matrix has no more: the degree is zero up to rounding.
            gram = LowRankGram(kernel, gram.rows, panel.landmarks, panel, self.panel)
        return gram

    def __repr__(self) -> str:
        form = "" if self.panel == "auto" else f", panel={self.panel!r}"
        return f"LowRank(max_rank={self.max_rank}, tol={self.tol:g}, seed={self.seed}{form})"


class Auto(GramFactory):
    """Choose between :class:`Dense` and :class:`LowRank` by the number of nodes.

    Up to ``dense_below`` nodes an exact matrix is at least as fast, and has no tolerance to think about. Beyond, the
    low-rank matrix is faster, and its memory does not grow with the square of the number of nodes. The threshold is
    where whole fits to subgraphs of Cora, CiteSeer, PubMed and Physics cross over (``benchmarks/run.py policies``).

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
        is_small = rows.partition.is_whole and rows.num_rows <= self.dense_below
        return Dense() if is_small else self.low_rank

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
