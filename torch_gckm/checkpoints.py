"""Checkpoints of a fit by several processes: each writes its rows, and any number of processes reads them again.

Tensors are written by ``torch.distributed.checkpoint`` as safetensors files, everything else is JSON: nothing is
pickled, so that loading never executes code. A checkpoint is a folder::

    latest.json              which save is valid; size and checksum of its index
    save-000012/index.json   plain values; shapes, dtypes and row ranges of tensors; sizes and checksums of the files
    save-000012/shard-00001-model-00001-of-00003.safetensors   of process 0: tensors that are the same in all processes
    save-000012/shard-00002-model-00003-of-00003.safetensors   of process 1: its rows of the second sharded tensor

Every save goes to a folder of its own. ``latest.json`` is replaced when it is complete, and the one before is removed
then, so that a checkpoint is replaced whole or not at all. All processes must see the folder; it belongs to one fit.
"""

import json
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike, write_atomically
from torch_gckm.ranks import Alone, Ranks, agreed
from torch_gckm.row_files import DTYPES, check_storage, read_tensors, write_tensors

FORMAT = "torch_gckm sharded checkpoint 1"
_LATEST, _INDEX, _SAVE, _SHARD = "latest.json", "index.json", r"save-\d{6,}", r"shard-[\w-]+\.safetensors"


@dataclass(frozen=True)
class ShardedState:
    """What a checkpoint holds.

    Args:
        plain: ``None``, booleans, integers, floats, strings, and lists and dictionaries of them.
        replicated: Tensors that are the same in all processes.
        sharded: The rows of this process, ``[n_local, ...]``, of tensors over nodes.
    """

    plain: dict[str, Any] = field(default_factory=dict)
    replicated: dict[str, Tensor] = field(default_factory=dict)
    sharded: dict[str, Tensor] = field(default_factory=dict)


def save_sharded(folder: PathLike, state: ShardedState, ranks: Ranks | None = None) -> None:
    """Replace the checkpoint in a folder, whole or not at all; every process calls this with its own rows.

    Of plain values and replicated tensors those of process 0 are written. While a tensor is written, two copies of it
    are in memory. An error in one process is raised in all, and leaves the checkpoint as it was.

    Args:
        folder: A folder that does not exist yet, is empty, or holds a checkpoint.
        state: What to write.
        ranks: The processes; without it, this one alone.

    Raises:
        InvalidInputError: Something cannot be written, or the processes have different tensors.
        OSError: Writing failed in one process.
        ImportError: torch is older than 2.9, or safetensors is missing.
    """
    path = Path(folder)
    if ranks is None:
        ranks = Alone((0, next((tensor.size(0) for tensor in state.sharded.values() if tensor.dim() > 0), 0)))

    def prepare() -> tuple[dict[str, Any], list[Any]]:
        check_storage()
        _check_plain(state.plain, "plain")
        shapes = _shapes(state, ranks)
        return {"format": FORMAT, "offsets": list(ranks.offsets), **shapes, "plain": state.plain}, [
            shapes,
            ranks.offsets,
        ]

    def begin() -> tuple[None, str]:
        return None, _new_save(path) if ranks.rank == 0 else ""

    def write() -> tuple[None, dict[str, Any]]:
        files = write_tensors(
            target, state.replicated, state.sharded, rank=ranks.rank, offsets=ranks.offsets, group=ranks.group
        )
        return None, {name: [*_checksum(target / name), rows] for name, rows in files.items()}

    def finish() -> tuple[None, None]:
        if ranks.rank == 0:
            index["files"] = {name: file for part in files for name, file in part.items()}
            _write_json(target / _INDEX, index)
            _write_json(path / _LATEST, {"format": FORMAT, "save": target.name, "index": _checksum(target / _INDEX)})
        return None, None

    index, layouts = agreed(ranks, prepare)
    if any(layout != layouts[0] for layout in layouts):
        raise InvalidInputError("the processes have tensors of different names, dtypes or shapes to write")
    target = path / agreed(ranks, begin)[1][0]
    try:
        _, files = agreed(ranks, write)
        agreed(ranks, finish)
    finally:
        if ranks.rank == 0:
            _remove_saves(path)


def load_sharded(folder: PathLike, ranks: Ranks | None = None) -> ShardedState | None:
    """Read a checkpoint, of tensors over nodes the rows of this process only; ``None`` if nothing was saved yet.

    The number of processes may be another one than when it was written. Checksums of all files that hold these rows are
    verified. An error in one process is raised in all.

    Args:
        folder: The folder.
        ranks: The processes; without it, this one alone, which reads all rows.

    Raises:
        InvalidInputError: The folder is no checkpoint, is damaged, or is of another number of nodes.
        ImportError: torch is older than 2.9, or safetensors is missing.
    """
    path = Path(folder)

    def check() -> tuple[dict[str, Any], str]:
        check_storage()
        latest = _latest(path)
        if latest is None:
            return {}, ""
        save = path / latest[0]
        with _understood(path):
            _verify(save / _INDEX, *latest[1])
            index = _read_json(save / _INDEX)
            nodes = index["offsets"][-1]
            if ranks is not None and ranks.offsets[-1] != nodes:
                raise InvalidInputError(f"'{path}' is a checkpoint of {nodes} nodes, not of {ranks.offsets[-1]}")
            _check_files(save, index, *_rows(index, ranks))
        return index, save.name

    def read() -> tuple[ShardedState, None]:
        with _understood(save):
            return _read(save, index, *_rows(index, ranks)), None

    index, saves = agreed(ranks or Alone(), check)
    if any(name != saves[0] for name in saves):
        raise InvalidInputError(
            f"the processes see different checkpoints in '{path}'; was it written at the same time?"
        )
    save = path / saves[0]
    return agreed(ranks or Alone(), read)[0] if index else None


def _shapes(state: ShardedState, ranks: Ranks) -> dict[str, dict[str, Any]]:
    """Dtypes and global shapes of all tensors."""
    num_rows = ranks.offsets[ranks.rank + 1] - ranks.offsets[ranks.rank]
    for name, tensor in (*state.replicated.items(), *state.sharded.items()):
        if not name or name.startswith("__") or (name in state.replicated) == (name in state.sharded):
            raise InvalidInputError(f"{name!r} cannot be the name of one tensor of a checkpoint; choose another one")
        if tensor.layout != torch.strided or tensor.dtype not in DTYPES.values():
            raise InvalidInputError(f"'{name}' is of {tensor.dtype} and {tensor.layout}, which checkpoints do not hold")
        if name in state.sharded and (tensor.dim() == 0 or tensor.size(0) != num_rows):
            raise InvalidInputError(f"'{name}' has shape {list(tensor.shape)}; this process holds {num_rows} rows")
    dtypes = {dtype: name for name, dtype in DTYPES.items()}
    return {
        "replicated": {name: [dtypes[t.dtype], list(t.shape)] for name, t in state.replicated.items()},
        "sharded": {name: [dtypes[t.dtype], [ranks.offsets[-1], *t.shape[1:]]] for name, t in state.sharded.items()},
    }


def _check_plain(value: Any, where: str) -> None:
    """Raise unless JSON returns exactly this value."""
    if type(value) is dict:
        for name, inner in value.items():
            if type(name) is not str:
                raise InvalidInputError(f"{where} has the key {name!r}; keys of a checkpoint are strings")
            _check_plain(inner, f"{where}[{name!r}]")
    elif type(value) is list:
        for place, inner in enumerate(value):
            _check_plain(inner, f"{where}[{place}]")
    elif value is not None and type(value) not in (bool, int, float, str):
        raise InvalidInputError(
            f"{where} is of {type(value).__name__}; convert it to numbers, strings, lists or dictionaries"
        )


def _new_save(path: Path) -> str:
    """Make the folder of the next save, and return its name."""
    _latest(path)  # Refuses a folder of something else.
    numbers = [int(other.name[5:]) for other in path.glob("save-*")]
    name = f"save-{max(numbers, default=0) + 1:06d}"
    (path / name).mkdir(parents=True)
    return name


def _latest(path: Path) -> tuple[str, list[int]] | None:
    """Name of the valid save, size and checksum of its index; nothing if no save was finished there."""
    if not path.exists():
        return None
    own = rf"{_SAVE}|{_LATEST}|\.{_LATEST}\..*"
    if not path.is_dir() or any(not re.fullmatch(own, other.name) for other in path.iterdir()):
        raise InvalidInputError(f"'{path}' is not a folder of a sharded checkpoint; choose another one")
    if not (path / _LATEST).exists():
        return None
    with _understood(path / _LATEST):
        content = _read_json(path / _LATEST)
        name, (size, crc) = content["save"], content["index"]
        if content["format"] != FORMAT or not re.fullmatch(_SAVE, name):
            raise InvalidInputError(f"'{path}' is not a sharded checkpoint of this version")
        return name, [size, crc]


def _remove_saves(path: Path) -> None:
    """Remove what is not the valid save. What cannot be removed stays for the next time, and what is not ours, too."""
    with suppress(OSError, InvalidInputError):
        latest = _latest(path)
        for save in path.glob("save-*"):
            if latest is None or save.name != latest[0]:
                for file in save.iterdir():
                    if re.fullmatch(rf"{_SHARD}|{_INDEX}|\.{_INDEX}\..*", file.name):
                        file.unlink()
                save.rmdir()


def _rows(index: dict[str, Any], ranks: Ranks | None) -> tuple[int, int]:
    return (0, index["offsets"][-1]) if ranks is None else (ranks.offsets[ranks.rank], ranks.offsets[ranks.rank + 1])


def _check_files(save: Path, index: dict[str, Any], start: int, stop: int) -> None:
    """Raise if a file is missing or of another size, or one that holds such rows does not have its checksum."""
    files, dtypes = index["files"], DTYPES
    for file in save.glob("*.safetensors"):
        if file.name not in files:
            raise InvalidInputError(f"'{file}' does not belong to the checkpoint; remove it")
    for name, (size, crc, rows) in files.items():
        if not re.fullmatch(_SHARD, name):
            raise InvalidInputError(f"'{save}' is not a sharded checkpoint of this version")
        is_read = rows is None or (rows[0] < stop and start < rows[1])
        _verify(save / name, size, crc if is_read else None)
    tensors = (*index["replicated"].values(), *index["sharded"].values())
    if sum(math.prod(shape) * dtypes[dtype].itemsize for dtype, shape in tensors) > sum(
        file[0] for file in files.values()
    ):
        raise InvalidInputError(f"'{save}' is damaged: its files are smaller than its tensors")


def _read(save: Path, index: dict[str, Any], start: int, stop: int) -> ShardedState:
    """Read replicated tensors and rows of sharded ones."""
    replicated = {name: torch.empty(shape, dtype=DTYPES[dtype]) for name, (dtype, shape) in index["replicated"].items()}
    sharded = {
        name: torch.empty([stop - start, *shape[1:]], dtype=DTYPES[dtype])
        for name, (dtype, shape) in index["sharded"].items()
    }
    read_tensors(save, replicated | sharded, dict.fromkeys(replicated, 0) | dict.fromkeys(sharded, start))
    return ShardedState(index["plain"], replicated, sharded)


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    """Errors about contents that are not as expected become one that names the checkpoint."""
    try:
        yield
    except (InvalidInputError, OSError, MemoryError, ImportError):
        raise
    except Exception as error:  # Whatever contents of another kind make torch stumble over.
        raise InvalidInputError(f"'{path}' is damaged, or not a sharded checkpoint of this version") from error


def _checksum(file: Path) -> list[int]:
    """Size in bytes, and CRC-32."""
    crc = 0
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            crc = zlib.crc32(block, crc)
        return [stream.tell(), crc]


def _verify(file: Path, size: int, crc: int | None) -> None:
    """Raise unless a file has its size and, where one is given, its checksum."""
    if not file.is_file():
        raise InvalidInputError(f"'{file}' is missing; the checkpoint is damaged")
    if file.stat().st_size != size or (crc is not None and _checksum(file) != [size, crc]):
        raise InvalidInputError(f"'{file}' is damaged: it does not have its size and checksum")


def _read_json(file: Path) -> dict[str, Any]:
    with _understood(file):
        content: Any = json.loads(file.read_bytes())
        if not isinstance(content, dict):
            raise InvalidInputError(f"'{file}' is not of a sharded checkpoint")
        return content


def _write_json(file: Path, content: dict[str, Any]) -> None:
    write_atomically(file, lambda stream: stream.write(json.dumps(content).encode()))
