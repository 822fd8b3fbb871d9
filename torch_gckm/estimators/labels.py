"""Class labels of any kind as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from torch_gckm.errors import InvalidInputError


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


def number_labels(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Classes in increasing order, and the place of each label among them, -1 where there is none.

    Args:
        y: Labels ``[n]``, -1 for unknown ones.
    """
    labelled = is_labelled(y)
    check_classification_targets(y[labelled])
    classes, places = np.unique(y[labelled], return_inverse=True)
    if classes.size < 2:
        only = f"got only {classes.tolist()} (-1 means unlabelled)"
        raise InvalidInputError(f"labels of at least two classes are needed, {only}")
    numbers = np.full(y.shape, -1, dtype=np.int64)
    numbers[labelled] = places
    return classes, numbers
