"""Class labels of any kind as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.readout import Targets, labels_of, pick_mask


def is_labelled(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Which labels are not -1; NumPy makes a string of it among strings."""
    return np.array([label not in (-1, "-1") for label in y.tolist()], dtype=bool)


def check_blanks(y: Any) -> None:
    """Raise if a label is missing in another way than by -1."""
    if isinstance(y, list | np.ndarray) or hasattr(y, "tolist"):
        for row, label in enumerate(y if isinstance(y, list) else y.tolist()):
            if _is_blank(label):
                raise InvalidInputError(f"the label of row {row} is {label!r}; use -1 for rows without a label")


def _is_blank(label: Any) -> bool:
    try:
        return label is None or bool(label == "" or label != label)
    except TypeError:  # pandas' NA is neither equal nor unequal to anything.
        return True


@dataclass(frozen=True)
class NumberedLabels:
    """Labels as places among the classes that occur.

    Attributes:
        classes: The classes, in increasing order; an array of names, or a tensor of the class numbers of a graph.
        places: The place of every label among them, ``[n]``, -1 where there is none.
        known: Which nodes have a label of any class, also of one without a training label, ``[n]``.
    """

    classes: Any
    places: Tensor
    known: Tensor

    @classmethod
    def of_rows(cls, y: NDArray[Any]) -> NumberedLabels:
        """From labels of any kind, -1 for unknown ones."""
        labelled = is_labelled(y)
        check_classification_targets(y[labelled])
        classes, places = np.unique(y[labelled], return_inverse=True)
        _require_two(classes)
        numbers = np.full(y.shape, -1, dtype=np.int64)
        numbers[labelled] = places
        return cls(classes, torch.from_numpy(numbers), torch.from_numpy(labelled))

    @classmethod
    def of_graph(cls, data: Data, split: int | None, names: Sequence[str] | None) -> NumberedLabels:
        """From the class numbers of a graph; only those that occur in the training mask count.

        Args:
            data: The graph.
            split: The column to use of masks ``[n, splits]``.
            names: Names of the class numbers.
        """
        y = numbers = labels_of(data)
        found = torch.empty(0, dtype=torch.long)
        if not y.is_floating_point() and y.dtype != torch.bool:  # Others are refused below.
            found = y[y >= 0].long().unique()
            numbers = _places(y.long(), found)
        targets = Targets.parse(numbers, data.get("train_mask"), data.num_nodes, found.numel(), split)
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
        for name in ("train_mask", "val_mask", "test_mask"):
            mask = graph.get(name)
            if split is not None and mask is not None and mask.dim() == 2:
                graph[name] = mask[:, split]

    def test_nodes(self, graph: Data) -> Tensor:
        """The nodes to judge by, ``[n]``; one of a class without a training label counts as a mistake."""
        mask = graph.get("test_mask")
        if mask is None:
            return torch.zeros_like(self.known)
        return (pick_mask(mask, self.known.numel(), name="test_mask") > 0) & self.known


def _places(y: Tensor, classes: Tensor) -> Tensor:
    """Places among classes, -1 for labels of other classes; negative labels stay as they are if there are none."""
    if not classes.numel():
        return y
    places = torch.searchsorted(classes, y.clamp(min=0)).clamp(max=classes.numel() - 1)
    return torch.where(classes[places] == y, places, -1)


def _require_two(classes: Any) -> None:
    if len(classes) < 2:
        only = f"got only {classes.tolist()} (-1 means unlabelled)"
        raise InvalidInputError(f"labels of at least two classes are needed, {only}")
