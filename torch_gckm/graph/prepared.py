"""A graph as the layers see it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError, ZeroRowWarning
from torch_gckm.graph.edges import graph_of
from torch_gckm.graph.propagation import Propagation
from torch_gckm.graph.topology import Topology, matrix_identity
from torch_gckm.kernels import DenseFeatures, Features, SparseFeatures, as_rows
from torch_gckm.layouts import (
    from_scipy,
    prefers_sparse,
    scale_columns,
    scale_rows,
    to_csr,
    to_scipy,
    warn_of_lost_digits,
)
from torch_gckm.partition import WHOLE, Partition, partition_of

Normalize = Literal["l2", "columns"] | None
Identity = tuple[int, ...]
_MOST_KEPT = 8  # Propagated features: searches try several propagations of one graph.
_DENSE_ABOVE = 0.15  # The share of nonzero entries of propagated features above which a dense matrix is faster.
LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
_MOST_DENSE = 2**29  # Entries of a matrix that is made dense.


class Scaling(torch.nn.Module):
    """Scales the rows of a feature matrix to unit length (``"l2"``), or its ``"columns"`` to unit spread."""

    scale: Tensor  # The factors of the columns, [d], once a graph is fitted.

    def __init__(self, normalize: Normalize = None, scale: Tensor | None = None) -> None:
        super().__init__()
        if normalize not in (None, "l2", "columns"):
            raise InvalidInputError(f"'normalize' must be None, 'l2' or 'columns', got {normalize!r}")
        self.normalize = normalize
        self.register_buffer("scale", torch.empty(0) if scale is None else scale)

    def fitted_to(self, x: Tensor, over: Partition = WHOLE) -> Scaling:
        """The scaling that suits these features; another object, unless there is nothing to learn."""
        return Scaling(self.normalize, _inverse_spread(x.detach(), over)) if self.normalize == "columns" else self

    def forward(self, x: Tensor, over: Partition = WHOLE) -> Tensor:
        """The scaled features, dense or sparse as they are."""
        if self.normalize is None:
            return x
        if self.normalize == "columns":
            if x.size(1) != self.scale.numel():
                raise InvalidInputError(f"'x' must have the {self.scale.numel()} columns that the model was fitted on")
            return scale_columns(x, self.scale.to(x))
        norm = as_rows(x).view("h").sq_norm().sqrt()
        zero = norm == 0
        if panels.holds_somewhere(zero, over):
            count, row = panels.count(zero, over), panels.first(zero, over)
            text = f"{count} rows of x are zero and stay so under normalize='l2' (first: row {row})"
            warnings.warn(text, ZeroRowWarning, stacklevel=2)
        return scale_rows(x, norm.masked_fill(zero, 1.0).reciprocal())

    def extra_repr(self) -> str:
        return f"normalize={self.normalize!r}"

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        loaded = state_dict.get(prefix + "scale")
        if loaded is not None:
            self.scale = self.scale.new_empty(loaded.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _inverse_spread(x: Tensor, over: Partition) -> Tensor:
    """One over the standard deviation of every column, 1 for constant ones."""
    x = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.get_default_dtype())
    if x.layout == torch.strided:
        spread = panels.column_spread(x, over)
    else:
        csr = to_csr(x)
        places, values, count = csr.col_indices(), csr.values().double(), over.all_rows(x.size(0))
        mean, square = (panels.sums_by(places, v, x.size(1), over) / count for v in (values, values.square()))
        spread = (square - mean.square()).clamp(min=0.0).sqrt().to(x.dtype)
    floor = 1e-6 * float(spread.max()) if spread.numel() else 0.0
    return torch.where(spread > floor, spread, 1.0).reciprocal()


class PreparedGraph:
    """What depends on a graph alone: scaled features, edges, propagation matrices, propagated features, identity.

    It is made where a graph comes in (:meth:`Trainer.fit <torch_gckm.Trainer.fit>`,
    :func:`~torch_gckm.select.search`, :meth:`GCKMConv.initialize <torch_gckm.GCKMConv.initialize>`), passed down, and
    gone when its owner drops it. What is expensive is computed when it is first asked for, and kept.

    Args:
        x: Node features ``[n, d]``, dense or sparse; the attribute of this name holds the scaled ones.
        topology: The edges and their matrices.
        scaling: What to do to the features.
        dtype: The precision to compute in.
    """

    def __init__(self, x: Tensor, topology: Topology, scaling: Scaling, dtype: torch.dtype) -> None:
        if dtype not in (torch.float32, torch.float64):
            raise InvalidInputError(f"models compute in float32 or float64, not in {dtype}; call model.float()")
        warn_of_lost_digits(x, dtype, over=topology.partition)
        self.given, self.topology, self.scaling, self.dtype = x.to(dtype), topology, scaling, dtype
        self.x: Tensor = scaling(self.given, topology.partition)
        self._is_callers = self.x is x  # Who may write to it.
        self._propagated: dict[Hashable, Features] = {}

    @classmethod
    def of(cls, data: Data, scaling: Scaling, dtype: torch.dtype) -> PreparedGraph:
        """From a PyG ``Data`` object."""
        partition = partition_of(data)
        with partition.agreed():
            x, edge_index, edge_weight = graph_of(data)
            check_features(x, over=partition)
            return cls(x, Topology(edge_index, edge_weight, x.size(0), partition), scaling, dtype)

    def __deepcopy__(self, memo: dict[int, object]) -> PreparedGraph:
        return self  # What it holds is never written to, and torch cannot copy sparse matrices.

    @property
    def num_nodes(self) -> int:
        """The number of nodes, of all processes."""
        return self.topology.num_nodes

    @property
    def num_rows(self) -> int:
        """The number of nodes of this process."""
        return self.topology.num_rows

    @property
    def partition(self) -> Partition:
        """Which nodes this process has."""
        return self.topology.partition

    @cached_property
    def identity(self) -> Identity:
        """Numbers that tell this graph, with its weights and features, from any other in the model's precision."""
        return (*self.topology.identity, *matrix_identity(self.given, self.partition))

    @cached_property
    def _sparse(self) -> Tensor | None:
        """The scaled features as a CSR tensor, if products with them are faster so."""
        if self.x.layout == torch.strided:
            return to_csr(self.x) if prefers_sparse(self.x, self.partition) else None
        return to_csr(self.x).clone() if self._is_callers else to_csr(self.x)

    @cached_property
    def input(self) -> Features:
        """The scaled features themselves, as kernels see them; never the tensor of the caller, who may write to it."""
        if self._sparse is not None:
            return SparseFeatures(self._sparse, partition=self.partition)
        return DenseFeatures(self.x.clone() if self._is_callers else self.x, partition=self.partition)

    def propagated(self, propagation: torch.nn.Module) -> Features:
        """The propagated input features; sparse ones are kept sparse unless that costs more."""
        if not isinstance(propagation, Propagation) or self.x.requires_grad or self.topology.is_tracked:
            return self.propagate(propagation, self.x)
        key = propagation.key
        features = self._propagated.get(key) or self._propagate_input(propagation)
        others = [(name, known) for name, known in self._propagated.items() if name != key]
        # The last one used is the last to go. Replaced as a whole: threads may share a graph.
        self._propagated = {**dict(others[1 - _MOST_KEPT :]), key: features}
        return features

    def propagate(self, propagation: torch.nn.Module, h: Tensor) -> Features:
        """Any features of the nodes, propagated; never ``h`` itself or a view of it, which may be written to."""
        if isinstance(propagation, Propagation):
            result: Tensor = propagation(h, self.topology)
            return DenseFeatures(result.clone() if result is h else result, partition=self.partition)
        self.partition.refuse("propagations of your own are")
        return DenseFeatures(propagation(h, self.topology.adjacency, self.topology.edge_weight).clone())

    def scaled(self, scaling: Scaling) -> PreparedGraph:
        """The same graph with its features scaled in another way; edges and their matrices are shared."""
        return PreparedGraph(self.given, self.topology, scaling, self.dtype)

    def _propagate_input(self, propagation: Propagation) -> Features:
        if propagation.kind == "none":
            return self.input
        if self._sparse is None:
            return self.propagate(propagation, self.x)
        like = torch.empty(self.num_rows, 0, dtype=self.x.dtype)
        matrix = self.topology.matrix(propagation.matrix_kind, propagation.direction, like, propagation.weighting)
        if _fills_up(self._sparse, matrix.adj_t, propagation.hops, self.partition):
            return self.propagate(propagation, self.x.to_dense())
        if self.partition.is_whole:
            return SparseFeatures(self._sparse, matrix.adj_t, propagation.smooth)
        # Whole, and now: what a block of rows asks for must not depend on other processes.
        product = from_scipy(propagation.smooth(matrix.__matmul__, to_scipy(self._sparse)))
        return SparseFeatures(product, partition=self.partition)

    def __repr__(self) -> str:
        return f"PreparedGraph({self.num_nodes} nodes, {self.topology.edges.size(1)} edges, {self.x.size(1)} features)"


def _fills_up(x: Tensor, matrix: Tensor, hops: int, over: Partition) -> bool:
    """Whether so many entries of propagated features are expected to differ from zero that a dense matrix is better."""
    count, columns = over.all_rows(x.size(0)), x.size(1)
    edges, entries = panels.column_sums(torch.tensor([[matrix.values().numel(), x.values().numel()]]), over).tolist()
    degree = edges / max(1, count)
    reached = math.exp(min(hops * math.log(max(degree, 1.0)), math.log(max(1, count))))
    share = 1.0 - (1.0 - entries / max(1, count * columns)) ** reached
    return share > _DENSE_ABOVE and count * columns <= _MOST_DENSE * over.world


def check_features(x: Tensor, columns: int | None = None, over: Partition = WHOLE) -> None:
    """Raise unless features are a matrix of finite numbers, with as many columns as are expected."""
    if not isinstance(x, Tensor):
        raise InvalidInputError("'x' must be one tensor; bipartite graphs, and so to_hetero, are not supported")
    if x.dim() != 2 or (columns is not None and x.size(1) != columns):
        raise InvalidInputError(f"'x' must have shape [n, {'d' if columns is None else columns}], got {tuple(x.shape)}")
    if x.layout not in LAYOUTS or x.is_complex():
        hint = "real numbers, dense or as torch.sparse in the layouts COO, CSR or CSC"
        raise InvalidInputError(f"'x' must hold {hint}, got {x.dtype} in the layout {x.layout}")
    if x.is_floating_point():
        panels.check_finite(x, over=over)
