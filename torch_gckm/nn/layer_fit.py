"""What a layer knows once it is fitted, beside its embedding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from torch_gckm.gram import Gram, describe_matrix
from torch_gckm.graph.identity import EdgeIdentity
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.nn.extension import Extension, Fit, layer_extension


class LayerFit(Fit):
    """The fit of a :class:`~torch_gckm.GCKMConv` to a graph; the error is by default that of ``gram``."""

    eigenvalues: Tensor  # Those found at the initialisation, [s].
    graph: Tensor  # The identity of the edges.

    def __init__(self, gram: Gram, eigenvalues: Tensor, graph: EdgeIdentity, error: float | None = None) -> None:
        tensors = {"eigenvalues": eigenvalues, "graph": torch.tensor(graph)}
        super().__init__(gram, tensors, gram.error() if error is None else error, eigenvalues.dtype)

    @property
    def edges(self) -> EdgeIdentity:
        """The identity of the edges."""
        return EdgeIdentity(*self.graph.tolist())

    @property
    def description(self) -> str:
        """What represents the kernel matrix, with its rank and error if it is not exact."""
        return describe_matrix(self.edges.num_nodes, self.landmarks.numel() or None, float(self.error))

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
        return self._extension(kernel, h, matrix, partial(layer_extension, h=h))
