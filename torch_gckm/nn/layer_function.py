"""A fitted layer as a function of the features that it was fitted to."""

import warnings
from typing import Any

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import DetachedInputWarning, ManifoldWarning, OtherFeaturesWarning
from torch_gckm.gram import Gram
from torch_gckm.kernels import Rows
from torch_gckm.manifold import orthogonality_error
from torch_gckm.partition import WHOLE, Partition

_OFF_MANIFOLD = 1e-2  # CayleyAdam stays below 1e-3 with either transform; one step of Adam is usually above.
_OTHER = 1e-3  # A relative difference that no rounding makes.


class _CentredProduct(torch.autograd.Function):
    """``K_c H`` with a constant kernel matrix, which is symmetric: the backward pass is the same product."""

    @staticmethod
    def forward(ctx: Any, gram: Gram, h: Tensor) -> Tensor:
        ctx.gram = gram
        return gram.centred_matmul(h)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, _CentredProduct.apply(ctx.gram, grads[0])


def layer_function(gram: Gram, h: Tensor, eigenvalues: Tensor, scale: Tensor) -> Tensor:
    r""":math:`K_c H \Lambda^{-1}` with columns scaled, ``[n, s]``; differentiable in :math:`H`."""
    product: Tensor = _CentredProduct.apply(gram, h)
    return product * (scale / eigenvalues.clamp(min=torch.finfo(eigenvalues.dtype).tiny))


class CallChecks:
    """What is checked when a fitted layer is called, and what was warned of since the fit: everything once."""

    def __init__(self) -> None:
        self._seen: tuple[int, ...] = ()
        self._warned: set[type[Warning]] = set()

    def embedding(self, h: Tensor, over: Partition) -> None:
        """Warn if ``h`` has left the manifold; looks only where it was written to since the last call."""
        seen = (id(h), h._version, h.data_ptr()) if not h.is_inference() else ()
        if ManifoldWarning in self._warned or (seen and seen == self._seen):
            return
        self._seen = seen
        error = float(orthogonality_error(h, over))
        if not error <= _OFF_MANIFOLD:
            self._warn(
                ManifoldWarning,
                f"the embedding 'h' of a GCKMConv is no longer orthonormal: |H'H - I| = {error:.3g}. An optimiser "
                "other than CayleyAdam has changed it: use CayleyAdam(model.parameters()) for the whole model, or "
                "conv.h.requires_grad_(False) to keep the layer as it was fitted; conv.initialize(x, edge_index) "
                "fits it again",
            )

    def features(self, fitted: Rows, given: Rows, views: tuple[str, ...]) -> None:
        """Warn if a layer is given other features than those that it was fitted to."""
        if OtherFeaturesWarning not in self._warned and not _are_alike(fitted, given, views):
            self._warn(
                OtherFeaturesWarning,
                "a GCKMConv was fitted to other node features than it is called with, and returns the embedding of "
                "those that it was fitted to. Use conv.transform(x, edge_index) for other features, or "
                "conv.initialize(x, edge_index) to fit again; put dropout above the layer, not below it",
            )

    def explanation(self) -> None:
        """Warn that what explains a network sees nothing of this layer."""
        if DetachedInputWarning not in self._warned:
            self._warn(
                DetachedInputWarning,
                "a fitted GCKMConv computes neither with the edges nor with the features of a call, so an explanation "
                "tells which edges matter to the other layers only",
            )

    def features_are_trained(self) -> None:
        """What is below the layer is trained through its loss: features change at every step, and should."""
        self._warned.add(OtherFeaturesWarning)

    def _warn(self, category: type[Warning], message: str) -> None:
        self._warned.add(category)
        warnings.warn(message, category, stacklevel=4)


def _are_alike(a: Rows, b: Rows, views: tuple[str, ...]) -> bool:
    """Whether features are the same up to rounding, by the norms of the rows and their mean."""
    for name in views:
        first, second = a.view(name), b.view(name)
        if first.num_columns != second.num_columns:
            return False
        for x, y, over in ((first.sq_norm(), second.sq_norm(), a.partition), (first.mean(), second.mean(), WHOLE)):
            if not bool(panels.largest((x - y).abs(), over) <= _OTHER * panels.largest(x.abs(), over)):
                return False
    return True
