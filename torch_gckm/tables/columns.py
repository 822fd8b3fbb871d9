"""Columns of a table: what kind they are, and their values."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from torch_gckm.errors import InvalidInputError
from torch_gckm.tables.cells import as_dates, as_flags, as_numbers, day_of, is_blank, is_number

Kind = Literal["number", "flag", "date", "words"]
KINDS = {"number": "numbers", "flag": "true or false", "date": "dates", "words": "words"}
Place = Callable[[int], str]  # Where a row is, for messages.


@dataclass(frozen=True)
class Column:
    """The values of a column: numbers, NaN where blank (of dates, days since 1970), or words, ``None`` where blank."""

    kind: Kind
    values: NDArray[Any]

    @property
    def is_known(self) -> NDArray[np.bool_]:
        """Which rows are not blank."""
        return self.values != None if self.kind == "words" else ~np.isnan(self.values)  # noqa: E711


class Table(ABC):
    """Named columns of cells; what kind a column is can be asked, or said."""

    names: list[str]
    num_rows: int

    @abstractmethod
    def column(self, name: str, kind: Kind | None = None) -> Column:
        """The values of a column, of the kind that they seem to be, or of the one that they must be."""

    def where(self, row: int) -> str:
        """The place of a row, for messages."""
        return f"row {row}"

    def checked(self, name: str, column: Column) -> Column:
        """The column, if it has no number that single precision cannot hold."""
        if column.kind == "number":
            with np.errstate(over="ignore"):
                wrong = np.isinf(column.values.astype(np.float32))
            if wrong.any():
                row = int(wrong.argmax())
                is_endless = np.isinf(column.values[row])
                what = "is infinite; correct it, or leave the cell empty"
                what = what if is_endless else "is too large for single precision; rescale it"
                raise InvalidInputError(f"{self.where(row)}: a value {what} (column '{name}')")
        return column


class TextTable(Table):
    """Columns of cells of a text file."""

    def __init__(self, names: Sequence[str], cells: Sequence[Sequence[str]], where: Place) -> None:
        self.names, self._where = list(names), where
        self._cells = dict(zip(self.names, cells, strict=True))
        self.num_rows = len(cells[0]) if cells else 0

    def where(self, row: int) -> str:
        """The file and line of a row."""
        return self._where(row)

    def column(self, name: str, kind: Kind | None = None) -> Column:
        """The values of a column; raises, naming a line, if a cell is of another kind than most or than asked for."""
        return self.checked(name, column_of_text(self._cells[name], kind, name, self.where))


class MatrixTable(Table):
    """Columns of numbers, which have the names that they are given."""

    def __init__(self, names: Sequence[str], matrix: NDArray[Any]) -> None:
        self.names, self.num_rows, self._matrix = list(names), matrix.shape[0], matrix
        self._places = {name: place for place, name in enumerate(self.names)}

    def column(self, name: str, kind: Kind | None = None) -> Column:
        """The numbers of a column."""
        if kind not in (None, "number", "flag"):
            raise InvalidInputError(f"column '{name}' holds {KINDS[kind]}, and arrays hold numbers; pass a DataFrame")
        values = np.asarray(self._matrix[:, self._places[name]], dtype=np.float64)
        return self.checked(name, Column("number", values))


def column_of_text(cells: Sequence[str], kind: Kind | None, name: str, where: Place) -> Column:
    """Text as the kind that it seems to be, or must be."""
    found = None if kind == "words" else _without_words(cells)
    if found is not None and (kind in (None, found.kind) or {kind, found.kind} == {"number", "flag"}):
        return found
    if kind is not None and kind != "words":
        if all(map(is_blank, cells)):
            return Column(kind, np.full(len(cells), np.nan))
        fits = {"number": is_number, "flag": lambda cell: as_flags([cell]) is not None, "date": _is_date}[kind]
        row = next(row for row, cell in enumerate(cells) if not (is_blank(cell) or fits(cell)))
        raise InvalidInputError(
            f"{where(row)}: '{cells[row]}' in column '{name}' is none of the {KINDS[kind]} that the model was fitted to"
        )
    if kind is None:
        _check_mixture(cells, name, where)
    return Column("words", words_of([None if is_blank(cell) else cell for cell in cells]))


def words_of(values: Sequence[str | None]) -> NDArray[Any]:
    """An array of words."""
    words = np.empty(len(values), dtype=object)
    words[:] = values
    return words


def _without_words(cells: Sequence[str]) -> Column | None:
    kinds: tuple[tuple[Kind, Any], ...] = (("number", as_numbers), ("flag", as_flags), ("date", as_dates))
    for kind, read in kinds:
        if (values := read(cells)) is not None:
            return Column(kind, values)
    return None


def _is_date(cell: str) -> bool:
    return day_of(cell) is not None


def _check_mixture(cells: Sequence[str], name: str, where: Place) -> None:
    """Raise if at least half of the cells are numbers, or dates, and others are words."""
    known = [(row, cell) for row, cell in enumerate(cells) if not is_blank(cell)]
    for what, fits in (("number", is_number), ("date", _is_date)):
        others = [(row, cell) for row, cell in known if not fits(cell)]
        if 2 * len(others) <= len(known):
            row, cell = others[0]
            raise InvalidInputError(
                f"{where(row)}: '{cell}' is not a {what}, as most cells of column '{name}' are; correct it, leave the "
                "cell empty, or write all cells of the column as words, with a letter in front"
            )
