"""Results as lines of JSON: a run that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sklearn
import torch
import torch_geometric
from tqdm import tqdm

from torch_gckm import __version__

Task = dict[str, Any]
Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """The rows of a file, none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def file_of(out: Path, experiment: str, quick: bool) -> Path:
    """Where an experiment's rows are."""
    return out / f"{experiment}{'_quick' if quick else ''}.jsonl"


def run_tasks(
    tasks: list[Task],
    run: Callable[[Task], Row],
    path: Path,
    describe: Callable[[Row], str],
    seconds: float = math.inf,
) -> list[Row]:
    """Run the tasks that are not in the file yet and append a row for each.

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
    done = {_key(task): row for task in tasks for row in read(path) if task.items() <= _plain(row).items()}
    todo = [task for task in tasks if _key(task) not in done]
    end = time.monotonic() + seconds
    for number, task in enumerate(bar := tqdm(todo, unit="task")):
        if time.monotonic() > end:
            tqdm.write(f"{seconds / 60:g} minutes are over: {len(todo) - number} tasks are left; repeat to go on")
            break
        label = " ".join(str(value) for value in task.values())
        bar.set_description(label)
        line = json.dumps({**task, **run(task), **provenance()})
        with path.open("a") as file:
            file.write(line + "\n")
        row = json.loads(line)
        tqdm.write(f"{label}: {describe(row)}")
        done[_key(task)] = row
    return [done[_key(task)] for task in tasks if _key(task) in done]


def provenance() -> Row:
    """Versions and machine."""
    return {
        "version": __version__,
        "torch": torch.__version__,
        "pyg": torch_geometric.__version__,
        "sklearn": sklearn.__version__,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
    }


def _key(task: Task) -> str:
    return json.dumps(task, sort_keys=True)


def _plain(row: Row) -> Row:
    """The entries that can be compared as items of a set."""
    return {key: value for key, value in row.items() if not isinstance(value, dict | list)}
