"""Tables of pandas: DataFrames that are given, and Parquet files; pandas is only imported where it is needed."""

import importlib
import numbers
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from torch_gckm.errors import InvalidInputError
from torch_gckm.tables.cells import as_dates, as_flags, days_since_1970, is_blank
from torch_gckm.tables.columns import KINDS, Column, Kind, MatrixTable, Table, words_of

_DAY = np.timedelta64(1, "D")


class FrameTable(Table):
    """The columns of a DataFrame of pandas."""

    def __init__(self, frame: Any, where: str = "row {}") -> None:
        self.names, self.num_rows = [str(name) for name in frame.columns], len(frame)
        self._frame, self._where = frame, where
        self._places = {name: place for place, name in enumerate(self.names)}
        if len(self._places) < len(self.names):
            twice = next(name for place, name in enumerate(self.names) if self._places[name] != place)
            raise InvalidInputError(f"the table has two columns called '{twice}'; rename one")

    def where(self, row: int) -> str:
        """The place of a row."""
        return self._where.format(row)

    def column(self, name: str, kind: Kind | None = None) -> Column:
        """The values of a column; text that is all numbers stays words, as its type says."""
        series = self._frame.iloc[:, self._places[name]]
        found = _column_of(series, name) if kind != "words" else Column("words", _words(series))
        if kind is None or found.kind == kind or {found.kind, kind} == {"number", "flag"}:
            return self.checked(name, found)
        if not found.is_known.any():
            return Column(kind, np.full(self.num_rows, np.nan))
        row = int(found.is_known.argmax())
        raise InvalidInputError(
            f"{self.where(row)}: {series.iloc[row]!r} in column '{name}' is none of the {KINDS[kind]} that the model "
            "was fitted to"
        )


def table_of(X: Any) -> Table | None:
    """A table with named columns as one, ``None`` for arrays, tensors and frames of sparse columns."""
    if isinstance(X, Table):
        return X
    if not (hasattr(X, "iloc") and hasattr(X, "columns") and hasattr(X, "dtypes")):
        return None
    if len(X.columns) and all(hasattr(dtype, "fill_value") for dtype in X.dtypes):
        return None
    kinds = {getattr(dtype, "kind", "O") for dtype in X.dtypes}
    if kinds <= set("iuf") and all(isinstance(dtype, np.dtype) for dtype in X.dtypes) and X.columns.is_unique:
        return MatrixTable([str(name) for name in X.columns], X.to_numpy(dtype=np.float64))
    return FrameTable(X)


def read_parquet(path: Path) -> Any:
    """The DataFrame of a Parquet file, its index as the first column unless it has no name."""
    try:
        pd = importlib.import_module("pandas")
        importlib.import_module("pyarrow")
    except ImportError as error:
        raise ImportError(
            f"{path}: Parquet needs pandas and pyarrow; install them with: pip install 'torch_gckm[tables]'"
        ) from error
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} is not a Parquet file: {error}") from error
    if frame.index.name is not None or frame.index.nlevels > 1:
        frame = frame.reset_index()
    return frame


def texts_of(series: Any) -> list[str]:
    """Every cell of a column as text, empty where there is none."""
    cells = zip(series.tolist(), series.isna().tolist(), strict=True)
    return ["" if is_missing else _text(value) for value, is_missing in cells]


def _column_of(series: Any, name: str) -> Column:
    dtype, blank = series.dtype, series.isna().to_numpy()
    kind = getattr(dtype, "kind", "O")
    if hasattr(dtype, "categories"):
        return Column("words", _words(series))
    if kind == "b":
        return Column("flag", series.to_numpy(dtype=np.float64, na_value=np.nan))
    if kind in "iuf":
        return Column("number", series.to_numpy(dtype=np.float64, na_value=np.nan))
    if kind == "M":
        zone = getattr(dtype, "tz", None)
        stamps = (series.dt.tz_convert("UTC").dt.tz_localize(None) if zone is not None else series).to_numpy()
        stamps = stamps.astype("datetime64[us]")
        return Column("date", np.where(blank, np.nan, (stamps - np.datetime64(0, "us")) / _DAY))
    if kind in "mc":
        raise InvalidInputError(f"column '{name}' is of type {dtype}; make real numbers of it")
    return _column_of_objects(series, blank)


def _column_of_objects(series: Any, blank: Any) -> Column:
    """A column of Python objects or of strings."""
    known = [value for value, is_missing in zip(series.tolist(), blank.tolist(), strict=True) if not is_missing]
    values = np.full(len(series), np.nan)
    if known and all(isinstance(value, bool | np.bool_) for value in known):
        values[~blank] = known
        return Column("flag", values)
    if known and all(_is_real(value) for value in known):
        values[~blank] = [float(value) for value in known]
        return Column("number", values)
    if known and all(isinstance(value, date) for value in known):
        times = [
            value if isinstance(value, datetime) else datetime(value.year, value.month, value.day) for value in known
        ]
        values[~blank] = [days_since_1970(value) for value in times]
        return Column("date", values)
    words = _words(series)
    texts = [word or "" for word in words]
    if not any(texts):
        return Column("number", values)
    for kind, read in (("flag", as_flags), ("date", as_dates)):
        if all(isinstance(value, str) for value in known) and (found := read(texts)) is not None:
            return Column("flag" if kind == "flag" else "date", found)
    numbers_among = sum(map(_is_real, known))
    if 2 * numbers_among >= len(known):
        row, wrong = next(
            (row, value) for row, value in enumerate(series.tolist()) if texts[row] and not _is_real(value)
        )
        raise InvalidInputError(
            f"row {row}: {wrong!r} is not a number, as most values of column '{series.name}' are; correct it, leave it "
            "blank, or make words of the column with astype(str)"
        )
    return Column("words", words)


def _is_real(value: Any) -> bool:
    is_decimal = type(value).__name__ == "Decimal"
    return (isinstance(value, numbers.Real) or is_decimal) and not isinstance(value, bool | np.bool_)


def _words(series: Any) -> Any:
    """Values as words, ``None`` for blanks; whole numbers have no decimals."""
    return words_of([None if is_blank(text) else text for text in texts_of(series)])


def _text(value: Any) -> str:
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
