"""Lines of cells from files: text with commas, semicolons or tabs, and Parquet."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_gckm.errors import InvalidInputError
from torch_gckm.tables.cells import is_number
from torch_gckm.tables.frames import read_parquet, texts_of

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
MATRICES = (".npy", ".npz")
PARQUET = (".parquet", ".pq")
_LOOKED_AT = 200  # Lines to tell the delimiter from.
_COMMA = re.compile(r"[+-]?\d+,(\d+)(?:[eE][+-]?\d+)?$")
_POINT = re.compile(r"[+-]?\d+\.\d+(?:[eE][+-]?\d+)?$")


@dataclass(frozen=True)
class Lines:
    """The lines of a file that are not empty: their cells, and which lines they are."""

    path: Path
    numbers: list[int]
    rows: list[list[str]]
    has_heading: bool | None = None  # Whether the first one is a heading; None: unknown.

    def where(self, row: int) -> str:
        """The place of a line, for messages."""
        return f"{self.path}, line {self.numbers[row]}"

    def rest(self) -> "Lines":
        """All lines but the first."""
        return Lines(self.path, self.numbers[1:], self.rows[1:])


def read_lines(path: Path) -> Lines:
    """The lines of a table; none of a file of a matrix, which names no nodes."""
    if path.suffix in MATRICES:
        return Lines(path, [], [])
    if path.suffix in PARQUET:
        frame = read_parquet(path)
        columns = [texts_of(frame.iloc[:, place]) for place in range(frame.shape[1])]
        rows = [[str(name) for name in frame.columns], *map(list, zip(*columns, strict=True))]
        return Lines(path, list(range(len(rows))), rows, has_heading=True)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            head = [line for _, line in zip(range(_LOOKED_AT), file, strict=False)]
            delimiter = "\t" if path.suffix == ".tsv" else _delimiter(path, head)
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter)
            found = [(number, [cell.strip() for cell in cells]) for number, cells in enumerate(reader, start=1)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(f"{path} is not a table in a text file in UTF-8: {error}") from error
    found = [(number, cells) for number, cells in found if any(cells)]
    lines = Lines(path, [number for number, _ in found], [cells for _, cells in found])
    if delimiter == ";":
        _take_decimal_commas(lines)
    return lines


def _delimiter(path: Path, head: Sequence[str]) -> str:
    """What separates cells: what the first line has; if that is not clear, what gives all lines as many cells."""
    lines = [line for line in head if line.strip()]
    found = {mark: _split(lines, mark) for mark in DELIMITERS}
    present = [mark for mark, rows in found.items() if rows and len(rows[0]) > 1]
    if len(present) <= 1:
        return present[0] if present else ","
    even = [mark for mark in present if len({len(row) for row in found[mark]}) == 1]
    if len(even) == 1:
        return even[0]
    if ";" in even and all("," not in cell or _COMMA.match(cell.strip()) for row in found[";"] for cell in row):
        return ";"  # Its commas are those of numbers.
    if not even:
        return ","  # What is wrong with it is told by its line.
    names = " or ".join(DELIMITERS[mark] for mark in even)
    raise InvalidInputError(f"{path}: are cells separated by {names}? Write names that contain one in quotation marks")


def _split(lines: Sequence[str], mark: str) -> list[list[str]]:
    return [row for row in csv.reader(lines, delimiter=mark) if row]


def _take_decimal_commas(lines: Lines) -> None:
    """Write 1,5 as 1.5 in place; raises if some numbers have points, or if commas may be those of thousands."""
    found = [
        (row, place, match[1])
        for row, cells in enumerate(lines.rows)
        for place, cell in enumerate(cells)
        if "," in cell and (match := _COMMA.match(cell))
    ]
    if not found:
        return
    first = f"{lines.where(found[0][0])}: '{lines.rows[found[0][0]][found[0][1]]}'"
    points = next((cell for cells in lines.rows for cell in cells if _POINT.match(cell)), None)
    if points is not None:
        raise InvalidInputError(f"{first} has a decimal comma, and '{points}' a decimal point; write all with points")
    if all(len(decimals) == 3 for _, _, decimals in found):
        raise InvalidInputError(f"{first} may be a thousand or a fraction; write numbers with decimal points, as 1.5")
    for row, place, _ in found:
        lines.rows[row][place] = lines.rows[row][place].replace(",", ".")
    assert all(is_number(lines.rows[row][place]) for row, place, _ in found)
