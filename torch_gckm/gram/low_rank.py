r"""Low-rank kernel matrices: linear in the number of nodes."""

from typing import Any

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.gram.gram import GramFactory, Panel
from torch_gckm.gram.landmark_gram import CentredLowRankGram, LowRankGram
from torch_gckm.gram.memory import require_memory
from torch_gckm.gram.pivoted_cholesky import pivoted_cholesky
from torch_gckm.kernels import Kernel, Rows


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
    """

    def __init__(self, max_rank: int = 512, tol: float = 0.05, block_size: int = 128, seed: int = 0) -> None:
        if max_rank < 1 or block_size < 1 or not 0.0 <= tol < 1.0:
            raise InvalidInputError("LowRank needs positive 'max_rank' and 'block_size', and 'tol' in [0, 1)")
        self.max_rank, self.tol, self.block_size, self.seed = max_rank, tol, block_size, seed

    def centred(
        self, kernel: Kernel, rows: Rows, *, min_rank: int = 1, landmarks: Tensor | None = None
    ) -> CentredLowRankGram:
        if landmarks is not None:
            return CentredLowRankGram(kernel, rows, landmarks)
        panel = self._choose(kernel, rows, min_rank, centred=True)
        return CentredLowRankGram(kernel, rows, panel.landmarks, panel)

    def uncentred(self, kernel: Kernel, rows: Rows, *, landmarks: Tensor | None = None) -> LowRankGram:
        if landmarks is None:
            panel = self._choose(kernel, rows, 1, centred=False)
            gram = LowRankGram(kernel, rows, panel.landmarks, panel)
        else:
            gram = LowRankGram(kernel, rows, landmarks)
        return self._with_positive_degrees(gram)

    def config(self) -> dict[str, Any]:
        arguments = {"max_rank": self.max_rank, "tol": self.tol, "block_size": self.block_size, "seed": self.seed}
        return {"kind": "LowRank", "arguments": arguments}

    def _choose(self, kernel: Kernel, rows: Rows, min_rank: int, *, centred: bool) -> Panel:
        rank = min(self.max_rank, rows.num_rows)
        size = (rank + 3 * self.block_size) * rows.num_rows * rows.dtype.itemsize
        require_memory(size, f"a kernel matrix of rank {rank}", rows.device)
        min_rank = min(min_rank, rows.num_rows)
        with torch.no_grad():
            return pivoted_cholesky(
                kernel,
                rows.detach(),
                max_rank=max(rank, min_rank),
                min_rank=min_rank,
                tol=self.tol,
                block_size=self.block_size,
                seed=self.seed,
                centred=centred,
            )

    @torch.no_grad()
    def _with_positive_degrees(self, gram: LowRankGram) -> LowRankGram:
        """Choose more landmarks while the approximation alone makes the degree of a node non-positive."""
        kernel, rows = gram.kernel, gram.rows.detach()
        while gram.landmarks.numel() < gram.num_nodes:
            bad = gram.constant_degrees() <= 0
            if not panels.holds_somewhere(bad):
                break
            first = rows.rows(torch.tensor([panels.first(bad)], device=rows.device))
            if float(panels.total(kernel(first, rows))) <= 0:
                break  # It is so exactly, and the readout will say so.
            panel = self._choose(kernel, rows, 2 * gram.landmarks.numel(), centred=False)
            if panel.landmarks.numel() <= gram.landmarks.numel():
                break  # The matrix has no more: the degree is zero up to rounding.
            gram = LowRankGram(kernel, gram.rows, panel.landmarks, panel)
        return gram

    def __repr__(self) -> str:
        return f"LowRank(max_rank={self.max_rank}, tol={self.tol:g}, seed={self.seed})"
