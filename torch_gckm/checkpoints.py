"""Checkpoints of a fit by several processes: each writes its rows, and any number of processes reads them again.

Tensors are in the format of safetensors, everything else is JSON: nothing is pickled, so that loading never executes
code. A checkpoint is a folder::

    latest.json                           which save is valid; size and checksum of its index
    save-000012/index.json                plain values; dtypes and shapes of tensors; rows, sizes and checksums of files
    save-000012/common.safetensors        tensors that are the same in all processes
    save-000012/rows-00001.safetensors    of process 1: its rows of tensors over nodes

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
from torch_gckm.partition import WHOLE, Partition
from torch_gckm.row_files import DTYPES, NAMES, read_tensors, write_tensors

FORMAT = "torch_gckm sharded checkpoint 1"
_LATEST, _INDEX, _SAVE = "latest.json", "index.json", r"save-\d{6,}"
_COMMON, _ROWS, _FILE = "common.safetensors", "rows-{:05d}.safetensors", r"(common|rows-\d{5,})\.safetensors"


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


def save_sharded(folder: PathLike, state: ShardedState, over: Partition = WHOLE) -> None:
    """Replace the checkpoint in a folder, whole or not at all; every process calls this with its own rows.

    Of plain values and replicated tensors those of process 0 are written. An error in one process is raised in all, and
    leaves the checkpoint as it was.

    Args:
        folder: A folder that does not exist yet, is empty, or holds a checkpoint.
        state: What to write.
        over: Which rows this process has.

    Raises:
        InvalidInputError: Something cannot be written, or the processes have different tensors.
        OSError: Writing failed in one process.
    """
    path, tell = Path(folder), over.processes.texts
    with over.agreed():
        _check_plain(state.plain, "plain")
        own = next((tensor.size(0) for tensor in state.sharded.values() if tensor.dim() > 0), 0)
        start, stop = _range(over, own)
        shapes = _shapes(state, stop - start, over.all_rows(own))
        if len(set(tell(json.dumps(shapes)))) > 1:
            raise InvalidInputError("the processes have tensors of different names, dtypes or shapes to write")
        target = path / tell(_new_save(path) if over.rank == 0 else "")[0]
        try:
            name = _ROWS.format(over.rank)
            files = {name: [*write_tensors(target / name, state.sharded), [start, stop]]}
            if over.rank == 0:
                files[_COMMON] = [*write_tensors(target / _COMMON, state.replicated), None]
            parts = [json.loads(part) for part in tell(json.dumps(files))]
            if over.rank == 0:
                index = {"format": FORMAT, "nodes": over.all_rows(own), **shapes, "plain": state.plain}
                index["files"] = {name: file for part in parts for name, file in part.items()}
                _write_json(target / _INDEX, index)
                latest = {"format": FORMAT, "save": target.name, "index": _checksum(target / _INDEX)}
                _write_json(path / _LATEST, latest)
            over.processes.barrier()
        finally:
            if over.rank == 0:
                _remove_saves(path)


def load_sharded(folder: PathLike, over: Partition = WHOLE) -> ShardedState | None:
    """Read a checkpoint, of tensors over nodes the rows of this process only; ``None`` if nothing was saved yet.

    The number of processes may be another one than when it was written. Checksums of all files that hold these rows are
    verified. An error in one process is raised in all.

    Args:
        folder: The folder.
        over: Which rows this process has; by itself, it reads all.

    Raises:
        InvalidInputError: The folder is no checkpoint, is damaged, or is of another number of nodes.
    """
    path = Path(folder)
    with over.agreed():
        latest = _latest(path)
        if len(set(over.processes.texts(json.dumps(latest)))) > 1:
            raise InvalidInputError(
                f"the processes see different checkpoints in '{path}'; was it written at the same time?"
            )
        if latest is None:
            return None
        save = path / latest[0]
        with _understood(save):
            _verify(save / _INDEX, *latest[1])
            index = _read_json(save / _INDEX)
            nodes = over.all_rows(index["nodes"])
            if nodes != index["nodes"]:
                raise InvalidInputError(f"'{path}' is a checkpoint of {index['nodes']} nodes, not of {nodes}")
            rows = _range(over, nodes)
            _check_files(save, index, *rows)
            return _read(save, index, *rows)


def _range(over: Partition, own: int) -> tuple[int, int]:
    """The rows of a process; all of so many if it is by itself."""
    return (0, own) if over.is_whole else (over.offsets[over.rank], over.offsets[over.rank + 1])


def _shapes(state: ShardedState, num_rows: int, all_rows: int) -> dict[str, dict[str, Any]]:
    """Dtypes and global shapes of all tensors."""
    for name, tensor in (*state.replicated.items(), *state.sharded.items()):
        if not name or name.startswith("__") or (name in state.replicated) == (name in state.sharded):
            raise InvalidInputError(f"{name!r} cannot be the name of one tensor of a checkpoint; choose another one")
        if tensor.layout != torch.strided or tensor.dtype not in NAMES:
            raise InvalidInputError(f"'{name}' is of {tensor.dtype} and {tensor.layout}, which checkpoints do not hold")
        if name in state.sharded and (tensor.dim() == 0 or tensor.size(0) != num_rows):
            raise InvalidInputError(f"'{name}' has shape {list(tensor.shape)}; this process holds {num_rows} rows")
    return {
        "replicated": {name: [NAMES[t.dtype], list(t.shape)] for name, t in state.replicated.items()},
        "sharded": {name: [NAMES[t.dtype], [all_rows, *t.shape[1:]]] for name, t in state.sharded.items()},
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
                    if re.fullmatch(rf"{_FILE}|{_INDEX}|\.{_INDEX}\..*", file.name):
                        file.unlink()
                save.rmdir()


def _check_files(save: Path, index: dict[str, Any], start: int, stop: int) -> None:
    """Raise if a file is missing or of another size, or one that holds such rows does not have its checksum."""
    files = index["files"]
    for file in save.glob("*.safetensors"):
        if file.name not in files:
            raise InvalidInputError(f"'{file}' does not belong to the checkpoint; remove it")
    for name, (size, crc, rows) in files.items():
        if not re.fullmatch(_FILE, name):
            raise InvalidInputError(f"'{save}' is not a sharded checkpoint of this version")
        is_read = rows is None or (rows[0] < stop and start < rows[1])
        _verify(save / name, size, crc if is_read else None)
    tensors = (*index["replicated"].values(), *index["sharded"].values())
    least = sum(math.prod(shape) * DTYPES[dtype].itemsize for dtype, shape in tensors)
    if least > sum(file[0] for file in files.values()):
        raise InvalidInputError(f"'{save}' is damaged: its files are smaller than its tensors")


def _read(save: Path, index: dict[str, Any], start: int, stop: int) -> ShardedState:
    """Read replicated tensors and rows of sharded ones."""
    replicated = {name: torch.empty(shape, dtype=DTYPES[dtype]) for name, (dtype, shape) in index["replicated"].items()}
    sharded = {
        name: torch.empty([stop - start, *shape[1:]], dtype=DTYPES[dtype])
        for name, (dtype, shape) in index["sharded"].items()
    }
    found = 0
    for name, (_, _, rows) in index["files"].items():
        if rows is None:
            read_tensors(save / name, replicated)
        elif (low := max(start, rows[0])) < (high := min(stop, rows[1])):
            found += high - low
            parts = {key: tensor[low - start : high - start] for key, tensor in sharded.items()}
            read_tensors(save / name, parts, low - rows[0])
    if sharded and found < stop - start:
        raise InvalidInputError(f"'{save}' is damaged: it has {found} of the rows {start} to {stop - 1}")
    return ShardedState(index["plain"], replicated, sharded)


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    """Errors about contents that are not as expected become one that names the checkpoint."""
    try:
        yield
    except (InvalidInputError, OSError, MemoryError, ImportError):
        raise
    except Exception as error:  # Whatever torch raises for contents of another kind.
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
