"""What a layer knows once it is fitted, beside its embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torch_gckm.gram import Gram, describe_matrix
from torch_gckm.graph.identity import EdgeIdentity
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.nn.extension import Extension, layer_extension
from torch_gckm.nn.record import Record


class _Extended(NamedTuple):
    """An extension, and the kernel and embedding that it belongs to."""

    kernel: tuple[object, ...]
    h: Tensor
    extension: Extension


class LayerFit(Record):
    """The fit of a :class:`~torch_gckm.GCKMConv` to a graph.

    Args:
        gram: The kernel matrix of the features.
        eigenvalues: The eigenvalues found at the initialisation, ``[s]``.
        graph: The identity of the edges.
        error: The error of the kernel matrix; by default that of ``gram``.

    Attributes:
        eigenvalues: The eigenvalues found at the initialisation, ``[s]``.
        landmarks: The landmarks of the kernel matrix, ``[m]``; empty if it is exact.
        graph: The identity of the edges as a tensor.
        error: The error of the kernel matrix.
        gram: The kernel matrix itself, for the next :meth:`~torch_gckm.GCKMConv.loss`; copies do without.
    """

    eigenvalues: Tensor
    landmarks: Tensor
    graph: Tensor
    error: Tensor

    def __init__(self, gram: Gram, eigenvalues: Tensor, graph: EdgeIdentity, error: float | None = None) -> None:
        marks = torch.empty(0, dtype=torch.long) if gram.landmarks is None else gram.landmarks
        number = torch.tensor(gram.error() if error is None else error, dtype=eigenvalues.dtype)
        tensors = {"eigenvalues": eigenvalues, "landmarks": marks, "graph": torch.tensor(graph), "error": number}
        super().__init__(tensors, gram.rows.detach().tensors(gram.kernel.views))
        self.gram: Gram | None = gram
        self._kernel: tuple[object, ...] | None = gram.kernel.key()
        self._extended: _Extended | None = None

    @property
    def edges(self) -> EdgeIdentity:
        """The identity of the edges."""
        return EdgeIdentity(*self.graph.tolist())

    @property
    def known_landmarks(self) -> Tensor | None:
        """The landmarks to use again, ``None`` if the matrix is exact."""
        return self.landmarks if self.landmarks.numel() else None

    @property
    def description(self) -> str:
        """What represents the kernel matrix, with its rank and error if it is not exact."""
        rank = self.landmarks.numel() or None
        return describe_matrix(self.edges.num_nodes, rank, float(self.error))

    def matrix_of(self, kernel: Kernel, rows: Rows) -> Gram | None:
        """The kernel matrix of the fit, if these are its features and the kernel has not changed."""
        gram = self.gram
        if gram is None or kernel.is_learned or not gram.rows.same_as(rows) or self._kernel != kernel.key():
            return None
        return gram

    def moved(self, gram: Gram) -> LayerFit:
        """The same fit on the kernel matrix of other features, as they are after a step of training."""
        return LayerFit(gram, self.eigenvalues, self.edges, float(self.error))

    def extension(self, kernel: Kernel, h: Tensor, matrix: Callable[[Rows], Gram]) -> Extension:
        """What the fit predicts for any node, seen or new; made once for an embedding and a kernel."""
        known = self._extended
        if known is None or known.kernel != kernel.key() or not torch.equal(known.h, h):
            with torch.no_grad():
                rows = self.rows()
                made = layer_extension(matrix(rows.to(torch.float64)), rows, h)
            self._extended = known = _Extended(kernel.key(), h.detach().clone(), made)
        return known.extension

    def forget(self) -> None:
        self.gram = self._kernel = self._extended = None
