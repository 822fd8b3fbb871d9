"""All benchmarks: one command each; interrupt and repeat at will.

    python benchmarks/run.py --list                                   # what there is, and how long it takes
    python benchmarks/run.py table2 --root DATA                       # few labels, all methods
    python benchmarks/run.py table2 --datasets cora --methods GCN GCKM --seeds 3 --budget 60
    python benchmarks/run.py table2 --quick                           # cut short: three minutes; rows in out/
    python benchmarks/run.py table2 --print                           # the table of the rows that there are
    python benchmarks/run.py report                                   # docs/results.md and its pictures

The datasets, and the paper's masks, are those in the folder ``--root``, or in the one that the environment variable
GCKM_DATA_ROOT names; what is missing is downloaded. Every finished task is a line of JSON in ``benchmarks/results``,
with data, split, seed, setting, commit, versions, machine and memory; tasks that this version has done are skipped. The
table is printed at the end, next to the paper's numbers.
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path

from baselines import training
from experiments.common import Options
from experiments.registry import EXPERIMENTS
from report import PAGE, printed_table, write
from store import RESULTS, Row, file_of, read, run_tasks

from torch_gckm.errors import GCKMError

QUICK_EPOCHS = 50
QUICK_MINUTES = 3.0
QUICK_SECONDS = 5.0  # Of a search.
QUICK_OUT = Path("out")
LARGE = ("pubmed", "photo", "cora_ml", "squirrel", "actor", "physics")  # Not in quick runs, unless they are named.


def main(arguments: list[str] | None = None) -> list[Row]:
    """Run what the command line asks for; returns its rows."""
    args = parsed(arguments)
    if args.list:
        width = max(map(len, EXPERIMENTS))
        for name, kind in EXPERIMENTS.items():
            question = (kind.__doc__ or "").splitlines()[0]
            print(f"{name:<{width}}  {question} ({kind.takes})")
        return []
    if args.experiment is None:
        raise SystemExit("name an experiment, or 'report'; --list shows them")
    if args.experiment == "report":
        write(args.out or RESULTS, args.page, args.page.parent / "images")
        return []
    kind = EXPERIMENTS[args.experiment]
    path = file_of(args.out or (QUICK_OUT if args.quick else RESULTS), args.experiment, args.quick)
    if args.print:
        rows = kind.shown(read(path))
    else:
        args.datasets = args.datasets or [name for name in kind.default_datasets if not args.quick or name not in LARGE]
        if args.quick:
            args.seeds, args.budget = args.seeds or 1, min(args.budget, QUICK_SECONDS)
        minutes = args.minutes or (QUICK_MINUTES if args.quick else math.inf)
        experiment = kind(Options.of(args))
        if args.quick:
            print("--quick: small graphs, one seed, short training; numbers are not those of the whole experiment")
        with warnings.catch_warnings(), training.at_most(QUICK_EPOCHS if args.quick else training.MAX_EPOCHS):
            warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")
            rows = run_tasks(experiment.tasks(), experiment.run, path, experiment.describe, 60 * minutes)
    if rows:
        print(printed_table(kind, rows))
    return rows


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", choices=[*EXPERIMENTS, "report"], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print all experiments, a line each")
    parser.add_argument("--datasets", nargs="*", help="default: those of the experiment")
    parser.add_argument("--methods", nargs="*", help="default: all, or those of the experiment")
    parser.add_argument("--labels", nargs="*", type=int, help="labels per class, where an experiment has several")
    parser.add_argument("--seeds", type=int, help="how many seeds, splits or draws (default: those of the experiment)")
    parser.add_argument("--first-seed", type=int, help="the first one; from 1000 up for development")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a search")
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--out", type=Path, help="folder of the rows (default: benchmarks/results; --quick: out)")
    parser.add_argument("--minutes", type=float, help="begin no task later than this (default: no limit; --quick: 3)")
    quick = "small graphs, one seed, one setting, 50 epochs, searches of 5 seconds; own methods first; three minutes"
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--print", action="store_true", help="run nothing, print the table of the rows that there are")
    parser.add_argument("--page", type=Path, default=PAGE, help="what report writes; pictures go to images beside it")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        main()
    except GCKMError as error:  # Such as a missing dataset: a sentence says it all.
        raise SystemExit(f"{error}") from None
