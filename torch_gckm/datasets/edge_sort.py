"""Edges that do not fit into memory, sorted by one of their ends."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from torch_gckm.datasets.npy import Array, NpyFile, NpyWriter, write_array

End = Literal["source", "target"]
_CHUNK = 2**22  # Edges that are looked at together.
_GROUP = 2**23  # Edges that are sorted together, unless one node has more.
_MOST_NODES = 3_000_000_000  # The square of the number must fit into 64 bits.


class EdgeSpool:
    """Edges in a file, in the order in which they were given, to be read back sorted.

    They are sorted by counting: one pass counts the edges of every node, which says where each node's edges belong.
    A second pass puts the edges into groups of consecutive nodes, in a second file, and each group is then sorted in
    memory. Every file is written from its beginning to its end or in long pieces. Memory: 8 bytes per node, and less
    than 1 GB for a group.

    Args:
        folder: Where to put temporary files.
        num_nodes: The number of nodes.
        weight_dtype: The type of edge weights; ``None`` for edges without.
    """

    def __init__(self, folder: Path, num_nodes: int, weight_dtype: Any = None) -> None:
        self.num_nodes, self.num_edges = num_nodes, 0
        self.node_dtype = np.dtype(np.int32 if num_nodes < 2**31 else np.int64)
        fields: list[tuple[str, Any]] = [("source", self.node_dtype), ("target", self.node_dtype)]
        self.weight_dtype = None if weight_dtype is None else np.dtype(weight_dtype)
        self.record = np.dtype(fields if weight_dtype is None else [*fields, ("weight", self.weight_dtype)])
        self._path, self._grouped = folder / "edges.spool", folder / "edges.grouped"
        self._file = self._path.open("wb")

    def append(self, edges: Array, weight: Array | None) -> None:
        """Keep edges ``[2, k]`` and their weights ``[k]``."""
        for start in range(0, edges.shape[1], _CHUNK):
            part = slice(start, start + _CHUNK)
            records = np.empty(edges[0, part].size, self.record)
            records["source"], records["target"] = edges[0, part], edges[1, part]
            if weight is not None:
                records["weight"] = weight[part]
            write_array(self._file, records)
        self.num_edges += edges.shape[1]

    def write_sorted(self, folder: Path, names: tuple[str, str, str], by: End, tick: Callable[[int], Any]) -> None:
        """Write the edges in CSR form: where the edges of every node begin, their other ends, their weights.

        The edges of a node are in the order of their other ends, equal ones in the order in which they were given.

        Args:
            folder: Where to write.
            names: What the three files are called.
            by: The end whose number is that of the row.
            tick: Called with numbers of edges that were looked at, each edge three times in all.
        """
        self._file.flush()
        counts = np.zeros(self.num_nodes + 1, np.int64)
        for chunk in self._chunks():
            np.add.at(counts, chunk[by] + 1, 1)
            tick(len(chunk))
        begins = np.cumsum(counts, out=counts)
        np.save(folder / f"{names[0]}.npy", begins)
        bounds = _groups(begins)
        if len(bounds) == 2:
            path = self._path
            tick(self.num_edges)
        else:
            path = self._group(begins, bounds, by, tick)
        ends = NpyWriter(folder / f"{names[1]}.npy", self.node_dtype)
        weights = None if self.weight_dtype is None else NpyWriter(folder / f"{names[2]}.npy", self.weight_dtype)
        with path.open("rb") as file:
            for first, last in pairwise(bounds):
                records = np.fromfile(file, self.record, int(begins[last] - begins[first]))
                self._sort(records, first, by, ends, weights)
                tick(len(records))
        ends.close()
        if weights is not None:
            weights.close()
        self._grouped.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _chunks(self) -> Iterator[Array]:
        with self._path.open("rb") as file:
            while len(chunk := np.fromfile(file, self.record, _CHUNK)):
                yield chunk

    def _group(self, begins: Array, bounds: list[int], by: End, tick: Callable[[int], Any]) -> Path:
        """Write the edges so that those of a group are together."""
        places = [int(begins[first]) for first in bounds]
        kind = np.uint16 if len(bounds) < 2**16 else np.int64  # Small integers are sorted in linear time.
        with self._grouped.open("wb") as file:
            for chunk in self._chunks():
                group = (np.searchsorted(bounds, chunk[by], side="right") - 1).astype(kind)
                together = chunk[np.argsort(group, kind="stable")]
                cuts = np.cumsum(np.bincount(group, minlength=len(bounds))).tolist()
                for number, (start, stop) in enumerate(zip([0, *cuts], cuts, strict=False)):
                    file.seek(places[number] * self.record.itemsize)
                    write_array(file, together[start:stop])
                    places[number] += stop - start
                tick(len(chunk))
        return self._grouped

    def _sort(self, records: Array, first: int, by: End, ends: NpyWriter, weights: NpyWriter | None) -> None:
        keys = (records[by].astype(np.int64) - first) * self.num_nodes
        keys += records["target" if by == "source" else "source"]
        if weights is None:
            keys.sort()
        else:
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            weights.append(records["weight"][order])
        keys %= self.num_nodes
        ends.append(keys)


def same_arrays(a: NpyFile, b: NpyFile) -> bool:
    """Whether two files hold the same numbers, up to rounding if they are floating-point numbers."""
    if a.shape != b.shape:
        return False
    for start in range(0, a.shape[0], _CHUNK):
        stop = min(start + _CHUNK, a.shape[0])
        x, y = a.read(start, stop), b.read(start, stop)
        if not (np.allclose(x, y, rtol=1e-5, atol=1e-8) if x.dtype.kind == "f" else np.array_equal(x, y)):
            return False
    return True


def check_node_count(num_nodes: int) -> bool:
    """Whether so many nodes can be sorted."""
    return 0 < num_nodes <= _MOST_NODES


def _groups(begins: Array) -> list[int]:
    """The first nodes of groups with so many edges that they can be sorted in memory, and the number of nodes."""
    bounds, num_nodes = [0], len(begins) - 1
    while bounds[-1] < num_nodes:
        most = begins[bounds[-1]] + _GROUP
        last = int(np.searchsorted(begins, most, side="right")) - 1
        bounds.append(min(max(last, bounds[-1] + 1), num_nodes))
    return bounds
