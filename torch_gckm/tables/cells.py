"""What cells of a text file say: numbers, blanks, dates, true and false."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

BLANKS = frozenset({"", "nan", "na", "n/a", "#n/a", "<na>", "null", "none", "nat"})  # In any case.
FLAGS = {"true": 1.0, "false": 0.0}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400.0
_ISO = re.compile(r"\d{4}([-/])\d\d\1\d\d([T ]\d\d:\d\d.*)?$")
_POINTS = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})$")


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def is_blank(cell: str) -> bool:
    """Whether a cell says that its value is not known."""
    return cell.lower() in BLANKS


def as_numbers(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Numbers, NaN for blanks; ``None`` if a cell is neither."""
    if "_" in "".join(cells):  # Python reads 1_000 as a number.
        return None
    try:
        return np.array(list(map(float, cells)), dtype=np.float64)
    except ValueError:
        pass
    try:
        return np.array([math.nan if is_blank(cell) else float(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        return None


def as_flags(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """1 for true, 0 for false, NaN for blanks; ``None`` if a cell is something else."""
    known = {cell: FLAGS.get(cell.lower(), math.nan) for cell in set(cells)}
    if any(math.isnan(value) and not is_blank(cell) for cell, value in known.items()):
        return None
    return np.array([known[cell] for cell in cells], dtype=np.float64)


def as_dates(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Days since 1970, NaN for blanks; ``None`` if a cell is something else."""
    known = {cell: math.nan if is_blank(cell) else day_of(cell) for cell in set(cells)}
    days = {cell: day for cell, day in known.items() if day is not None}
    return np.array([days[cell] for cell in cells], dtype=np.float64) if len(days) == len(known) else None


def day_of(cell: str) -> float | None:
    """The days from 1970 to a date as 2020-12-31, with a time perhaps, or 31.12.2020; ``None`` if it is none."""
    try:
        if (found := _POINTS.match(cell)) is not None:
            day, month, year = map(int, found.groups())
            return days_since_1970(datetime(year, month, day))
        return days_since_1970(datetime.fromisoformat(cell.replace("/", "-"))) if _ISO.match(cell) else None
    except ValueError:
        return None


def days_since_1970(date: datetime) -> float:
    """As a number; without a zone, a time is one of UTC."""
    return ((date if date.tzinfo else date.replace(tzinfo=UTC)) - _EPOCH).total_seconds() / _DAY
