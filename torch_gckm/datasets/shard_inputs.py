"""What is written to folders of arrays: numbers in any form, as NumPy arrays."""

from collections.abc import Sequence
from typing import Any, Union

import numpy as np
import torch
from torch import Tensor

from torch_gckm.datasets.npy import KINDS, Array
from torch_gckm.errors import InvalidInputError, InvalidLabelError
from torch_gckm.layouts import to_csr, to_scipy

Block = Union[Tensor, Array]


def to_numpy(values: Block | Sequence[int], name: str) -> Array:
    """Numbers as an array; memory is shared where it can be."""
    if isinstance(values, Tensor):
        numpy_dtype(values.dtype, name)
        return values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in KINDS:
        raise InvalidInputError(f"'{name}' must hold real numbers, got {array.dtype}")
    return array


def as_mask(mask: Array, num_nodes: int, name: str) -> Array:
    """A mask as booleans or weights with a row per node; whole numbers are those of nodes."""
    if mask.dtype == np.uint8:
        return mask.astype(bool)
    if mask.dtype.kind not in "iu":
        return mask
    if mask.ndim != 1 or (mask.size and not 0 <= mask.min() <= mask.max() < num_nodes):
        raise InvalidLabelError(f"'{name}' must hold booleans, or numbers of nodes below {num_nodes}")
    if len(np.unique(mask)) != mask.size:
        raise InvalidLabelError(f"'{name}' names nodes twice; if it is a mask of 0 and 1, pass {name}.bool()")
    found = np.zeros(num_nodes, bool)
    found[mask] = True
    return found


def converted(values: Array, dtype: np.dtype[Any]) -> Array:
    """Features as another type that may hold them, if only with fewer digits."""
    if not np.can_cast(values.dtype, dtype, "same_kind"):
        raise InvalidInputError(f"'x' holds {values.dtype}, which does not fit dtype {dtype}")
    with np.errstate(over="ignore"):  # Infinity is looked for then.
        return values.astype(dtype, copy=False)


def check_values(values: Array, begins: Array, first: int) -> None:
    """Raise if features are NaN or infinite; rows begin at ``begins``, and the first one is that of node ``first``."""
    with np.errstate(over="ignore", invalid="ignore"):  # A sum is finite only if all are.
        if values.dtype.kind != "f" or bool(np.isfinite(values.sum(dtype=np.float64))):
            return
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(np.searchsorted(begins, bad.reshape(-1).argmax(), side="right")) - 1
        where = f"entries that are NaN or infinite, first in row {first + row}"
        raise InvalidInputError(f"'x' has {int(bad.sum())} {where}; fill or drop them")


def checked_order(order: Array, num_nodes: int) -> Array:
    """A permutation of the nodes."""
    if order.shape != (num_nodes,) or order.dtype.kind not in "iu":
        found = f"{order.dtype} {order.shape}"
        raise InvalidInputError(f"'order' must hold a whole number for each of the {num_nodes} nodes, got {found}")
    if not 0 <= order.min() <= order.max() < num_nodes or np.bincount(order).max() > 1:
        raise InvalidInputError(f"'order' must hold every number from 0 to {num_nodes - 1} once")
    return order.astype(np.int64)


def checked_boundaries(boundaries: Sequence[int], num_nodes: int) -> Array:
    """The first nodes of parts that are not empty, and the number of nodes."""
    found = np.asarray(boundaries, np.int64)
    if found.ndim != 1 or len(found) < 2 or found[0] != 0 or found[-1] != num_nodes or (np.diff(found) < 1).any():
        raise InvalidInputError(f"'boundaries' must rise from 0 to the number of nodes, {num_nodes}")
    return found


def scipy_csr(x: Any) -> Any:
    """A sparse tensor or matrix of SciPy as a CSR matrix, whose rows are sorted and name no column twice."""
    matrix = to_scipy(to_csr(x.detach().cpu())) if isinstance(x, Tensor) else x.tocsr()
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def numpy_dtype(dtype: torch.dtype, name: str) -> np.dtype[Any]:
    """NumPy's type of the same numbers; ``name`` is what errors call them."""
    try:
        found: np.dtype[Any] = torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        found = np.dtype(object)
    if found.kind not in KINDS:
        raise InvalidInputError(f"'{name}' must hold real numbers that NumPy knows, got {dtype}; convert with .float()")
    return found
