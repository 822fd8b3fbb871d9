"""Columns of a table as numbers: what a fit learns of them, and applies to every later table.

Numbers stay numbers, true and false become 1 and 0, dates the number of days since 1970. Words have a column for each
that occurs. Blanks become the mean of their column, and a further column says where they were; blank words have a
column as other words do.

Columns are scaled only if their units differ, as :func:`units_differ` tells.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.layouts import warn_of_lost_digits
from torch_gckm.tables.columns import Column, Kind, Table
from torch_gckm.tables.scaling import scales_of, units_differ

MOST_WORDS = 100  # Columns that one column of words may become.
FEW_WORDS = 10  # So many different words are never too many.
BLANK = "(blank)"


@dataclass(frozen=True)
class ColumnCode:
    """What becomes of a column: ``(value - shift) / scale``, or a column for each word."""

    name: str
    kind: Kind | Literal["left out"]
    words: tuple[str, ...] = ()
    has_blanks: bool = False  # A column says where they are.
    fill: float | None = None  # What blanks become; None: not known, they are refused.
    shift: float = 0.0
    scale: float = 1.0

    @property
    def names(self) -> list[str]:
        """The names of the columns that it becomes."""
        if self.kind == "left out":
            return []
        own = [f"{self.name}={word}" for word in self.words] if self.kind == "words" else [self.name]
        return [*own, f"{self.name}={BLANK}"] if self.has_blanks else own


@dataclass(frozen=True)
class TableEncoding:
    """How the named columns of a table become a matrix of numbers; learned once, then the same for every table."""

    codes: tuple[ColumnCode, ...]
    units_differ: bool = False

    @classmethod
    def learn(cls, table: Table) -> tuple[Self, NDArray[np.float32]]:
        """The encoding of a table, and the table in it, ``[n, d]``."""
        columns = [table.column(name) for name in table.names]
        codes = [_code(name, column) for name, column in zip(table.names, columns, strict=True)]
        if not any(code.kind != "left out" for code in codes):
            raise InvalidInputError("the table has no column of numbers, dates or words that repeat: nothing to learn")
        differ = units_differ(columns)
        if differ:
            scales = scales_of(columns)
            codes = [
                ColumnCode(code.name, code.kind, code.words, code.has_blanks, code.fill, *scale)
                for code, scale in zip(codes, scales, strict=True)
            ]
        encoding = cls(tuple(codes), differ)
        wide = encoding._matrix(columns, table)
        warn_of_lost_digits(torch.from_numpy(wide), torch.float32, encoding.names)
        return encoding, wide.astype(np.float32)

    def apply(self, table: Table) -> NDArray[np.float32]:
        """A table with the columns of the fitted one, in any order, as a matrix ``[n, d]``."""
        used = [code for code in self.codes if code.kind != "left out"]
        missing = [code.name for code in used if code.name not in set(table.names)]
        unknown = [name for name in table.names if name not in set(self.columns)]
        if missing or unknown:
            lacks = (
                f"it lacks {', '.join(missing[:5])}" if missing else f"the model does not know {', '.join(unknown[:5])}"
            )
            raise InvalidInputError(f"the table has other columns than the model was fitted to: {lacks}")
        columns = [
            Column("words", np.empty(0)) if code.kind == "left out" else table.column(code.name, code.kind)
            for code in self.codes
        ]
        for code, column in zip(self.codes, columns, strict=True):
            self._warn(code, column, table)
        return self._matrix(columns, table).astype(np.float32)

    @classmethod
    def of_names(cls, names: Sequence[str]) -> Self:
        """That of numbers as they are, of which names are known."""
        return cls(tuple(ColumnCode(name, "number") for name in names))

    @property
    def columns(self) -> list[str]:
        """The names of the columns of the table."""
        return [code.name for code in self.codes]

    @property
    def names(self) -> list[str]:
        """The names of the columns of the matrix."""
        return [name for code in self.codes for name in code.names]

    @property
    def is_plain(self) -> bool:
        """Whether the matrix is the table itself."""
        return all(code == ColumnCode(code.name, "number", fill=code.fill) for code in self.codes)

    def summary(self) -> str:
        """What was done to the columns, in a few words; empty if nothing was."""
        counts = Counter(str(code.kind) for code in self.codes)
        parts = [
            f"{counts[kind]} {text.format('s' if counts[kind] != 1 else '')}"
            for kind, text in (("words", "column{} of words one-hot"), ("date", "date column{} as days"))
            if counts[kind]
        ]
        parts += [f"{counts['flag']} true/false as 1/0"] if counts["flag"] else []
        filled = sum(code.has_blanks for code in self.codes)
        parts += [f"blanks filled in {filled} column{'s' if filled > 1 else ''}"] if filled else []
        left = [code.name for code in self.codes if code.kind == "left out"]
        parts += [f"left out: {', '.join(left[:5])}{', ...' if len(left) > 5 else ''}"] if left else []
        return ", ".join([*parts, *(["columns scaled: units differ"] if self.units_differ else [])])

    def state(self) -> dict[str, Any]:
        """The encoding as plain data."""
        codes = [{**asdict(code), "words": list(code.words)} for code in self.codes]
        return {"units_differ": self.units_differ, "codes": codes}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """What :meth:`state` described."""
        codes = (ColumnCode(**{**code, "words": tuple(code["words"])}) for code in state["codes"])
        return cls(tuple(codes), state["units_differ"])

    def _matrix(self, columns: Sequence[Column], table: Table) -> NDArray[np.float64]:
        matrix = np.zeros((table.num_rows, len(self.names)))
        place = 0
        for code, column in zip(self.codes, columns, strict=True):
            if code.kind == "left out":
                continue
            if code.kind == "words":
                numbers = {word: number for number, word in enumerate(code.words)}
                found = np.array([numbers.get(word, -1) for word in column.values], dtype=np.int64)
                rows = (found >= 0).nonzero()[0]
                matrix[rows, place + found[rows]] = 1.0
            else:
                filled = column.values if code.fill is None else np.where(column.is_known, column.values, code.fill)
                matrix[:, place] = (filled - code.shift) / code.scale
            place += len(code.names)
            if code.has_blanks:
                matrix[:, place - 1] = ~column.is_known
        return matrix

    def _warn(self, code: ColumnCode, column: Column, table: Table) -> None:
        """Warn of words and of blanks that the fit has not seen."""
        if code.kind == "left out":
            return
        blank = ~column.is_known
        if blank.any() and code.kind != "words" and code.fill is None:
            first = table.where(int(blank.argmax()))
            raise InvalidInputError(f"{first}: a value of column '{code.name}' is missing; fill it, or drop the row")
        if blank.any() and not code.has_blanks:
            what = "count as no word" if code.kind == "words" else "become its mean"
            first = table.where(int(blank.argmax()))
            _tell(
                f"column '{code.name}' has blanks, which it had none of in the fit, the first in {first}: they {what}"
            )
        if code.kind == "words" and len(code.words) < MOST_WORDS:  # Else rare words were left out.
            known = {*code.words, None}
            new = [row for row, word in enumerate(column.values) if word not in known]
            if new:
                word, first = column.values[new[0]], table.where(new[0])
                first = f"'{word}' in {first}"
                what = f"{first} is new and counts as no word"
                if len(new) > 1:
                    what = f"{len(new):,} rows have new words, the first {first}; they count as no word"
                _tell(f"column '{code.name}': {what}")


def _code(name: str, column: Column) -> ColumnCode:
    """What becomes of a column, before scaling."""
    known = column.is_known
    has_blanks = not bool(known.all())
    if not known.any():
        _tell(f"column '{name}' is left out: it has no values")
        return ColumnCode(name, "left out")
    if column.kind != "words":
        return ColumnCode(name, column.kind, (), has_blanks, float(column.values[known].mean()))
    counts = Counter(column.values[known].tolist())
    if len(counts) > max(FEW_WORDS, int(known.sum()) // 2):
        _tell(
            f"column '{name}' is left out: {len(counts):,} different words in {int(known.sum()):,} rows tell no groups "
            "of rows, as identifiers and free text (numbers are read as 0.5, dates as 2020-12-31 or 31.12.2020)"
        )
        return ColumnCode(name, "left out")
    if len(counts) > MOST_WORDS:
        _tell(f"column '{name}' has {len(counts):,} different words; the {MOST_WORDS} most frequent ones count")
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:MOST_WORDS]
    return ColumnCode(name, "words", tuple(sorted(frequent)), has_blanks)


def _tell(text: str) -> None:
    warnings.warn(text, GCKMWarning, stacklevel=2)
