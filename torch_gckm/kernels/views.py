"""Several views of the same nodes, and the features of a tensor."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError, ViewError
from torch_gckm.kernels.dense import DenseFeatures
from torch_gckm.kernels.features import Features, FeaturesLike, Rows
from torch_gckm.kernels.origin import Index
from torch_gckm.kernels.sparse import SparseFeatures
from torch_gckm.layouts import to_csr


class Views(Rows):
    """Several named feature matrices of the same nodes."""

    def __init__(self, views: Mapping[str, Tensor | Features]) -> None:
        if not views:
            raise InvalidInputError("at least one view is needed")
        self.views = {name: x if isinstance(x, Features) else features_of(x) for name, x in views.items()}
        counts = {name: x.num_rows for name, x in self.views.items()}
        if len(set(counts.values())) > 1:
            raise InvalidInputError(f"views must have the same number of rows, got {counts}")

    _first = property(lambda self: next(iter(self.views.values())))
    num_rows = property(lambda self: self._first.num_rows)
    dtype = property(lambda self: self._first.dtype)
    device = property(lambda self: self._first.device)
    requires_grad = property(lambda self: any(x.requires_grad for x in self.views.values()))
    block_entries = property(lambda self: max(x.block_entries for x in self.views.values()))
    row_entries = property(lambda self: max(x.row_entries for x in self.views.values()))

    def rows(self, index: Index) -> Views:
        return Views({name: x.rows(index) for name, x in self.views.items()})

    def to(self, dtype: torch.dtype) -> Views:
        return Views({name: x.to(dtype) for name, x in self.views.items()})

    def detach(self) -> Views:
        return Views({name: x.detach() for name, x in self.views.items()})

    def fresh_leaves(self) -> Views:
        return Views({name: x.fresh_leaves() for name, x in self.views.items()})

    def inputs(self) -> list[Tensor]:
        return [tensor for x in self.views.values() for tensor in x.inputs()]

    def same_as(self, other: Rows) -> bool:
        return isinstance(other, Views) and self.views == other.views  # Features are compared by identity.

    def view(self, name: str) -> Features:
        if name not in self.views:
            raise ViewError(f"the kernel reads the view '{name}', but the features only have {sorted(self.views)}")
        return self.views[name]


def features_of(x: Tensor) -> Features:
    """A feature matrix as features, in the form that suits its layout."""
    if x.layout == torch.strided:
        return DenseFeatures(x)
    return SparseFeatures(to_csr(x))


def as_rows(x: FeaturesLike) -> Rows:
    """Wrap a tensor (the view ``"h"``) or a mapping of named views; features pass through."""
    if isinstance(x, Rows):
        return x
    return features_of(x) if isinstance(x, Tensor) else Views(x)
