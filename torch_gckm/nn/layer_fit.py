"""What a layer knows once it is fitted, beside its dual variables."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.gram import Gram
from torch_gckm.graph.topology import EdgeIdentity
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.nn.fits import Fit

_DIAGONAL = 1e-5  # Rounding of a matrix of eigenvalues, relative to the largest.


class LayerFit(Fit):
    """The fit of a :class:`~torch_gckm.GCKMConv` to a graph; the error is by default that of ``gram``."""

    eigenvalues: Tensor  # Those found at the initialisation, [s].
    scale: Tensor  # The factors of the embedding's columns in the layer's output, [s].
    graph: Tensor  # The identity of the edges.
    channels: Tensor  # How many were asked for; of a matrix of low rank there are fewer.

    def __init__(
        self, gram: Gram, eigenvalues: Tensor, scale: Tensor, graph: EdgeIdentity, channels: int,
        error: float | None = None,
    ) -> None:  # fmt: skip
        marks = {"graph": torch.tensor(graph), "channels": torch.tensor(channels)}
        tensors = {"eigenvalues": eigenvalues, "scale": scale, **marks}
        super().__init__(gram, tensors, gram.error() if error is None else error, eigenvalues.dtype)

    @property
    def edges(self) -> EdgeIdentity:
        """The identity of the edges."""
        return EdgeIdentity(*self.graph.tolist())

    def matrix_of(self, kernel: Kernel, rows: Rows) -> Gram | None:
        """The kernel matrix of the fit, if these are its features and the kernel has not changed."""
        gram = self.gram
        if gram is None or kernel.is_learned or not gram.rows.same_as(rows) or self._kernel != kernel.key():
            return None
        return gram

    def moved(self, gram: Gram) -> LayerFit:
        """The same fit on the kernel matrix of other features, as they are after a step of training."""
        return LayerFit(gram, self.eigenvalues, self.scale, self.edges, int(self.channels), float(self.error))

    def _extend(self, gram: Gram, of: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        r"""The out-of-sample map :math:`(K_{new} H_c - \frac1n 1 1' K H_c) (H' K_c H)^{-1}`, times the scale."""
        over = self.partition
        centred = panels.centred(of, over)
        product = gram.matmul(centred)
        spectrum, values = panels.cross(centred, product, over), self.eigenvalues.double()
        nodes, weights = gram.representer(centred)
        mean = panels.column_means(product, over).unsqueeze(0)
        # At kernel PCA the matrix is diagonal up to rounding, which must not mix with small eigenvalues.
        if float((spectrum - values.diag()).abs().max()) < _DIAGONAL * float(values.abs().max()):
            turned, offset = weights / values, mean / values
        else:
            turned, offset = (torch.linalg.solve(spectrum, right, left=False) for right in (weights, mean))
        scale = self.scale.double()
        return nodes, turned * scale, -offset[0] * scale


def spectral_scale(eigenvalues: Tensor, num_nodes: int, power: float) -> Tensor:
    r"""The factors :math:`(\lambda / \lambda_1)^{power} \sqrt n` of an embedding's columns; ones for power 0."""
    if power == 0:
        return torch.ones_like(eigenvalues)
    values = eigenvalues.double().clamp(min=0.0)
    return ((values / values.max().clamp(min=1e-300)).pow(power) * num_nodes**0.5).to(eigenvalues.dtype)
