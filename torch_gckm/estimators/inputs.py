"""Rows of a matrix as nodes of a graph, and class labels of any kind as numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import canonical_edges, graph_of, typical_weight
from torch_gckm.layouts import from_scipy, to_csr, to_scipy
from torch_gckm.neighbours import nearest_edges, nearest_rows
from torch_gckm.partition import partition_of
from torch_gckm.readout import Targets, labels_of, pick_mask

Matrix = Any  # A dense NumPy matrix or a CSR matrix of SciPy.


def to_matrix(x: Any) -> Any:
    """A tensor as NumPy or SciPy hold it; anything else stays as it is."""
    if not isinstance(x, Tensor):
        return x
    x = x.detach().cpu()
    return x.numpy() if x.layout == torch.strided else to_scipy(to_csr(x))


def to_tensor(x: Matrix) -> Tensor:
    """A copy of a matrix, as a tensor of the same kind."""
    return from_scipy(x.copy()) if scipy.sparse.issparse(x) else torch.from_numpy(np.array(x))


def neighbour_graph(x: Matrix, count: int) -> Tensor:
    """Undirected edges ``[2, E]`` from every row to its nearest others, no more than a quarter of all rows.

    Joined to all others, rows would have one mean of neighbours and be the same to a model.
    """
    return nearest_edges(x, min(count, max(1, x.shape[0] // 4)))


def join(graph: Data, x: Matrix, count: int) -> Data:
    """A graph with new nodes ``[m, d]``, behind its own, that receive from the nearest of its nodes.

    No edge leads to an old node or from a new one: as long as layers receive along edges, old nodes keep their
    embeddings, and predictions for new ones do not depend on each other.
    """
    features, edge_index, edge_weight = graph_of(graph)
    size, old = features.size(0), to_matrix(features)
    edges, weight = canonical_edges(edge_index, edge_weight, size)
    near = nearest_rows(old, min(count, max(1, size // 4)), x)
    new = torch.arange(size, size + len(near)).repeat_interleave(near.size(1))
    more = torch.stack([near.flatten(), new]).to(edges.device)
    if weight is not None:
        weight = torch.cat([weight, weight.new_full((new.numel(),), typical_weight(weight))])
    return Data(x=stacked(features, x), edge_index=torch.cat([edges, more], dim=1), edge_weight=weight)


def stacked(old: Tensor, new: Matrix) -> Tensor:
    """Rows of a graph and others behind them, dense or sparse as those of the graph are."""
    known = to_matrix(old)
    if scipy.sparse.issparse(known) != scipy.sparse.issparse(new):
        new = scipy.sparse.csr_matrix(new) if scipy.sparse.issparse(known) else new.toarray()
    stack = scipy.sparse.vstack if scipy.sparse.issparse(known) else np.vstack
    return to_tensor(stack([known, new])).to(old.device)


def places_among(x: Matrix, known: Matrix, *, are_nodes: bool = False) -> NDArray[np.int64]:
    """Where each row occurs among known ones (the first time), -1 where it does not, ``[m]``.

    If known rows ``are_nodes`` of a given graph, equal ones have different neighbours: raise if it is not clear which
    of them a row is. In the matrix of all of them, each is itself.
    """
    keys, known_keys = _keys(x), _keys(known)
    if are_nodes and keys == known_keys:
        return np.arange(len(keys))
    places = dict(zip(reversed(known_keys), reversed(range(len(known_keys))), strict=True))
    if are_nodes and len(places) < len(known_keys):
        times = Counter(known_keys)
        for row, key in enumerate(keys):
            if times[key] > 1:
                raise InvalidInputError(
                    f"row {row} equals {times[key]} nodes of the fitted graph, the first of them node {places[key]}; "
                    "their neighbours differ, so say which: take rows of predict(), which answers for all nodes"
                )
    return np.array([places.get(key, -1) for key in keys], dtype=np.int64)


def _keys(x: Matrix) -> list[bytes]:
    """The bytes of every row; adding zero turns -0.0 into 0.0."""
    if not scipy.sparse.issparse(x):
        return [row.tobytes() for row in np.asarray(x) + np.float32(0.0)]
    x = scipy.sparse.csr_matrix(x, copy=True)
    x.sum_duplicates()
    x.eliminate_zeros()
    ends = zip(x.indptr, x.indptr[1:], strict=False)
    return [x.indices[a:b].astype(np.int64).tobytes() + x.data[a:b].tobytes() for a, b in ends]


def is_labelled(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Which labels are not -1, ``[n]``; NumPy makes a string of it among strings."""
    return np.array([label not in (-1, "-1") for label in y.tolist()], dtype=bool)


def of_own_type(y: NDArray[Any]) -> NDArray[Any]:
    """Labels without the -1 of others, as an array of numbers if they are numbers."""
    return np.array(y.tolist()) if y.dtype == object and y.size and not isinstance(y[0], str) else y


@dataclass(frozen=True)
class NumberedLabels:
    """Labels as places among the classes that occur."""

    classes: Any  # In increasing order; an array of names, or a tensor of the class numbers of a graph.
    places: Tensor  # The place of every label among them, [n], -1 where there is none.
    known: Tensor  # Which nodes have a label of any class, also of one without a training label, [n].

    @classmethod
    def of_rows(cls, y: NDArray[Any]) -> Self:
        """From labels of any kind, -1 for unknown ones."""
        labelled = is_labelled(y)
        given = of_own_type(y[labelled])
        check_classification_targets(given)
        numbers = np.full(y.shape, -1, dtype=np.int64)
        classes, numbers[labelled] = np.unique(given, return_inverse=True)
        _require_two(classes)
        return cls(classes, torch.from_numpy(numbers), torch.from_numpy(labelled))

    @classmethod
    def of_graph(cls, data: Data, split: int | None, names: Sequence[str] | None) -> Self:
        """From the class numbers of a graph, which may have names; only those in the training mask count."""
        y, over = labels_of(data), partition_of(data)
        numbers = y
        found = torch.empty(0, dtype=torch.long)
        if not y.is_floating_point() and y.dtype != torch.bool:  # Others are refused below.
            found = over.collect(y[y >= 0].long().unique()).unique()
            numbers = _places(y.long(), found)
        targets = Targets.parse(numbers, data.get("train_mask"), data.num_nodes, found.numel(), split, over=over)
        classes = found[targets.labels.unique()]
        _require_two(classes)
        if names is not None and len(names) <= int(classes[-1]):
            raise InvalidInputError(f"'class_names' has {len(names)} names, but there is a class {int(classes[-1])}")
        flat = y.reshape(-1).long()
        used = classes if names is None else np.array([names[number] for number in classes.tolist()])
        return cls(used, _places(flat, classes), flat >= 0)

    def apply_to(self, graph: Data, split: int | None) -> None:
        """Make these the labels of a graph, and its masks those of a split."""
        graph.y = self.places
        choose_split(graph, split)

    def test_nodes(self, graph: Data) -> Tensor:
        """The nodes to judge by, ``[n]``; one of a class without a training label counts as a mistake."""
        mask = graph.get("test_mask")
        if mask is None:
            return torch.zeros_like(self.known)
        return (pick_mask(mask, self.known.numel(), name="test_mask") > 0) & self.known


def choose_split(graph: Data, split: int | None) -> None:
    """Replace masks ``[n, splits]`` by their column."""
    for name in ("train_mask", "val_mask", "test_mask"):
        mask = graph.get(name)
        if split is not None and mask is not None and mask.dim() == 2:
            pick_mask(mask, graph.num_nodes, split, name)
            graph[name] = mask[:, split]


def _places(y: Tensor, classes: Tensor) -> Tensor:
    """Places among classes, -1 for labels of other classes; negative labels stay as they are."""
    if not classes.numel():
        return y
    places = torch.searchsorted(classes, y.clamp(min=0)).clamp(max=classes.numel() - 1)
    return torch.where(classes[places] == y, places, y.clamp(max=-1))


def _require_two(classes: Any) -> None:
    if len(classes) < 2:
        raise InvalidInputError(f"labels of at least two classes are needed, got {classes.tolist()} (-1: unlabelled)")
