"""The paper's tables, one command each; interrupt and repeat at will.

    python benchmarks/run.py table2 --root DATA                       # few labels, all methods
    python benchmarks/run.py table2 --datasets cora --methods GCN GCKM --seeds 3 --budget 60
    python benchmarks/run.py table2 --quick                           # every method, cut short: three minutes
    python benchmarks/make_tables.py                                  # all tables and pictures from the results

Experiments: table2, table3, standard, depth, clustering, ablation, sparsity, statistics, progress,
qualitative, inductive, subset, directed, attention.
The datasets, and the paper's masks, are those in the folder ``--root``, or in the one that the environment variable
GCKM_DATA_ROOT names; what is missing is downloaded. Every finished task is a line of JSON in the output folder, with
data, split, seed, setting, versions and time; tasks that are there are skipped. The table is printed at the end, next
to the paper's numbers. ``docs/results`` says what each experiment does.
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path

from baselines import training
from experiments.ablation import Ablation
from experiments.attention import Attention
from experiments.clustering import Clustering
from experiments.common import Experiment, Options
from experiments.depth import Depth
from experiments.directed import Directed
from experiments.facts import Progress, Sparsity, Statistics
from experiments.inductive import Inductive
from experiments.qualitative import Qualitative
from experiments.standard import Standard
from experiments.subset import Subset
from experiments.table2 import Table2
from experiments.table3 import Table3
from make_tables import printed_table
from store import Row, file_of, run_tasks

QUICK_EPOCHS = 50
QUICK_MINUTES = 3.0
KINDS = (
    Table2, Table3, Standard, Depth, Clustering, Ablation, Sparsity, Statistics, Progress, Qualitative, Inductive,
    Subset, Directed, Attention,
)  # fmt: skip
EXPERIMENTS: dict[str, type[Experiment]] = {kind.name: kind for kind in KINDS}


def main(arguments: list[str] | None = None) -> list[Row]:
    """Run what the command line asks for; returns its rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--datasets", nargs="*", help="default: those of the paper")
    parser.add_argument("--methods", nargs="*", help="default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a search")
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the results")
    parser.add_argument("--minutes", type=float, help="begin no task later than this (default: no limit; --quick: 3)")
    quick = "small graphs, one seed, one setting, 50 epochs, searches of 5 seconds; own methods first; three minutes"
    parser.add_argument("--quick", action="store_true", help=quick)
    args = parser.parse_args(arguments)
    kind = EXPERIMENTS[args.experiment]
    large = ("pubmed", "squirrel", "physics") if args.quick else ()
    args.datasets = args.datasets or [name for name in kind.default_datasets if name not in large]
    if args.quick:
        args.seeds, args.budget = 1, min(args.budget, 5.0)
    minutes = args.minutes or (QUICK_MINUTES if args.quick else math.inf)
    experiment = kind(Options.of(args))
    path = file_of(args.out, args.experiment, args.quick)
    with warnings.catch_warnings(), training.at_most(QUICK_EPOCHS if args.quick else training.MAX_EPOCHS):
        warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")
        rows = run_tasks(experiment.tasks(), experiment.run, path, experiment.describe, 60 * minutes)
    if rows:
        print(printed_table(args.experiment, rows, args.out))
    return rows


if __name__ == "__main__":
    main()
