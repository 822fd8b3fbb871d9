"""Files are written whole or not at all, and loading never executes code."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

from torch_gckm.errors import InvalidInputError

PathLike = str | os.PathLike[str]


def write_atomically(path: PathLike, write: Callable[[IO[bytes]], object]) -> None:
    """Call ``write`` on a temporary file beside ``path`` and rename it: whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def save_tensors(content: dict[str, Any], path: PathLike) -> None:
    """Write a dictionary of tensors and plain values atomically."""
    write_atomically(path, lambda file: torch.save(content, file))


def load_tensors(path: PathLike) -> dict[str, Any]:
    """Read what :func:`save_tensors` wrote, onto the CPU; refuses anything but tensors and plain values."""
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # Whatever a file of another kind makes torch stumble over.
        raise InvalidInputError(f"'{path}' is not a file of torch_gckm, or it is damaged") from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"'{path}' is not a file of torch_gckm")
    return content
