"""NumPy's ``.npy`` files, written row by row and read range by range; never with pickles."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from torch_gckm.errors import InvalidInputError

Array = np.ndarray[Any, np.dtype[Any]]
_HEADER = 128  # Bytes, whatever the number of rows is, so that it can be written last.
_PREFIX = b"\x93NUMPY\x01\x00"
KINDS = "biuf"  # Boolean, integers, floating point.


@dataclass(frozen=True)
class NpyFile:
    """An array in a file, of which only the header was read.

    Args:
        path: The file.
        dtype: The type of its numbers.
        shape: The shape of the array; the first dimension is the rows.
        offset: Where the numbers begin, in bytes.
        stamp: The file's number and time of change, by which another file in its place is noticed.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    stamp: tuple[int, int]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the header of a file, and check that the file has the length that follows from it."""
        try:
            with path.open("rb") as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, is_by_columns, dtype = read(file)
                offset, size, stamp = file.tell(), file.seek(0, os.SEEK_END), _stamp(file)
        except FileNotFoundError:
            raise InvalidInputError(f"'{path}' is missing") from None
        except (ValueError, EOFError, SyntaxError, TypeError) as error:
            raise InvalidInputError(f"'{path}' is not a file of NumPy, or it is damaged") from error
        if dtype.kind not in KINDS or not dtype.isnative or not shape or (is_by_columns and len(shape) > 1):
            raise InvalidInputError(f"'{path}' holds {dtype} {shape}; numbers, row by row, are needed")
        if size != offset + math.prod(shape) * dtype.itemsize:
            raise InvalidInputError(f"'{path}' is damaged: it has {size} bytes, which do not fit the shape {shape}")
        return cls(path, dtype, shape, offset, stamp)

    def read(self, start: int = 0, stop: int | None = None) -> Array:
        """The rows from ``start`` to ``stop``, in memory of their own; nothing else is read."""
        stop = self.shape[0] if stop is None else stop
        width = math.prod(self.shape[1:])
        count, begin = (stop - start) * width, self.offset + start * width * self.dtype.itemsize
        with self.path.open("rb") as file:
            self._check_unchanged(file)
            values = np.fromfile(file, self.dtype, count, offset=begin)
        if values.size != count:
            raise InvalidInputError(f"'{self.path}' is damaged: it ends before row {stop}")
        return values.reshape(stop - start, *self.shape[1:])

    def mapped(self) -> Array:
        """The whole array, read from the file where it is used; writing to it does not change the file."""
        with self.path.open("rb") as file:
            self._check_unchanged(file)
            return np.memmap(file, self.dtype, "c", self.offset, self.shape)

    def _check_unchanged(self, file: IO[bytes]) -> None:
        if _stamp(file) != self.stamp:
            raise InvalidInputError(f"'{self.path}' was replaced since it was opened; open the folder again")


def _stamp(file: IO[bytes]) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_ino, found.st_mtime_ns


def write_array(file: IO[bytes], array: Array) -> None:
    """Write the numbers of a contiguous array of any type; an error, as of a full disk, names the file."""
    if array.size:
        try:
            file.write(array.reshape(-1).view(np.uint8).data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(file.name)) from None


class NpyWriter:
    """Writes an array of so far unknown length to a file, row by row.

    Args:
        path: The file.
        dtype: The type of its numbers.
        columns: The shape of a row.
    """

    def __init__(self, path: Path, dtype: Any, *columns: int) -> None:
        self.dtype, self.columns, self.rows = np.dtype(dtype), columns, 0
        self._file = path.open("wb")
        self._file.write(self._header())

    def append(self, rows: Array) -> None:
        """Write rows behind those that were written."""
        write_array(self._file, np.ascontiguousarray(rows, self.dtype))
        self.rows += len(rows)

    def close(self) -> None:
        """Write the number of rows into the header."""
        if not self._file.closed:
            with self._file as file:
                file.seek(0)
                file.write(self._header())

    def _header(self) -> bytes:
        shape = (self.rows, *self.columns)
        text = f"{{'descr': {self.dtype.str!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
        size = _HEADER - len(_PREFIX) - 2
        return _PREFIX + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n"
