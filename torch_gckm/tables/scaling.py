"""Whether columns have different units, and what they are divided by if so.

Words of texts, pixels and embeddings have one unit, and stay as they are: rare words would else count more than others.
Ages and incomes have two.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from torch_gckm.tables.columns import Column

FACTOR = 10.0  # Standard deviations that differ by more are those of different units.
_CENTRED = 0.05  # Means that are smaller, in standard deviations, are those of columns that were centred.
_CONSTANT = 1e-12  # Rounding, relative to the mean.
Scale = tuple[float, float]  # What to subtract, and what to divide by.


def units_differ(columns: Sequence[Column]) -> bool:
    """Whether numbers are mixed with dates, words, or true and false, or their standard deviations differ by 10.

    Of columns that are mostly zero, as of words, only the one with the largest standard deviation counts. Numbers whose
    means are all zero have been prepared already, as principal components.
    """
    numbers = [column.values[column.is_known] for column in columns if column.kind == "number"]
    if any(column.kind == "date" for column in columns):
        return True
    if any(column.kind != "number" and bool(column.is_known.any()) for column in columns):
        return any(not _is_flag(values) for values in numbers)
    moments = [(values.mean(), values.std(), _is_sparse(values)) for values in numbers if values.size]
    moving = [moment for moment in moments if moment[1] > _CONSTANT * abs(moment[0])]
    if all(abs(mean) <= _CENTRED * deviation for mean, deviation, is_sparse in moving if not is_sparse):
        moving = [moment for moment in moving if moment[2]]
    dense = [deviation for _, deviation, is_sparse in moving if not is_sparse]
    sparse = [deviation for _, deviation, is_sparse in moving if is_sparse]
    compared = [*dense, *([max(sparse)] if sparse else [])]
    return bool(compared and max(compared) > FACTOR * min(compared))


def scales_of(columns: Sequence[Column]) -> list[Scale]:
    """How to scale each column: dense ones to mean 0 and deviation 1, mostly zero ones to 1 at most; no 0 and 1."""
    return [_scale_of(column) for column in columns]


def _scale_of(column: Column) -> Scale:
    values = column.values[column.is_known] if column.kind in ("number", "date") else np.empty(0)
    if not values.size or (column.kind == "number" and _is_flag(values)):
        return 0.0, 1.0
    if column.kind == "number" and _is_sparse(values):
        return 0.0, float(np.abs(values).max()) or 1.0
    mean, deviation = float(values.mean()), float(values.std())
    return mean, deviation if deviation > _CONSTANT * abs(mean) else 1.0


def _is_flag(values: NDArray[np.float64]) -> bool:
    return bool(((values == 0) | (values == 1)).all())


def _is_sparse(values: NDArray[np.float64]) -> bool:
    return 2 * int(np.count_nonzero(values)) < values.size
