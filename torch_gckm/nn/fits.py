"""What layers and readouts alike know once they are fitted, beside their dual variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_gckm.gram import Gram, describe_matrix
from torch_gckm.kernels import Kernel, Rows, as_rows
from torch_gckm.nn.extension import Extension, Record, resize


class _Extended(NamedTuple):
    """An extension, and the kernel and the embedding or regularisation that it belongs to."""

    kernel: tuple[object, ...]
    of: Tensor
    extension: Extension


class Fit(Record):
    """What a fitted layer or readout keeps: tensors of its own, the features, and what is known of the kernel matrix.

    ``landmarks``, ``[m]``, are empty if the matrix is exact. The matrix itself, ``gram``, serves the next loss or
    solve; copies do without.
    """

    landmarks: Tensor
    error: Tensor

    def __init__(self, gram: Gram, tensors: Mapping[str, Tensor], error: float, dtype: torch.dtype) -> None:
        marks = torch.empty(0, dtype=torch.long) if gram.landmarks is None else gram.landmarks
        matrix = {"landmarks": marks, "error": torch.tensor(error, dtype=dtype)}
        super().__init__({**tensors, **matrix}, gram.rows.detach().tensors(gram.kernel.views))
        self.partition = gram.partition
        self.gram: Gram | None = gram
        self._kernel: tuple[object, ...] | None = gram.kernel.key()
        self._extended: _Extended | None = None

    @property
    def known_landmarks(self) -> Tensor | None:
        """The landmarks to use again, ``None`` if the matrix is exact."""
        return self.landmarks if self.landmarks.numel() else None

    @property
    def description(self) -> str:
        """What represents the kernel matrix, with its rank and error if it is not exact."""
        num_nodes = self.partition.all_rows(next(iter(self.views.values())).size(0))
        return describe_matrix(num_nodes, self.landmarks.numel() or None, float(self.error))

    def is_of(self, kernel: Kernel) -> bool:
        """Whether the matrix is one of this kernel as it is now."""
        return self._kernel == kernel.key()

    def forget(self) -> None:
        self.gram = self._kernel = self._extended = None

    def extension(self, kernel: Kernel, of: Tensor, matrix: Callable[[Rows], Gram]) -> Extension:
        """What the fit predicts for any node, seen or new; made once for a kernel and the embedding or ``eta``."""
        known = self._extended
        is_known = known is not None and known.kernel == kernel.key() and torch.equal(known.of, of)
        if not self.partition.processes.everywhere(is_known) or known is None:
            with torch.no_grad():
                rows = self.rows()
                gram = matrix(rows.to(torch.float64))
                nodes, weights, offset = self._extend(gram, of.detach().double())
                views = (rows if nodes is None else rows.rows(nodes)).tensors(gram.kernel.views)
            known = _Extended(kernel.key(), of.detach().clone(), Extension(views, weights, offset))
            self._extended = known
        return known.extension

    def _extend(self, gram: Gram, of: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """Nodes, ``None`` for all, weights of kernel values with them, and an offset."""
        raise NotImplementedError


class FittedModule(torch.nn.Module):
    """A fitted layer or readout: its dual variables ``h`` and one ``fitted``, which is replaced as a whole."""

    h: torch.nn.Parameter
    fitted: Any
    kind_of_fit: type[Fit]

    @classmethod
    def names_over_nodes(cls) -> list[str]:
        """The entries of a state dict with a row per node, except the features of the fit."""
        return ["h", *(f"fitted.{name}" for name in cls.kind_of_fit.over_nodes)]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        loaded = state_dict.get(prefix + "h")
        if loaded is not None:  # The fit takes the sizes of what is loaded.
            resize(self.h, loaded.shape)
            before, self.fitted = self.fitted, self.kind_of_fit.from_state(state_dict, prefix + "fitted.", self.h)
            if before is not None and self.fitted is not None:  # Of the same nodes, such as after a step of training.
                self.fitted.partition = before.partition
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def own_rows(rows: Rows, views: Sequence[str]) -> Rows:
    """A copy of features, whose owner may write to them; gradients pass through."""
    tensors = {name: tensor.clone() for name, tensor in rows.tensors(views).items()}
    return as_rows(tensors["h"] if set(tensors) == {"h"} else tensors)
