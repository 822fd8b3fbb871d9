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


def checked_order(order: Array, num_nodes: int) -> Array:
    """A number for every node."""
    if order.shape != (num_nodes,) or order.dtype.kind not in "iu":
        found = f"{order.dtype} {order.shape}"
        raise InvalidInputError(f"'order' must hold a whole number for each of the {num_nodes} nodes, got {found}")
    return order


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
