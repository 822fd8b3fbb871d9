"""Matrices of features from NPY and NPZ files."""

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.layouts import from_scipy, warn_of_lost_digits
from torch_gckm.memory import require_memory
from torch_gckm.panels import check_finite

_UNREADABLE = (ValueError, EOFError, KeyError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error)


def read_matrix(path: Path) -> Tensor:
    """The matrix of a file, ``[n, d]``."""
    try:
        if path.suffix == ".npy":
            array: Any = np.load(path, mmap_mode="r", allow_pickle=False)  # Fails if the file is too short for it.
        else:
            _check_size(path)
            with np.load(path, allow_pickle=False) as content:
                if "format" in content.files:
                    matrix = scipy.sparse.csr_matrix(_real(scipy.sparse.load_npz(path), path).astype(np.float32))
                    matrix.check_format(full_check=True)
                    return from_scipy(matrix)
                array = content[_only_one(content.files, path)]
        with np.errstate(over="ignore"):  # Looked for below.
            x = torch.from_numpy(np.array(_real(array, path), dtype=np.float32))
    except _UNREADABLE as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{path} holds no matrix of numbers: {error}") from error
    if x.dim() != 2:
        raise InvalidInputError(f"{path} holds an array of shape {tuple(x.shape)}; a row for every node is needed")
    check_finite(x, str(path))
    if array.dtype != np.float32:
        warn_of_lost_digits(torch.from_numpy(np.array(array, dtype=np.float64)), torch.float32)
    return x


def _only_one(names: Sequence[str], path: Path) -> str:
    """The array of the features: the one called x, or the only one."""
    if "x" in names or len(names) == 1:
        return "x" if "x" in names else names[0]
    raise InvalidInputError(f"{path} holds {len(names)} arrays ({', '.join(names)}); call the features 'x'")


def _check_size(path: Path) -> None:
    """Raise if the arrays of an archive do not fit into memory, or claim to be larger than they are."""
    with zipfile.ZipFile(path) as archive:
        records = archive.infolist()
        hint = "it may not be what it seems"
        require_memory(sum(record.file_size for record in records), str(path), torch.device("cpu"), hint)
        for record in records:
            with archive.open(record) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
            if math.prod(shape) * dtype.itemsize > record.file_size:
                raise InvalidInputError(f"{path} is damaged: '{record.filename}' claims to have the shape {shape}")


def _real(array: Any, path: Path) -> Any:
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"{path} holds {array.dtype}; real numbers are needed")
    return array
