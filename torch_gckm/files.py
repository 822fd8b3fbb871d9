"""Files are written whole or not at all, checked when they are read, and loading never executes code.

A file of this package is a zip archive of :func:`torch.save`: records that are not compressed, each with a checksum.
"""

import os
import shutil
import stat
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import torch

from torch_gckm.errors import InvalidInputError

PathLike = str | os.PathLike[str]
_CAN_LOCK = os.name == "posix"  # Elsewhere, what a killed process left behind stays.
_PARTIAL = ".partial"
_LOCK = ".lock"  # A file in a folder that is being written.


def write_atomically(path: PathLike, write: Callable[[IO[bytes]], object]) -> None:
    """Call ``write`` on a temporary file beside ``path`` and rename it: whole or not at all.

    The file keeps its permissions, a symbolic link stays one, and pipes and devices are written to as they are. What
    a killed process left behind is removed.
    """
    target = _target(path)
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as stream:
                _write(write, _Named(stream, str(target)))
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
        with _partial(target) as file:
            _write(write, file)
            os.chmod(file.name, mode)
            os.replace(file.name, target)
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def check_writable(path: PathLike) -> None:
    """Raise unless :func:`write_atomically` could write to a path, before the work whose result it is to hold.

    Nothing is left behind: a folder that does not exist yet is not made, but that one could be made is checked.
    """
    target = _target(path)
    if target.exists() and not target.is_file():
        return
    try:
        folder = next(parent for parent in target.parents if parent.exists())
        with _partial(folder / target.name):
            pass
    except OSError as error:
        raise InvalidInputError(f"cannot write '{path}': {error.strerror}") from error


def save_tensors(content: dict[str, Any], path: PathLike) -> None:
    """Write a dictionary of tensors and plain values atomically."""
    write_atomically(path, lambda file: torch.save(content, file))


def load_tensors(path: PathLike) -> dict[str, Any]:
    """Read what :func:`save_tensors` wrote, onto the CPU; refuses anything but tensors and plain values."""
    with Path(path).open("rb") as file:
        _check_archive(file, path)
        file.seek(0)
        try:
            content: Any = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # Whatever torch raises for a file of another kind.
            raise InvalidInputError(f"'{path}' is not a file of torch_gckm, or it is damaged") from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"'{path}' is not a file of torch_gckm")
    return content


class PartialFolder:
    """A temporary folder beside ``target`` that takes its place when it is whole.

    It is removed if it is dropped, or if Python ends, before :meth:`commit`. What a killed process left behind is
    removed by the next one that writes to the same place.
    """

    def __init__(self, target: PathLike) -> None:
        self.target = Path(os.path.realpath(target))
        self.target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{self.target.name[:40]}."
        for other in self.target.parent.glob(f"{_escaped(prefix)}*{_PARTIAL}"):
            _remove_folder_if_abandoned(other)
        while True:
            self.path = Path(tempfile.mkdtemp(dir=self.target.parent, prefix=prefix, suffix=_PARTIAL))
            self._locked = (self.path / _LOCK).open("wb")
            if _lock(self._locked) and self.path.exists():
                break
            self._locked.close()  # Another process took it for abandoned before it was locked.
        self._end = weakref.finalize(self, _discard, self.path, self._locked)

    def commit(self) -> None:
        """Give the folder its name; what had the name before is removed."""
        os.chmod(self.path, 0o777 & ~_umask())
        self._locked.close()
        (self.path / _LOCK).unlink()
        old = self.path.with_name(f"{self.path.name.removesuffix(_PARTIAL)}.old{_PARTIAL}")
        is_replacing = self.target.exists()
        if is_replacing:
            self.target.rename(old)
        try:
            self.path.rename(self.target)
        except OSError:
            if is_replacing:
                old.rename(self.target)
            raise
        self._end.detach()
        if is_replacing:
            shutil.rmtree(old, ignore_errors=True)

    def discard(self) -> None:
        """Remove the folder; nothing happens after :meth:`commit`."""
        self._end()


def _discard(path: Path, locked: IO[bytes]) -> None:
    locked.close()
    shutil.rmtree(path, ignore_errors=True)


def _check_archive(file: IO[bytes], path: PathLike) -> None:
    """Raise if a file is no archive, if a record does not have its checksum, or is larger than the file itself."""
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            size = file.seek(0, os.SEEK_END)
            is_plain = all(record.compress_type == zipfile.ZIP_STORED for record in records)
            if not is_plain or sum(record.file_size for record in records) > size:
                raise InvalidInputError(f"'{path}' is not a file of torch_gckm: it is compressed")
            # What torch would read otherwise than it is verified here: folders, and names that occur twice.
            is_odd = any(record.external_attr & 0x10 for record in records)
            if is_odd or len({record.filename for record in records}) < len(records):
                raise InvalidInputError(f"'{path}' is not a file of torch_gckm, or it is damaged")
            damaged = archive.testzip()
    except InvalidInputError:
        raise
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError, OSError) as error:
        raise InvalidInputError(f"'{path}' is not a file of torch_gckm, or it is damaged") from error
    if damaged is not None:
        raise InvalidInputError(f"'{path}' is damaged: '{damaged}' does not have its checksum; make the file again")


def _target(path: PathLike) -> Path:
    """The file that a path leads to, by way of symbolic links."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise InvalidInputError(f"'{path}' is a symbolic link that leads back to itself; name a file to write")
    if target.is_dir():
        raise InvalidInputError(f"'{path}' is a folder; name a file to write")
    return target


@contextmanager
def _partial(target: Path) -> Iterator["_Named"]:
    """A temporary file beside a target, gone afterwards; it is locked, so that others know that it is in use."""
    prefix = f".{target.name[:40]}."  # Names of files may not be long.
    for other in target.parent.glob(f"{_escaped(prefix)}*{_PARTIAL}"):
        _remove_if_abandoned(other)
    while True:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=_PARTIAL)
        with os.fdopen(handle, "wb") as opened:
            if not _lock(opened) or not os.path.exists(name):
                continue  # Another process took it for abandoned before it was locked.
            try:
                yield _Named(opened, name)
            finally:
                Path(name).unlink(missing_ok=True)
            return


def _remove_if_abandoned(path: Path) -> None:
    try:
        with path.open("rb") as file:
            if _CAN_LOCK and _lock(file):
                path.unlink()
    except OSError:  # It is gone already.
        return


def _remove_folder_if_abandoned(path: Path) -> None:
    try:
        with (path / _LOCK).open("rb") as file:
            is_abandoned = _CAN_LOCK and _lock(file)
    except OSError:  # It is gone already, or a file.
        return
    if is_abandoned:
        shutil.rmtree(path, ignore_errors=True)


def _lock(file: IO[bytes]) -> bool:
    """Whether a file can be locked, and is now; a lock ends with its process. Without locks, always."""
    if _CAN_LOCK:
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


class _Named:
    """A file that knows its name and keeps the error of a failed write, which torch would hide."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self.name = file, name
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        return cast(int, self._watched(self._file.write, data))

    def flush(self) -> None:
        self._watched(self._file.flush)

    def _watched(self, call: Callable[..., object], *arguments: Any) -> object:
        try:
            return call(*arguments)
        except OSError as error:
            self.error = error
            raise


def _write(write: Callable[[IO[bytes]], object], file: _Named) -> None:
    try:
        write(cast(IO[bytes], file))
        file.flush()
    except Exception:
        if file.error is not None:
            raise file.error from None
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _escaped(name: str) -> str:
    """A name as a pattern that matches nothing else."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
