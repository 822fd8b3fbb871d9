"""Modules whose tensors get their sizes from data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torch_gckm.gram import Gram
from torch_gckm.kernels import Rows, as_rows


class FittedModule(torch.nn.Module):
    """A module with tensors sized by the graph it was fitted on.

    ``load_state_dict`` gives the tensors named in :attr:`fitted_tensors` the
    shapes of what is loaded, so that an unfitted module takes any fitted state.
    """

    fitted_tensors: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.support = Support()
        self._described: str | None = None

    @property
    def gram_used(self) -> str:
        """What represents the kernel matrix of the fitted nodes, with its rank and error if it is not exact."""
        self._require_fit()
        if self._described is None:
            self._described = self._gram_of(self.support.rows()).describe()
        return self._described

    def _gram_of(self, rows: Rows) -> Gram:
        """The kernel matrix of some features."""
        raise NotImplementedError

    def _require_fit(self) -> None:
        raise NotImplementedError

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        self._described = None  # It belongs to the state that is replaced.
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
        with torch.inference_mode(False), torch.no_grad():  # What is stored may be trained later.
            self._resize(name, value.shape)
            getattr(self, name).copy_(value)


class Support(torch.nn.Module):
    """The features of the nodes that a layer was fitted on, one buffer a view."""

    prefix = "view_"  # A view may have any name; a buffer must not clash with a method.

    def set(self, tensors: dict[str, Tensor]) -> None:
        """Replace the stored views."""
        for name in list(self._buffers):
            del self._buffers[name]
        with torch.inference_mode(False), torch.no_grad():
            for name, tensor in tensors.items():
                kept = tensor.clone() if tensor.is_inference() else tensor.detach()
                self.register_buffer(self.prefix + name, kept)

    def rows(self) -> Rows:
        """The stored views as features."""
        views = {name.removeprefix(self.prefix): b for name, b in self._buffers.items() if b is not None}
        return as_rows(views["h"] if set(views) == {"h"} else views)

    def __deepcopy__(self, memo: dict[int, Any]) -> Support:
        """A copy; torch cannot copy sparse CSR tensors deeply."""
        copied = Support().train(self.training)
        copied.set({name.removeprefix(self.prefix): b.clone() for name, b in self._buffers.items() if b is not None})
        memo[id(self)] = copied
        return copied

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored yet."""
        return not self._buffers

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        like = next(iter(self._buffers.values()), None)
        tensors = {
            key.removeprefix(prefix + self.prefix): value.clone() if like is None else value.to(like, copy=True)
            for key, value in state_dict.items()
            if key.startswith(prefix + self.prefix)
        }
        self.set(tensors)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}: {tuple(b.shape)}" for name, b in self._buffers.items() if b is not None)
