"""Which nodes a model is trained on, learns from, is chosen by and is judged by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, Union

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import canonical_edges, graph_of
from torch_gckm.graph.topology import matrix_identity
from torch_gckm.layouts import to_csr
from torch_gckm.readout import RealTargets, Targets, check_values, labels_of, pick_mask

NodesLike = Union[float, int, Tensor, Sequence[int], NDArray[Any]]
_MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True)
class Labelling:
    """The labels of a graph, parsed once."""

    targets: Targets  # The labels to learn from.
    y: Tensor  # All labels, [n], -1 where unknown; or real targets, [n, p], NaN where unknown.
    val: Tensor  # The nodes to choose by, boolean [n].
    test: Tensor  # The nodes to judge by, boolean [n].

    @classmethod
    def of(cls, data: Data, num_classes: int, split: int | None = None, *, warn: bool = False) -> Self:
        """Those of a graph; without a ``train_mask`` all known labels are training labels."""
        targets = Targets.of(data, num_classes, split, warn=warn)
        y = labels_of(data).view(-1)
        parts = []
        for name in ("val_mask", "test_mask"):
            mask = data.get(name)
            chosen = torch.zeros_like(y) if mask is None else pick_mask(mask, y.numel(), split, name)
            parts.append((chosen > 0) & (y >= 0))
        return cls(targets, y, *parts)

    @classmethod
    def of_values(cls, data: Data, split: int | None = None) -> Self:
        """Those of a graph with real targets, ``[n]`` or ``[n, p]``, NaN where unknown."""
        y = check_values(labels_of(data), data.num_nodes)
        known = ~y.isnan().any(dim=1)
        parts = []
        for name in ("val_mask", "test_mask"):
            mask = data.get(name)
            chosen = torch.zeros_like(known) if mask is None else pick_mask(mask, known.numel(), split, name) > 0
            parts.append(chosen & known)
        return cls(RealTargets.of(data, y.size(1), split), y, *parts)

    @property
    def unlabelled(self) -> Tensor:
        """The nodes whose labels a fit does not see, boolean ``[n]``."""
        return ~self.targets.is_labelled

    @property
    def identity(self) -> list[int]:
        """Numbers that tell these labels, weights and masks from any others."""
        labels = self.y.view(self.targets.num_nodes, -1).nan_to_num().unbind(1)
        columns = (self.targets.weight, self.targets.classes, *labels, self.val, self.test)
        matrix = torch.stack([column.double().cpu() for column in columns], dim=1)
        return list(matrix_identity(matrix, self.targets.partition))


def node_subset(data: Data, nodes: NodesLike, split: int | None = None, seed: int = 0) -> Data:
    """The graph between some of the nodes; those with training or validation labels always belong to it.

    ``nodes`` is a share of the nodes below 1 or a number of them, drawn at random; or a mask or the numbers of nodes.
    """
    x, edge_index, edge_weight = graph_of(data)
    masks = {name: pick_mask(data[name], x.size(0), split, name) for name in _MASKS if data.get(name) is not None}
    y = data.y.view(-1)
    used = y >= 0
    if "train_mask" in masks:
        used = used & (masks["train_mask"] + masks.get("val_mask", 0.0) > 0)
    kept = _chosen(nodes, used, seed)
    edges, weight = canonical_edges(edge_index, edge_weight, x.size(0))
    edges, weight = subgraph(kept, edges.to(x.device), weight, relabel_nodes=True, num_nodes=x.size(0))
    masks = {name: mask[kept] for name, mask in masks.items()}
    features = x[kept] if x.layout == torch.strided else to_csr(x.to_sparse_coo().index_select(0, kept))
    return Data(x=features, edge_index=edges, edge_weight=weight, y=y[kept], **masks)


def _chosen(nodes: NodesLike, used: Tensor, seed: int) -> Tensor:
    """Node numbers in increasing order, with all of those that are used."""
    n = used.numel()
    if isinstance(nodes, Sequence | np.ndarray):
        nodes = torch.as_tensor(nodes)
    if isinstance(nodes, Tensor):
        chosen = used | (pick_mask(nodes, n, name="nodes") > 0).to(used.device)
    else:
        count = round(nodes * n) if isinstance(nodes, float) else nodes
        if isinstance(nodes, bool) or not 0 < count <= n:
            raise InvalidInputError(f"'nodes' must be a share in (0, 1], or one to all {n} of the nodes, got {nodes}")
        rank = panels.random_order(n, seed).to(used.device) + used  # The used ones come first.
        chosen = torch.zeros_like(used).index_fill(0, rank.topk(max(count, panels.count(used))).indices, True)
    return panels.rows_where(chosen)
