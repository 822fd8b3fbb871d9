"""Tensors that a fit keeps, and functions of nodes that it has not seen."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from tqdm import tqdm

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels import Kernel, Rows, as_rows
from torch_gckm.layouts import to_copyable, to_csr
from torch_gckm.partition import WHOLE, Partition

R = TypeVar("R", bound="Record")
VIEW = "view_"  # A view may have any name; a buffer must not clash with a method.


class Record(torch.nn.Module):
    """Named tensors, and the features of some nodes, one tensor per view.

    A module, so that its tensors follow the layer that holds it to other devices, types, copies and state dicts. It is
    never written to: a new fit makes a new record, which replaces the old one as a whole.
    """

    partition: Partition = WHOLE  # Whose features these are.
    over_nodes: tuple[str, ...] = ()  # Tensors with a row per node, beside the features.

    def __init__(self, tensors: Mapping[str, Tensor], views: Mapping[str, Tensor]) -> None:
        super().__init__()
        with torch.inference_mode(False), torch.no_grad():  # What is kept may be trained with later.
            for name, tensor in {**tensors, **{VIEW + name: view for name, view in views.items()}}.items():
                self.register_buffer(name, tensor.clone() if tensor.is_inference() else tensor.detach())

    @classmethod
    def from_state(cls: type[R], state: Mapping[str, Any], prefix: str, like: Tensor | None = None) -> R | None:
        """From the entries of a state dict that begin with ``prefix``; ``None`` if there are none."""
        found = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
        if not found:
            return None
        record = cls.__new__(cls)
        found = {name: to_csr(value) if value.is_sparse else value for name, value in found.items()}
        Record.__init__(record, {name: _cast(value, like) for name, value in found.items()}, {})
        record.forget()
        return record

    @property
    def views(self) -> dict[str, Tensor]:
        """The features by view."""
        buffers = self._buffers.items()
        return {name.removeprefix(VIEW): b for name, b in buffers if b is not None and name.startswith(VIEW)}

    def rows(self) -> Rows:
        """The features as kernels see them."""
        views = self.views
        return as_rows(views["h"] if set(views) == {"h"} else views, self.partition)

    def forget(self) -> None:
        """Drop what belongs to one process and one type, and can be computed again."""

    def _apply(self: R, fn: Any, recurse: bool = True) -> R:
        super()._apply(fn, recurse)
        self.forget()
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """A state dict may be copied deeply, which torch cannot do with sparse CSR tensors, but with COO ones."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in self._buffers:
            destination[prefix + name] = to_copyable(destination[prefix + name])

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the layer that holds it has made it of the state dict."""

    def __deepcopy__(self: R, memo: dict[int, Any]) -> R:
        """A copy; torch cannot copy sparse CSR tensors deeply."""
        copied = type(self).__new__(type(self))
        Record.__init__(copied, {name: b.clone() for name, b in self._buffers.items() if b is not None}, {})
        copied.partition = self.partition
        copied.forget()
        memo[id(self)] = copied
        return copied.train(self.training)

    def __getstate__(self) -> dict[str, Any]:
        self.partition.refuse("pickles of fits are", "use save(path, inductive=True), or Trainer(checkpoint=)")
        kept = type(self).__new__(type(self))
        kept.__dict__.update(self.__dict__)
        kept.forget()
        return kept.__dict__

    def extra_repr(self) -> str:
        return ", ".join(f"{name}: {tuple(b.shape)}" for name, b in self._buffers.items() if b is not None)


def _cast(value: Tensor, like: Tensor | None) -> Tensor:
    if like is None:
        return value.clone()
    return value.to(like.device, like.dtype if value.is_floating_point() else value.dtype, copy=True)


def resize(tensor: Tensor, shape: torch.Size) -> None:
    """Give a Parameter another shape, in place: the object stays the one that optimisers hold."""
    if tensor.shape != shape:
        tensor.data = tensor.new_empty(shape)


def write(parameter: Tensor, value: Tensor) -> None:
    """Write a Parameter in place, whatever its shape was; its type stays."""
    with torch.inference_mode(False), torch.no_grad():  # What is stored may be trained later.
        resize(parameter, value.shape)
        parameter.copy_(value)


def widen(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Double in, double out: what is fitted to features in double precision computes in it."""
    if dtype == torch.float64:
        module.double()


class Extension(Record):
    r"""A function of nodes, made of kernel values with some fitted ones: :math:`f(v) = \sum_s k(v, s) w_s + c`.

    With a low-rank kernel matrix the fitted nodes are its landmarks, so a value costs the same whatever the size
    of the graph that was fitted. It needs nothing else of that graph.
    """

    weights: Tensor  # w, one row per fitted node.
    offset: Tensor  # c.

    def __init__(self, views: Mapping[str, Tensor], weights: Tensor, offset: Tensor) -> None:
        super().__init__({"weights": weights.double(), "offset": offset.double()}, views)

    @torch.no_grad()
    def forward(self, kernel: Kernel, rows: Rows, progress: str | None = None) -> Tensor:
        """The values at some rows, ``[n, c]``, a block of them at a time."""
        marks, weights, offset = self.rows().to(torch.float64), self.weights.double(), self.offset.double()
        result = torch.empty(rows.num_rows, weights.size(1), dtype=rows.dtype, device=rows.device)
        with tqdm(total=rows.num_rows, desc=progress, unit="node", unit_scale=True, disable=progress is None) as bar:
            for block in rows.blocks(max(1, marks.num_rows)):
                part = rows.block(block)
                result[block] = torch.addmm(offset, kernel(part.to(torch.float64), marks), weights)
                bar.update(part.num_rows)
        return result


def check_columns(found: int, expected: int) -> int:
    """The number of features; raise unless it is the expected one, where -1 expects any."""
    if expected not in (-1, found):
        raise InvalidInputError(f"'h' must have shape [n, {expected}], got [n, {found}]")
    return found


def check_known(known: Tensor, fitted: int, num_nodes: int, over: Partition) -> None:
    """Refuse anything but a place of its own for every fitted node."""
    over.refuse("fitted nodes in another graph, 'known=', are")
    is_index = isinstance(known, Tensor) and not known.is_floating_point() and known.dtype != torch.bool
    if not is_index or known.shape != (fitted,):
        raise InvalidInputError(f"'known' must be integers [{fitted}], the place of each fitted node")
    low, high = int(panels.smallest(known)), int(panels.largest(known))
    if not 0 <= low <= high < num_nodes or known.unique().numel() < fitted:
        raise InvalidInputError(f"'known' must name {fitted} different nodes of the {num_nodes} of the new graph")
