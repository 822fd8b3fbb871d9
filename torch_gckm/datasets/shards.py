"""A graph in a folder of memory-mapped arrays, of which every process reads its own part."""

import os
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
import torch.distributed as dist
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.datasets.npy import Array, NpyFile
from torch_gckm.datasets.shard_format import IN_FILES, MASKS, META, OUT_FILES, ShardMeta
from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import ShardedGraph, processes_of
from torch_gckm.layouts import from_scipy
from torch_gckm.memory import require_memory


class ShardFolder:
    """A graph that :func:`write_shards` or :class:`ShardWriter` wrote to a folder.

    Opening it reads the headers of its files only. Any number of processes may read it at the same time, each a range
    of nodes of its own:

    .. code-block:: python

        folder = ShardFolder("graph")
        start, stop = folder.ranges(world_size)[rank]
        part = folder.read(start, stop)  # x, y and masks of these nodes, all edges whose target is one of them

    The folder holds ``meta.json`` and arrays as ``.npy`` files. Nodes are rows:

    - ``x`` ``[n, d]``; sparse features in CSR form, ``x_indptr`` ``[n + 1]``, ``x_indices``, ``x_data``;
    - ``edge_indptr`` ``[n + 1]``, ``edge_sources`` ``[E]``, ``edge_weights`` ``[E]``: the edges by their targets, in
      CSR form; of a directed graph also ``out_indptr``, ``out_targets``, ``out_weights``, by their sources;
    - ``y``, ``train_mask``, ``val_mask``, ``test_mask``, as far as they were given;
    - ``order`` ``[n]``: the number that every node had before a partition moved it; ``boundaries`` ``[parts + 1]``:
      where the parts begin, and the number of nodes;
    - ``names_text``, ``names_indptr`` ``[n + 1]``: the names of the nodes, in UTF-8, and where they begin.

    Args:
        folder: The folder.

    Attributes:
        num_nodes: The number of nodes.
        num_features: The number of features of a node.
        num_edges: The number of edges, each direction counted.
        num_classes: The number of classes; ``None`` if labels are not classes, or absent.
        is_sparse: Whether features are sparse.
        is_directed: Whether some edge is there one way only, so that edges are also stored by their sources.
        is_weighted: Whether edges have weights.
        masks: The masks that there are.
        class_names: What the classes are called, if it is known.
        feature_names: What the features are called, if it is known.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._meta = ShardMeta.read(self.folder)
        self._arrays = self._meta.open_arrays(self.folder)
        self.num_nodes, self.num_features = self._meta.num_nodes, self._meta.num_features
        self.num_edges, self.num_classes = self._meta.num_edges, self._meta.num_classes
        self.is_sparse, self.is_directed = self._meta.is_sparse, self._meta.is_directed
        self.is_weighted, self.masks = self._meta.is_weighted, tuple(self._meta.masks)
        self.class_names, self.feature_names = self._meta.class_names, self._meta.feature_names

    @property
    def dtype(self) -> torch.dtype:
        """The type of the features."""
        return torch.from_numpy(np.empty(0, self._meta.dtype)).dtype

    @property
    def has_labels(self) -> bool:
        """Whether there are labels ``y``."""
        return "y" in self._arrays

    @property
    def order(self) -> Tensor | None:
        """The number ``[n]`` that every node had before a partition moved it; ``None`` if none was moved."""
        return torch.from_numpy(self._arrays["order"].read()).long() if "order" in self._arrays else None

    @cached_property
    def boundaries(self) -> list[int] | None:
        """Where the parts of the partition begin, and the number of nodes; ``None`` without a partition."""
        if "boundaries" not in self._arrays:
            return None
        found: list[int] = self._arrays["boundaries"].read().tolist()
        is_rising = all(start < stop for start, stop in pairwise(found))
        if len(found) < 2 or found[0] != 0 or found[-1] != self.num_nodes or not is_rising:
            raise self._damaged("boundaries")
        return found

    def ranges(self, count: int) -> list[tuple[int, int]]:
        """One contiguous range of nodes ``(start, stop)`` for each of ``count`` processes.

        They are the parts of the partition if the folder has one of so many parts; else each process has
        ``ceil(n / count)`` nodes, and the last one what is left. No range is empty.
        """
        if count < 1:
            raise InvalidInputError(f"the number of ranges must be at least 1, got {count}")
        bounds = self.boundaries
        if bounds is None or len(bounds) != count + 1:
            size = -(-self.num_nodes // count)
            filled = -(-self.num_nodes // size)
            if filled < count:
                hint = f"{filled} ranges of up to {size} nodes hold them all; use at most {filled} processes"
                raise InvalidInputError(f"{self.num_nodes} nodes cannot be spread over {count} processes: {hint}")
            bounds = [min(number * size, self.num_nodes) for number in range(count + 1)]
        return list(pairwise(bounds))

    def read(self, start: int = 0, stop: int | None = None, *, mmap: bool = False) -> Data:
        """The nodes from ``start`` to ``stop``, by default all, and their edges.

        ``edge_index`` ``[2, E_local]`` holds the edges whose target is one of these nodes, by the numbers that nodes
        have in the whole graph; ``edge_weight`` their weights. Of a directed graph, ``out_edge_index`` and
        ``out_edge_weight`` are the edges whose source is one of these nodes. ``x`` ``[stop - start, d]``, dense or a
        sparse CSR tensor, ``y``, masks and ``order`` are those of these nodes. Memory is used for this part only.

        Args:
            start: The first node.
            stop: One more than the last node.
            mmap: Leave dense features in their file: they are read where they are used, and writing to them does not
                change the file.
        """
        stop = self.num_nodes if stop is None else stop
        if not 0 <= start < stop <= self.num_nodes:
            raise InvalidInputError(f"nodes {start} to {stop} are no range of the {self.num_nodes} nodes")
        self._require_memory(start, stop, mmap)
        data = Data(x=self._features(start, stop, mmap))
        data.edge_index, data.edge_weight = self._edges(IN_FILES, start, stop)
        if self.is_directed:
            ends, data.out_edge_weight = self._edges(OUT_FILES, start, stop)
            data.out_edge_index = ends.flip(0)
        for name in ("y", *MASKS, "order"):
            if name in self._arrays:
                data[name] = torch.from_numpy(self._arrays[name].read(start, stop))
        return data

    def node_names(self, start: int = 0, stop: int | None = None) -> list[str] | None:
        """The names of the nodes from ``start`` to ``stop``, by default all; ``None`` if they have none."""
        if "names_text" not in self._arrays:
            return None
        begins = self._begins("names_indptr", "names_text", start, self.num_nodes if stop is None else stop)
        text = self._arrays["names_text"].read(int(begins[0]), int(begins[-1])).tobytes()
        cuts = (begins - begins[0]).tolist()
        try:
            return [text[first:last].decode() for first, last in pairwise(cuts)]
        except UnicodeDecodeError as error:
            raise self._damaged("names_text") from error

    def _require_memory(self, start: int, stop: int, mmap: bool) -> None:
        """Raise if what is to be read does not fit into memory."""
        size = 0
        if not (mmap or self.is_sparse):
            size += (stop - start) * self.num_features * self._arrays["x"].dtype.itemsize
        for files in (IN_FILES, OUT_FILES) if self.is_directed else (IN_FILES,):
            begins = self._begins(files[0], files[1], start, stop)
            size += 24 * int(begins[-1] - begins[0])
        hint = "read fewer nodes at once" if mmap else "read fewer nodes at once, or with mmap=True"
        require_memory(size, f"reading {stop - start} nodes of '{self.folder}'", torch.device("cpu"), hint)

    def _features(self, start: int, stop: int, mmap: bool) -> Tensor:
        if not self.is_sparse:
            rows = self._arrays["x"].mapped()[start:stop] if mmap else self._arrays["x"].read(start, stop)
            return torch.from_numpy(rows)
        begins = self._begins("x_indptr", "x_indices", start, stop)
        places, values = (self._arrays[name].read(*begins[[0, -1]].tolist()) for name in ("x_indices", "x_data"))
        try:
            shape = (stop - start, self.num_features)
            matrix = scipy.sparse.csr_matrix((values, places, begins - begins[0]), shape=shape)
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise self._damaged("x_indices") from error
        return from_scipy(matrix)

    def _edges(self, files: tuple[str, str, str], start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """The edges at these nodes, the other end first, and their weights."""
        begins = self._begins(files[0], files[1], start, stop)
        first, last = int(begins[0]), int(begins[-1])
        edges = np.empty((2, last - first), np.int64)
        edges[0] = self._arrays[files[1]].read(first, last)
        edges[1] = np.repeat(np.arange(start, stop), np.diff(begins))
        if edges.size and not 0 <= edges[0].min() <= edges[0].max() < self.num_nodes:
            raise self._damaged(files[1])
        weight = torch.from_numpy(self._arrays[files[2]].read(first, last)) if self.is_weighted else None
        return torch.from_numpy(edges), weight

    def _begins(self, name: str, of: str, start: int, stop: int) -> Array:
        """Where the entries of rows begin in another array, and where the last ones end."""
        begins = self._arrays[name].read(start, stop + 1)
        if begins[0] < 0 or begins[-1] > self._arrays[of].shape[0] or bool((np.diff(begins) < 0).any()):
            raise self._damaged(name)
        return begins

    def _damaged(self, name: str) -> InvalidInputError:
        found: NpyFile = self._arrays[name]
        return InvalidInputError(f"'{found.path}' is damaged: its numbers do not fit {META}; write the folder again")

    def __repr__(self) -> str:
        facts = f"{self.num_nodes} nodes, {self.num_edges} edges, {self.num_features} features"
        return f"ShardFolder('{self.folder}', {facts})"


def read_shard(folder: str | os.PathLike[str], group: dist.ProcessGroup | None = None) -> ShardedGraph:
    """The part of a graph in a folder that this process fits; see :meth:`ShardFolder.ranges`.

    Args:
        folder: The folder, which all processes see.
        group: The processes, by default all of them if ``torch.distributed`` is initialised, else this one alone.
    """
    processes = processes_of(group)
    with processes.agreed():
        opened = ShardFolder(folder)
        meta = (opened.folder / META).read_text()
        if processes.of_first(meta) != meta:
            raise InvalidInputError(f"processes see different graphs in '{folder}'; it must be the same folder for all")
        data = opened.read(*opened.ranges(processes.world)[processes.rank])
        for name in ("out_edge_index", "out_edge_weight"):  # Processes send each other what they need of these.
            data.pop(name, None)
    return ShardedGraph(data, group)
