"""Modules whose tensors get their sizes from data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from torch_gckm.cache import LastCall
from torch_gckm.gram import Gram
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.nn.extension import Extension
from torch_gckm.nn.support import Support


class FittedModule(torch.nn.Module):
    """A module with tensors sized by the graph it was fitted on.

    ``load_state_dict`` gives the tensors named in :attr:`fitted_tensors` the
    shapes of what is loaded, so that an unfitted module takes any fitted state.
    """

    fitted_tensors: tuple[str, ...] = ()
    kernel: Kernel
    in_channels: int

    def __init__(self) -> None:
        super().__init__()
        self.support = Support()
        self.fixed: Extension | None = None  # All that a module has that was loaded for new nodes only.
        self._extension: LastCall[Extension] = LastCall()
        self._described: str | None = None

    @property
    def gram_used(self) -> str:
        """What represents the kernel matrix of the fitted nodes, with its rank and error if it is not exact."""
        self._require_fit()
        if self._described is None:
            self._described = self._gram_of(self.support.rows()).describe()
        return self._described

    @property
    def extension(self) -> Extension:
        """What the fit says about any node, seen or new."""
        if self.fixed is not None:
            return self.fixed
        self._require_fit()
        kernel = self.kernel
        tensors = (*self.parameters(recurse=False), *self.buffers(recurse=False), *self.support.buffers())
        key = (*tensors, *kernel.parameters(), *kernel.buffers())
        return self._extension.get(key, self._extend)

    def _extend(self) -> Extension:
        raise NotImplementedError

    def _extension_of(self, gram: Gram, v: Tensor, turn: Callable[[Tensor], Tensor], offset: Tensor) -> Extension:
        """Products of the kernel matrix with ``v``, extended to new nodes and turned; plus a constant."""
        nodes, weights = gram.representer(v)
        rows = self.support.rows()
        tensors = (rows if nodes is None else rows.rows(nodes)).tensors(self.kernel.views)
        return Extension.of(tensors, turn(weights), offset)

    def _gram_of(self, rows: Rows) -> Gram:
        """The kernel matrix of some features."""
        raise NotImplementedError

    def _require_fit(self) -> None:
        raise NotImplementedError

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        self._described = self.fixed = None  # They belong to the state that is replaced.
        for name in self.fitted_tensors:
            loaded = state_dict.get(prefix + name)
            if loaded is not None:
                self._resize(name, loaded.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _resize(self, name: str, shape: torch.Size) -> None:
        tensor: Tensor = getattr(self, name)
        if tensor.shape != shape:
            tensor.data = tensor.new_empty(shape)

    def _store(self, name: str, value: Tensor) -> None:
        """Write a fitted tensor in place, keeping the Parameter or buffer object and its dtype."""
        self.fixed = None  # A module that is fitted speaks for itself.
        with torch.inference_mode(False), torch.no_grad():  # What is stored may be trained later.
            self._resize(name, value.shape)
            getattr(self, name).copy_(value)
