"""NumPy's ``.npy`` files, written row by row and read range by range; never with pickles."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

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
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the header of a file, and check that the file has the length that follows from it."""
        try:
            with path.open("rb") as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, is_by_columns, dtype = read(file)
                offset, size = file.tell(), file.seek(0, os.SEEK_END)
        except FileNotFoundError:
            raise InvalidInputError(f"'{path}' is missing") from None
        except (ValueError, EOFError, SyntaxError, TypeError) as error:
            raise InvalidInputError(f"'{path}' is not a file of NumPy, or it is damaged") from error
        if dtype.kind not in KINDS or not dtype.isnative or not shape or (is_by_columns and len(shape) > 1):
            raise InvalidInputError(f"'{path}' holds {dtype} {shape}; numbers, row by row, are needed")
        if size != offset + math.prod(shape) * dtype.itemsize:
            raise InvalidInputError(f"'{path}' is damaged: it has {size} bytes, which do not fit the shape {shape}")
        return cls(path, dtype, shape, offset)

    def read(self, start: int = 0, stop: int | None = None) -> Array:
        """The rows from ``start`` to ``stop``, in memory of their own; nothing else is read."""
        stop = self.shape[0] if stop is None else stop
        width = math.prod(self.shape[1:])
        count, begin = (stop - start) * width, self.offset + start * width * self.dtype.itemsize
        values = np.fromfile(self.path, self.dtype, count, offset=begin)
        if values.size != count:
            raise InvalidInputError(f"'{self.path}' is damaged: it ends before row {stop}")
        return values.reshape(stop - start, *self.shape[1:])

    def mapped(self) -> Array:
        """The whole array, read from the file where it is used; writing to it does not change the file."""
        return np.load(self.path, mmap_mode="c", allow_pickle=False)


def as_bytes(array: Array) -> memoryview:
    """The bytes of a contiguous array of any type; they share memory."""
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


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
        self._file.write(as_bytes(np.ascontiguousarray(rows, self.dtype)))
        self.rows += len(rows)

    def close(self) -> None:
        """Write the number of rows into the header."""
        if not self._file.closed:
            self._file.seek(0)
            self._file.write(self._header())
            self._file.close()

    def _header(self) -> bytes:
        shape = (self.rows, *self.columns)
        text = f"{{'descr': {self.dtype.str!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
        size = _HEADER - len(_PREFIX) - 2
        return _PREFIX + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n"
