"""Results as lines of JSON: a run that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import sklearn
import torch
import torch_geometric
from tqdm import tqdm

from torch_gckm import __version__

Task = dict[str, Any]
Row = dict[str, Any]
FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"


def read(path: Path) -> list[Row]:
    """The rows of a file, none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def file_of(out: Path, experiment: str, quick: bool) -> Path:
    """Where an experiment's rows are."""
    return out / f"{experiment}{'_quick' if quick else ''}.jsonl"


def is_current(row: Row) -> bool:
    """Whether a row was measured with this version, bug fixes and development versions aside."""
    return _series(row.get("version", "")) == _series(__version__)


def run_tasks(
    tasks: list[Task],
    run: Callable[[Task], Row],
    path: Path,
    describe: Callable[[Row], str],
    seconds: float = math.inf,
) -> list[Row]:
    """Run the tasks that this version has no row for in the file yet, and append a row for each.

    Args:
        tasks: What to do; a row belongs to a task if it agrees in all of its entries.
        run: Does it; returns what to store beside the task.
        path: The file.
        describe: A finished row in a few words.
        seconds: No task is begun later than this.

    Returns:
        The rows of the tasks that are done.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    known = [(row, _plain(row).items()) for row in read(path) if is_current(row)]
    done = {_key(task): row for task in tasks for row, items in known if task.items() <= items}
    todo = [task for task in tasks if _key(task) not in done]
    end = time.monotonic() + seconds
    commit()  # As it is now.
    for number, task in enumerate(bar := tqdm(todo, unit="task")):
        if time.monotonic() > end:
            tqdm.write(f"{seconds / 60:g} minutes are over: {len(todo) - number} tasks are left; repeat to go on")
            break
        label = " ".join(str(value) for value in task.values())
        bar.set_description(label)
        load = os.getloadavg()[0]
        forget_peak()
        found = run(task)
        line = json.dumps({**task, **provenance(load), **found})  # A task in a process of its own has its own peak.
        with path.open("a") as file:
            file.write(line + "\n")
        row = json.loads(line)
        tqdm.write(f"{label}: {describe(row)}")
        done[_key(task)] = row
    return [done[_key(task)] for task in tasks if _key(task) in done]


def provenance(load: float | None = None) -> Row:
    """What a row was measured with.

    Args:
        load: The machine's load average at the start of the task, of one minute; by default the present one.
    """
    return {
        "commit": commit(),
        "version": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "pyg": torch_geometric.__version__,
        "sklearn": sklearn.__version__,
        "cpu": cpu_model(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0] if load is None else load, 2),
        "peak_gb": round(peak_gb(), 3),
    }


@cache
def commit() -> str | None:
    """The short hash of the commit at the start, with ``-dirty`` after changes; ``None`` outside of a checkout.

    Results do not count as changes: every row makes one.
    """
    try:
        found = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{found}-dirty" if changed else found


@cache
def cpu_model() -> str:
    """The name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def forget_peak() -> None:
    """Let :func:`peak_gb` count from now on, where the system can; else it is that of the process so far."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_gb() -> float:
    """The most memory that this process has held, in units of 2^30 bytes."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2**30 if sys.platform == "darwin" else 2**20)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(FOLDER), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _series(version: str) -> list[str]:
    return version.split(".")[:2]


def _key(task: Task) -> str:
    return json.dumps(task, sort_keys=True)


def _plain(row: Row) -> Row:
    """The entries that can be compared as items of a set."""
    return {key: value for key, value in row.items() if not isinstance(value, dict | list)}
