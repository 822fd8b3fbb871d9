"""Write a PyG ``Data`` object to a folder of memory-mapped arrays."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.datasets.npy import Array
from torch_gckm.datasets.shard_format import MASKS, check_replaceable
from torch_gckm.datasets.shard_inputs import as_mask, to_numpy
from torch_gckm.datasets.shard_writer import ShardWriter
from torch_gckm.datasets.shards import ShardFolder
from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import canonical_edges, check_features, graph_of, is_directed
from torch_gckm.layouts import from_scipy, to_csr, to_scipy

_NUMBERS = 2**24  # Of a block of rows.
_EDGES = 2**22  # Of a block of edges.


def write_shards(
    data: Data,
    folder: str | os.PathLike[str],
    *,
    partition: Tensor | Array | Sequence[int] | None = None,
    class_names: Sequence[str] | None = None,
    node_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> ShardFolder:
    """Write a graph to a folder, of which every process then reads its own part with :class:`ShardFolder`.

    Features (dense or sparse), edges (``edge_index`` or ``adj_t``), ``edge_weight``, ``y`` and the masks are stored,
    and nothing else. The folder is written whole or not at all. Graphs that do not fit into memory are written with
    :class:`ShardWriter`.

    Args:
        data: The graph.
        folder: The folder to write.
        partition: The part ``[n]`` that every node belongs to, numbered from 0, such as METIS writes it. Nodes are then
            renumbered, so that each part is one contiguous range and :meth:`ShardFolder.ranges` gives the parts; what
            they were numbered before is kept as ``order``. Inside a part nodes keep their order.
        class_names: What the classes are called.
        node_names: What the nodes are called, in the order of ``data``.
        feature_names: What the features are called.
        overwrite: Replace a folder of this format.
        progress: Show progress on the standard error.
    """
    check_replaceable(Path(folder), overwrite)
    x, adjacency, weight = graph_of(data)
    check_features(x)
    edges, weight = canonical_edges(adjacency, weight, x.size(0))
    if node_names is not None and len(node_names) != x.size(0):
        raise InvalidInputError(f"there are {len(node_names)} names for {x.size(0)} nodes")
    parts = None if partition is None else _parts(to_numpy(partition, "partition"), x.size(0))
    order = None if parts is None else torch.from_numpy(np.argsort(parts, kind="stable"))
    with ShardWriter(
        folder, x.size(0), x.size(1), dtype=x.dtype, is_sparse=x.layout != torch.strided,
        weight_dtype=None if weight is None else weight.dtype, order=order,
        directed=is_directed(Data(x=x, edge_index=edges, edge_weight=weight)),
        boundaries=None if parts is None else [0, *np.cumsum(np.bincount(parts)).tolist()],
        class_names=class_names, feature_names=feature_names, overwrite=overwrite, progress=progress,
    ) as writer:  # fmt: skip
        for rows in _blocks_of_rows(x, order):
            writer.append_rows(rows)
        place = None if order is None else torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        for start in range(0, edges.size(1), _EDGES):
            part = slice(start, start + _EDGES)
            ends = edges[:, part].cpu()
            moved = ends if place is None else place[ends]
            writer.append_edges(moved, None if weight is None else weight[part])
        _add_labels(writer, data, order)
        if node_names is not None:
            names = node_names if order is None else [node_names[node] for node in order.tolist()]
            writer.add_node_names(names)
    return ShardFolder(folder)


def _add_labels(writer: ShardWriter, data: Data, order: Tensor | None) -> None:
    for name in ("y", *MASKS):
        if data.get(name) is None:
            continue
        values = to_numpy(data[name], name)
        values = values if name == "y" else as_mask(values, writer.num_nodes, name)
        is_moved = values.shape[:1] == (writer.num_nodes,)  # Else it is refused.
        writer.add(name, values[order.numpy()] if order is not None and is_moved else values)


def _parts(parts: Array, num_nodes: int) -> Array:
    """The part of every node, checked."""
    if parts.shape != (num_nodes,) or parts.dtype.kind not in "iu":
        found = f"{parts.dtype} {parts.shape}"
        raise InvalidInputError(f"'partition' must hold a whole number for each of the {num_nodes} nodes, got {found}")
    low, high = int(parts.min()), int(parts.max())
    if low < 0 or high >= num_nodes:
        raise InvalidInputError(f"'partition' names parts {low} to {high} of {num_nodes} nodes; number them from 0")
    empty = np.flatnonzero(np.bincount(parts) == 0)
    if empty.size:
        hint = "number the parts without gaps"
        raise InvalidInputError(f"'partition' puts no node into part {int(empty[0])} of {high + 1}; {hint}")
    return parts.astype(np.int64)


def _blocks_of_rows(x: Tensor, order: Tensor | None) -> Iterator[Tensor]:
    """The rows of a matrix in order, in blocks of the same layout."""
    size = max(1, _NUMBERS // max(1, x.size(1)))
    sparse = None if x.layout == torch.strided else to_scipy(to_csr(x.detach().cpu()))
    for start in range(0, x.size(0), size):
        rows = slice(start, start + size) if order is None else order[start : start + size]
        yield x[rows] if sparse is None else from_scipy(sparse[rows if isinstance(rows, slice) else rows.numpy()])
