"""The page of results and its pictures, from rows of JSON: nothing is written there by hand."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from experiments.common import Experiment
from experiments.few_labels import FewLabels
from experiments.registry import EXPERIMENTS
from store import FOLDER, file_of, is_current, read
from tables import Rows, machines_of, measured_with

from torch_gckm import __version__

PAGE = FOLDER.parent / "docs" / "results.md"
PAPER = ("table2", "table3", "standard", "depth", "ablation", "clustering", "inductive", "directed")
MORE = ("subset", "attention", "progress")
SIZE = ("scale", "arxiv")
SETTINGS = ("calibration", "coverage", "suggest", "regression")
HEAD = """\
# Results

Accuracy next to other methods, time and memory, and the experiments of the paper. `python benchmarks/run.py report`
writes this page from rows of JSON (`benchmarks/results/`). Test labels never choose a model. [The end](#what-was-run)
says what was run.
"""
PAPER_HEAD = """\
## The paper's experiments

{old}Cells are means, with half the width of their 95 % interval (Student's) where there are several runs, folds or
splits; numbers in brackets are the paper's. Models are chosen by training labels, or by validation labels where a
table has them. The authors' own program is [sonnyachten/GCKM](https://github.com/sonnyachten/GCKM).
"""
WIDTH = 118  # Characters in a line.
OF_OLD = "Measured with version 0.1."
OLD = """\
Unless a section says otherwise, these rows were measured with version 0.1, which had no list of settings that did
well on other graphs, and no `power` of layers.

"""


def write(results: Path, page: Path, pictures: Path) -> None:
    """Write the page and its pictures.

    Args:
        results: The folder of the rows.
        page: The file.
        pictures: The folder of the pictures, beside the page.
    """
    known = rows_in(results)
    for name, rows in known.items():
        EXPERIMENTS[name].draw(rows, pictures)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(page_of(known, pictures.name))


def rows_in(results: Path) -> dict[str, Rows]:
    """The rows to show of every experiment that was run."""
    found = {name: kind.shown(read(file_of(results, name, False))) for name, kind in EXPERIMENTS.items()}
    return {name: rows for name, rows in found.items() if rows}


def page_of(known: dict[str, Rows], pictures: str) -> str:
    """The page.

    Args:
        known: The rows of the experiments.
        pictures: How the page names the folder of the pictures.
    """
    found = {measured_with(known[name]) for name in PAPER if name in known}
    first = OF_OLD if OF_OLD in found else ""
    times = FewLabels.times(known[FewLabels.name]) if FewLabels.name in known else ""
    parts = [
        HEAD,
        *sections(known, (FewLabels.name, "customers"), "## Accuracy next to other methods\n"),
        *sections(known, ("speed", "policies"), f"## Time and memory\n\n{times}"),
        *sections(known, SIZE, "### Large graphs\n"),
        *sections(known, PAPER, PAPER_HEAD.format(old=OLD if first else ""), of_all=first),
        *sections(known, MORE, "### Also measured\n"),
        *sections(known, SETTINGS, "## Probabilities, prediction sets, suggestions, real targets\n"),
        f"## What was run\n\n{overview(known)}",
    ]
    blocks = re.split(r"\n\s*\n", "\n".join(part.replace("PICTURES", pictures) for part in parts))
    return "\n\n".join(_wrapped(block.strip()) for block in blocks if block.strip()) + "\n"


def _wrapped(block: str) -> str:
    """A paragraph in lines of usual length; headings, tables and pictures stay as they are."""
    if block.startswith(("#", "|", "!")):
        return block
    return textwrap.fill(block, WIDTH, break_long_words=False, break_on_hyphens=False)


def sections(known: dict[str, Rows], names: Iterable[str], head: str, of_all: str = "") -> list[str]:
    """The texts of experiments that have rows, after a heading; nothing if there are none.

    Args:
        known: The rows of the experiments.
        names: The experiments.
        head: The heading, and what holds for all of them.
        of_all: What it says of the version; the texts say what else there is to say.
    """
    texts = [text_of(EXPERIMENTS[name], known[name], of_all) for name in names if name in known]
    return [head, *texts] if texts else []


def text_of(kind: type[Experiment], rows: Rows, of_all: str = "") -> str:
    """What the page says of an experiment."""
    version = measured_with(rows) or ("Measured with this version." if of_all else "")
    fields = {"version": "" if version == of_all else version}
    try:
        fields |= kind.facts(rows)
        if "{table}" in kind.text:
            fields["table"] = kind.page_table(rows)
    except (LookupError, ValueError) as error:
        raise SystemExit(f"the rows of '{kind.name}' are too few for its text ({error!r}): run all of it") from error
    return kind.text.format(**fields)


def overview(known: dict[str, Rows]) -> str:
    """What was not run, with this version or at all, and on which machines the rest was."""
    missing = [f"`{name}`" for name in EXPERIMENTS if name not in known]
    outdated = [f"`{name}`" for name, rows in known.items() if not any(map(is_current, rows))]
    machines = machines_of([row for rows in known.values() for row in rows])
    return (
        f"This is version {__version__}. Not run with it: {', '.join(outdated) or 'none'}. "
        f"Not run at all: {', '.join(missing) or 'none'}. Machines: {machines}."
    )


def printed_table(kind: type[Experiment], rows: Rows) -> str:
    """The table of an experiment, of which versions and machines."""
    note = " ".join(part for part in (measured_with(rows), f"On {machines_of(rows)}.") if part)
    legend = "In brackets: the paper's numbers. After ±: half of the 95 % interval of the mean."
    return f"{kind.table(rows)}\n{legend} {note}\n"
