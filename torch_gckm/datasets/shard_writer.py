"""Graphs are written to folders of memory-mapped arrays block by block, so they may be larger than the memory."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from tqdm import tqdm

from torch_gckm.datasets.edge_sort import EdgeSpool, check_node_count, same_arrays
from torch_gckm.datasets.npy import Array, NpyFile, NpyWriter
from torch_gckm.datasets.shard_format import IN_FILES, MASKS, OUT_FILES, ShardMeta, check_replaceable
from torch_gckm.datasets.shard_inputs import (
    Block,
    as_mask,
    check_values,
    checked_boundaries,
    checked_order,
    converted,
    numpy_dtype,
    scipy_csr,
    to_numpy,
)  # fmt: skip
from torch_gckm.datasets.shards import ShardFolder
from torch_gckm.errors import InvalidInputError, InvalidLabelError
from torch_gckm.files import PartialFolder
from torch_gckm.graph import canonical_edges


class ShardWriter:
    """Writes a graph that :class:`ShardFolder` reads, from blocks of rows and of edges.

    The folder appears as a whole at the end of the ``with`` block, or not at all:

    .. code-block:: python

        with ShardWriter("graph", num_nodes=10**7, num_features=64) as writer:
            for x in blocks_of_rows:
                writer.append_rows(x)
            for edge_index in blocks_of_edges:  # In any order.
                writer.append_edges(edge_index)
            writer.add("y", y)
            writer.add("train_mask", train_mask)

    Edges are sorted by counting, in temporary files: up to 24 bytes per edge on the disk, 40 with weights in single
    precision, until the folder is finished. Memory: 8 bytes per node, one block of rows, and less than 1 GB for edges.

    Args:
        folder: The folder to write.
        num_nodes: The number of nodes.
        num_features: The number of features of a node.
        dtype: The type of the features.
        is_sparse: Whether features are sparse.
        weight_dtype: The type of edge weights; ``None`` for edges without weights.
        directed: Whether edges are also stored by their sources, as propagation in other directions needs it. ``None``
            finds out whether some edge is there one way only; ``False`` says that there is none, without a check.
        order: The number ``[n]`` that every row had elsewhere, if rows come in another order.
        boundaries: Where the parts of a partition begin, and the number of nodes.
        class_names: What the classes are called.
        feature_names: What the features are called.
        overwrite: Replace a folder of this format. A folder with anything else in it is never replaced.
        progress: Show progress on the standard error.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        num_nodes: int,
        num_features: int,
        *,
        dtype: torch.dtype = torch.float32,
        is_sparse: bool = False,
        weight_dtype: torch.dtype | None = None,
        directed: bool | None = None,
        order: Tensor | None = None,
        boundaries: Sequence[int] | None = None,
        class_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        overwrite: bool = False,
        progress: bool = False,
    ) -> None:
        if not check_node_count(num_nodes):
            raise InvalidInputError(f"'num_nodes' must be from 1 to 3,000,000,000, got {num_nodes}")
        check_replaceable(Path(folder), overwrite)
        self.num_nodes, self.num_features, self.is_sparse, self.directed = num_nodes, num_features, is_sparse, directed
        self.class_names, self.feature_names = _listed(class_names), _listed(feature_names)
        self.num_classes = None if class_names is None else len(class_names)
        self._folder, self._progress, self._overwrite = Path(folder), progress, overwrite
        self._rows, self._is_finished = 0, False
        self._dtype, self._weight_dtype = numpy_dtype(dtype, "dtype"), weight_dtype
        of_weights = None if weight_dtype is None else numpy_dtype(weight_dtype, "weight_dtype")
        moved = None if order is None else checked_order(to_numpy(order, "order"), num_nodes)
        parts = None if boundaries is None else checked_boundaries(boundaries, num_nodes)
        self._partial = PartialFolder(folder)
        self._path = self._partial.path
        self._spool = EdgeSpool(self._path, num_nodes, of_weights)
        self._writers = self._feature_files()
        self._bar = tqdm(total=num_nodes, desc="rows", unit="node", unit_scale=True, disable=not progress)
        for name, array in (("order", moved), ("boundaries", parts)):
            if array is not None:
                np.save(self._path / f"{name}.npy", array)

    def append_rows(self, x: Any) -> None:
        """Write the features ``[k, d]`` of the next nodes: a tensor of any layout, a NumPy array or a SciPy matrix."""
        is_sparse = scipy.sparse.issparse(x) or (isinstance(x, Tensor) and x.layout != torch.strided)
        if is_sparse != self.is_sparse:
            raise InvalidInputError("'x' must be sparse with is_sparse=True, and dense without")
        block: Any = scipy_csr(x) if is_sparse else to_numpy(x, "x")
        stop = self._rows + block.shape[0]
        if block.ndim != 2 or block.shape[1] != self.num_features or stop > self.num_nodes:
            expected = f"[k, {self.num_features}] with rows for {self.num_nodes - self._rows} nodes at most"
            raise InvalidInputError(f"'x' must have shape {expected}, got {tuple(block.shape)}")
        begins = block.indptr if is_sparse else np.arange(len(block) + 1) * self.num_features
        values = converted(block.data if is_sparse else block, self._dtype)
        check_values(values, begins, self._rows)
        if is_sparse:
            self._writers["x_indptr"].append(block.indptr[1:].astype(np.int64) + self._writers["x_data"].rows)
            self._writers["x_indices"].append(block.indices)
        self._writers["x_data" if is_sparse else "x"].append(values)
        self._rows = stop
        self._bar.update(block.shape[0])

    def append_edges(self, edge_index: Block, edge_weight: Block | None = None) -> None:
        """Write edges ``[2, k]`` (source, target) and their weights ``[k]``."""
        if (edge_weight is None) != (self._weight_dtype is None):
            raise InvalidInputError("'edge_weight' goes with weight_dtype=: give both or neither")
        if edge_weight is not None:
            edge_weight = torch.from_numpy(np.array(to_numpy(edge_weight, "edge_weight"))).to(self._weight_dtype)
        ends = edge_index if isinstance(edge_index, Tensor) else torch.from_numpy(np.array(edge_index))
        edges, weight = canonical_edges(ends, edge_weight, self.num_nodes)
        if (weight is None) != (edge_weight is None):
            raise InvalidInputError("'edge_index' must be an integer tensor [2, k], not a sparse matrix")
        self._spool.append(edges.cpu().numpy(), None if weight is None else weight.numpy())

    def add(self, name: str, values: Block) -> None:
        """Write labels ``"y"``, ``[n]`` or ``[n, p]``, or one of the masks, boolean, as node numbers, or weights."""
        if name not in ("y", *MASKS):
            raise InvalidInputError(f"'{name}' is not stored; choose from y, {', '.join(MASKS)}")
        array = to_numpy(values, name)
        if name != "y":
            array = as_mask(array, self.num_nodes, name)
        if array.ndim not in (1, 2) or len(array) != self.num_nodes:
            raise InvalidLabelError(f"'{name}' must have {self.num_nodes} rows, got shape {array.shape}")
        if name == "y":
            self._count_classes(array)
        np.save(self._path / f"{name}.npy", array)

    def add_node_names(self, names: Sequence[str]) -> None:
        """Write the names of the nodes."""
        if len(names) != self.num_nodes:
            raise InvalidInputError(f"there are {len(names)} names for {self.num_nodes} nodes")
        text = [str(name).encode() for name in names]
        np.save(self._path / "names_indptr.npy", np.cumsum([0, *map(len, text)], dtype=np.int64))
        np.save(self._path / "names_text.npy", np.frombuffer(b"".join(text), np.uint8))

    def finish(self) -> ShardFolder:
        """Sort the edges and give the folder its name; the end of the ``with`` block calls it if nothing else did."""
        if self._is_finished:
            return ShardFolder(self._folder)
        if self._rows != self.num_nodes:
            raise InvalidInputError(f"features of {self._rows} nodes were written, but there are {self.num_nodes}")
        self._bar.close()
        for writer in self._writers.values():
            writer.close()
        is_directed = self._sort_edges()
        arrays = {path.stem: NpyFile.open(path) for path in sorted(self._path.glob("*.npy"))}
        ShardMeta(
            self.num_nodes, self.num_features, self._spool.num_edges, self._dtype.name, self.is_sparse, is_directed,
            self._weight_dtype is not None, [mask for mask in MASKS if mask in arrays], self.num_classes,
            self.class_names, self.feature_names,
            {name: [found.dtype.str, list(found.shape)] for name, found in arrays.items()},
        ).write(self._path)  # fmt: skip
        check_replaceable(self._folder, self._overwrite)  # It may have been written meanwhile.
        self._partial.commit()
        self._is_finished = True
        return ShardFolder(self._folder)

    def close(self) -> None:
        """Remove what was written, unless the folder is finished."""
        self._bar.close()
        for close in (*(writer.close for writer in self._writers.values()), self._spool.close):
            with suppress(OSError):  # A full disk, which was told already.
                close()
        self._partial.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
        except OSError as failure:
            raise self._named(failure) from None
        finally:
            self.close()

    def _named(self, error: OSError) -> OSError:
        """The error of a write, with the name of the folder."""
        is_named = error.filename is not None
        return error if is_named else OSError(error.errno, error.strerror or str(error), str(self._folder))

    def _feature_files(self) -> dict[str, NpyWriter]:
        if not self.is_sparse:
            return {"x": NpyWriter(self._path / "x.npy", self._dtype, self.num_features)}
        kinds = {"x_indptr": np.int64, "x_indices": np.int32 if self.num_features < 2**31 else np.int64}
        writers = {name: NpyWriter(self._path / f"{name}.npy", kind) for name, kind in kinds.items()}
        writers["x_indptr"].append(np.zeros(1, np.int64))
        return {**writers, "x_data": NpyWriter(self._path / "x_data.npy", self._dtype)}

    def _count_classes(self, y: Array) -> None:
        if y.dtype.kind in "iu" and (y.ndim == 1 or y.shape[1] == 1):
            count = max(0, int(y.max()) + 1)
            if self.class_names is not None and count > len(self.class_names):
                raise InvalidLabelError(f"'y' has the class {count - 1}, but {len(self.class_names)} names are given")
            self.num_classes = count if self.class_names is None else len(self.class_names)

    def _sort_edges(self) -> bool:
        """Write the edges by their targets, and by their sources if it is needed; returns whether it is."""
        both = self.directed is not False
        total = (6 if both else 3) * self._spool.num_edges
        with tqdm(total=total, desc="edges", unit="edge", unit_scale=True, disable=not self._progress) as bar:
            self._spool.write_sorted(self._path, IN_FILES, "target", bar.update)
            if both:
                self._spool.write_sorted(self._path, OUT_FILES, "source", bar.update)
        self._spool.close()
        if self.directed is not None:
            return self.directed
        kept = [pair for pair in zip(IN_FILES, OUT_FILES, strict=True) if (self._path / f"{pair[1]}.npy").exists()]
        opened = [[NpyFile.open(self._path / f"{name}.npy") for name in pair] for pair in kept]
        is_directed = not all(same_arrays(there, back) for there, back in opened)
        for _, back in [] if is_directed else opened:
            back.path.unlink()
        return is_directed


def _listed(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else [str(name) for name in names]
