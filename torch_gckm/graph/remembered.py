"""The graph of the last call, for layers that are called as PyG's are: ``conv(x, edge_index)``."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_gckm.graph.edges import Adjacency
from torch_gckm.graph.prepared import PreparedGraph, Scaling
from torch_gckm.graph.topology import Topology


class _Call(NamedTuple):
    """The arguments of a call, how they were then, and what was made of them."""

    arguments: tuple[Any, ...]
    stamps: tuple[object, ...]
    graph: PreparedGraph


class RememberedGraph:
    """The one place where a graph is known again by its tensors.

    A tensor counts as the same only while it is the same object and has not been written to through torch. The
    arguments are kept alive, so an identity is never reused. Nothing is kept in inference mode, whose tensors cannot
    be trained with later, or while gradients flow to edge weights, which pass once through what is made of them.
    Copies and pickles start empty. One immutable object is replaced as a whole: threads see the old call or the new.
    """

    def __init__(self) -> None:
        self._last: _Call | None = None

    def get(
        self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None, dtype: torch.dtype
    ) -> PreparedGraph:
        """The graph of these arguments: the remembered one, or another one, whose edges may be the remembered ones."""
        last, arguments = self._last, (x, edge_index, edge_weight, dtype)
        if last is not None and _same(arguments, last):
            return last.graph
        if last is not None and _same(arguments, last, skip=1) and last.graph.num_nodes == x.size(0):
            topology = last.graph.topology
        else:
            topology = Topology(edge_index, edge_weight, x.size(0))
        graph = PreparedGraph(x, topology, Scaling(), dtype)
        self.put(graph, *arguments)
        return graph

    def knows(self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None, dtype: torch.dtype) -> bool:
        """Whether these are the arguments of the last call."""
        last = self._last
        return last is not None and _same((x, edge_index, edge_weight, dtype), last)

    def put(self, graph: PreparedGraph, *arguments: Any) -> None:
        """Remember a graph that was made of these arguments."""
        if not torch.is_inference_mode_enabled() and not graph.topology.is_tracked:
            self._last = _Call(arguments, tuple(map(_stamp, arguments)), graph)

    def __deepcopy__(self, memo: dict[int, Any]) -> RememberedGraph:
        return RememberedGraph()

    def __reduce__(self) -> tuple[type[RememberedGraph], tuple[()]]:
        return RememberedGraph, ()


def _stamp(item: object) -> object:
    """What changes when a tensor is written to, moved or cast in place; a fresh object if that cannot be known."""
    if not isinstance(item, Tensor):
        return item
    if item.is_inference():
        return object()
    pointer = item.data_ptr() if item.layout == torch.strided else 0
    return item._version, item.dtype, item.device, pointer


def _same(arguments: tuple[Any, ...], last: _Call, skip: int = 0) -> bool:
    known = zip(arguments, last.arguments, last.stamps, strict=True)
    return all((a is b or not isinstance(a, Tensor)) and _stamp(a) == stamp for a, b, stamp in list(known)[skip:])
