"""Optuna studies that hold the trials of a search, and where they are kept (extra ``tune``)."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike, check_writable
from torch_gckm.select.trial import Trial

if TYPE_CHECKING:
    import optuna

StorageLike = Union[PathLike, "optuna.storages.BaseStorage"]
TRIAL = "trial"  # The user attribute of a trial of Optuna that holds ours.
_OPENINGS = 5  # Two processes that make the tables of one database at a time may hinder each other.
_SQLITE_PATIENCE = 60.0  # Seconds to wait for another process that writes.


def require_optuna() -> None:
    """Raise unless Optuna is installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise ImportError("a study needs optuna; install it with: pip install 'torch_gckm[tune]'") from error


def journal_path(storage: StorageLike | None) -> Path | None:
    """The file of a storage that is a journal; ``None`` for database URLs and storages of Optuna."""
    if isinstance(storage, os.PathLike) or (isinstance(storage, str) and "://" not in storage):
        return Path(storage)
    return None


def open_storage(storage: StorageLike) -> optuna.storages.BaseStorage:
    """An Optuna storage.

    Args:
        storage: The path of a journal file, which is made if it does not exist; a database URL; or an Optuna storage.
    """
    require_optuna()
    import optuna

    path = journal_path(storage)
    if path is not None:
        return _open_journal(path)
    if isinstance(storage, str):
        return _open_database(storage)
    if not isinstance(storage, optuna.storages.BaseStorage):
        raise InvalidInputError(
            f"'storage' must be the path of a journal, a database URL or an Optuna storage, got {storage!r}"
        )
    return storage


def is_in_memory(storage: optuna.storages.BaseStorage) -> bool:
    """Whether no other process can reach a storage."""
    import optuna

    return isinstance(storage, optuna.storages.InMemoryStorage)


def open_study(
    storage: optuna.storages.BaseStorage | None, name: str, sampler: optuna.samplers.BaseSampler | None = None
) -> optuna.Study:
    """The study of a name, which is made if it does not exist."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=storage, study_name=name, direction="maximize", load_if_exists=True, sampler=sampler
    )


def to_attributes(trial: Trial) -> dict[str, Any]:
    """The user attributes that hold a trial."""
    return {TRIAL: json.dumps(trial.to_dict())}


def from_attributes(attributes: dict[str, Any]) -> Trial:
    """The trial that user attributes hold."""
    return Trial.from_dict(json.loads(attributes[TRIAL]))


def _open_journal(path: Path) -> optuna.storages.BaseStorage:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = Path(os.path.realpath(path))  # The lock is beside the file, whatever name leads to it.
    check_writable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if path.exists():
            _check_journal(path)
        return JournalStorage(JournalFileBackend(str(path)))
    except ValueError as error:
        raise InvalidInputError(f"'{path}' is not a journal of Optuna, or it is damaged") from error


def _check_journal(path: Path) -> None:
    """Raise unless a file begins as journals do: Optuna would write to any file."""
    if not path.is_file():
        raise ValueError("not a file")
    with path.open("rb") as file:
        first = file.readline()
    if first and not (first.startswith(b"{") and "op_code" in json.loads(first)):
        raise ValueError("not a journal")


def _open_database(url: str) -> optuna.storages.BaseStorage:
    import sqlalchemy.exc
    from optuna.exceptions import StorageInternalError
    from optuna.storages import RDBStorage

    options = {"connect_args": {"timeout": _SQLITE_PATIENCE}} if url.startswith("sqlite") else {}
    for attempt in range(_OPENINGS):
        try:
            return RDBStorage(url, engine_kwargs=options)
        except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError, ValueError) as error:
            if attempt == _OPENINGS - 1 or not isinstance(error, sqlalchemy.exc.DBAPIError | StorageInternalError):
                reason = str(getattr(error, "orig", error)).splitlines()[0]
                raise InvalidInputError(f"cannot open the database of the search: {reason}") from error
            time.sleep(random.random())
    raise AssertionError
