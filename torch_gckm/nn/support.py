"""The features that a fit rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torch_gckm.kernels import Rows, as_rows


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
