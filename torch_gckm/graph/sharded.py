"""A graph of which every process has a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError, InvalidLabelError
from torch_gckm.files import PathLike
from torch_gckm.graph.edges import canonical_edges, graph_of
from torch_gckm.layouts import to_csr
from torch_gckm.partition import WHOLE, Partition
from torch_gckm.processes import Processes

_OVER_EDGES = ("edge_index", "edge_weight", "edge_attr", "adj_t")


class ShardedGraph(Data):  # type: ignore[misc]
    """The part of a graph that one of several processes has: a contiguous range of nodes, and the edges to them.

    Wherever the package takes a ``Data`` object to fit to, it takes this one, in all processes at a time. Features,
    labels and masks are those of the nodes of this process, and so are the scores and embeddings that come back; nodes
    are numbered through all processes in ``edge_index`` and in errors. Masks are boolean or weights, not node numbers.

    .. code-block:: python

        torch.distributed.init_process_group("gloo")          # Started by torchrun.
        graph = read_shard("folder")                          # From torch_gckm.datasets.
        Trainer(model).fit(graph)

    Args:
        data: Features, labels and masks of the nodes of this process. In ``edge_index``, ``[2, E]``, targets are
            its own nodes, sources any ones.
        group: The processes, by default all of them if ``torch.distributed`` is initialised, else this one alone.
    """

    partition: Partition

    def __init__(self, data: Data | None = None, group: dist.ProcessGroup | None = None) -> None:
        super().__init__()
        self.__dict__["partition"] = WHOLE
        if data is None:  # PyG makes copies so.
            return
        processes = processes_of(group)
        with processes.agreed():
            x = graph_of(data)[0]
            partition = Partition.of(x.size(0), processes)
            for name, value in data.to_dict().items():
                self[name] = value
            self.__dict__["partition"] = partition
            self._check_masks()

    @classmethod
    def cut(cls, data: Data, group: dist.ProcessGroup | None = None) -> ShardedGraph:
        """This process's part of a graph that all processes have: nodes in ranges of the same size, up to the last."""
        processes = processes_of(group)
        with processes.agreed():
            x, adjacency, weight = graph_of(data)
            count = x.size(0)
            step = -(-count // processes.world)
            start, stop = min(processes.rank * step, count), min((processes.rank + 1) * step, count)
            edges, weight = canonical_edges(adjacency, weight, count)
            is_own = (edges[1] >= start) & (edges[1] < stop)
            part = Data(edge_index=edges[:, is_own], edge_weight=None if weight is None else weight[is_own])
            for name, value in data.to_dict().items():
                if name in _OVER_EDGES:
                    continue
                is_of_nodes = isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == count
                part[name] = _rows(value, start, stop) if is_of_nodes else value
            if stop == start:
                raise InvalidInputError(f"{count} nodes cannot be spread over {processes.world} processes")
        return cls(part, group)

    def _check_masks(self) -> None:
        """Refuse masks that name nodes by numbers."""
        for name in ("train_mask", "val_mask", "test_mask"):
            mask = self.get(name)
            if mask is not None and not mask.is_floating_point() and mask.dtype not in (torch.bool, torch.uint8):
                raise InvalidLabelError(f"'{name}' of a part of a graph must be boolean or hold weights, not numbers")

    def collect(self, x: Tensor) -> Tensor:
        """Rows of all processes in the order of the nodes, such as predictions; it takes memory for all of them."""
        return self.partition.collect(x)

    def write(self, x: Tensor, path: PathLike) -> None:
        """Write rows of all processes, such as scores, to one ``.npy`` file, in the order of the nodes.

        Every process writes its own rows, on a file system that all of them see; the file is there whole or not at all.
        """
        over, values = self.partition, x.detach().cpu().numpy()
        partial = Path(f"{path}.partial")
        with over.agreed():
            if x.size(0) != self.x.size(0):
                raise InvalidInputError(f"there are {x.size(0)} rows for the {self.x.size(0)} nodes of this process")
            if over.rank == 0:
                shape = (over.all_rows(x.size(0)), *x.shape[1:])
                np.lib.format.open_memmap(partial, "w+", values.dtype, shape).flush()
            over.processes.barrier()
            rows = np.lib.format.open_memmap(partial, "r+")
            rows[over.start : over.start + x.size(0)] = values
            rows.flush()
            over.processes.barrier()
            if over.rank == 0:
                partial.replace(path)


def processes_of(group: dist.ProcessGroup | None = None) -> Processes:
    """The processes of a group, by default all that ``torch.distributed`` knows, or this one alone."""
    if group is None and dist.is_available() and dist.is_initialized():
        group = dist.group.WORLD
    return Processes(group)


def _rows(x: Tensor, start: int, stop: int) -> Tensor:
    """A range of the rows of a matrix, dense or sparse."""
    if x.layout == torch.strided:
        return x[start:stop].clone()
    csr = to_csr(x)
    pointers: Any = csr.crow_indices()
    first, last = int(pointers[start]), int(pointers[stop])
    parts = (pointers[start : stop + 1] - first, csr.col_indices()[first:last], csr.values()[first:last])
    return torch.sparse_csr_tensor(*parts, size=(stop - start, x.size(1)), check_invariants=False)
