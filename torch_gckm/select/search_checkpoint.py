"""The file that keeps what a search has tried."""

import time
from pathlib import Path
from typing import Any

from torch_gckm.files import PathLike, load_tensors, save_tensors
from torch_gckm.select.identity import check_identity
from torch_gckm.select.trial import Trial

_SAVE_EVERY = 20.0  # Seconds.


class SearchCheckpoint:
    """Trials in a file, for a later call of the same search.

    Args:
        path: The file; ``None`` keeps nothing.
        identity: What the later call must have in common, as plain values.
    """

    def __init__(self, path: PathLike | None, identity: dict[str, Any]) -> None:
        self.path, self.identity, self._saved = path, identity, time.perf_counter()

    def trials(self) -> list[Trial]:
        """What the file holds, if there is one."""
        if self.path is None or not Path(self.path).exists():
            return []
        content = load_tensors(self.path)
        check_identity(content.get("identity", {}), self.identity, f"the checkpoint '{self.path}'")
        return [Trial.from_dict(trial) for trial in content["trials"]]

    def save(self, trials: list[Trial], *, now: bool = False) -> None:
        """Write trials, unless the file was written a short time ago."""
        if self.path is None or not (now or time.perf_counter() - self._saved > _SAVE_EVERY):
            return
        save_tensors({"identity": self.identity, "trials": [trial.to_dict() for trial in trials]}, self.path)
        self._saved = time.perf_counter()
