"""The commands and their options."""

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch_gckm import __version__
from torch_gckm.cli import commands
from torch_gckm.cli.graphs import add_graph_arguments, add_seed
from torch_gckm.errors import GCKMError, GCKMWarning

DESCRIPTION = """\
Classify the nodes of a graph from a handful of labels.

  gckm demo --report report.html                                   the digits, offline; a page about them
  gckm fit model.pt --features x.csv --edges edges.csv --labels y.csv --predictions classes.csv
  gckm suggest model.pt --count 5                                  which nodes to label next
  gckm predict model.pt --features new_x.csv --edges new_edges.csv
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns 0, or 2 after a mistake of the user, which one line on the standard error describes."""
    args = _parser().parse_args(arguments)
    args.command = shlex.join(["gckm", *(sys.argv[1:] if arguments is None else arguments)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", GCKMWarning)
            warnings.showwarning = lambda message, *_, **__: print(f"gckm: {message}", file=sys.stderr)
            args.run(args)
    except BrokenPipeError:  # Whoever reads the output, such as head, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (GCKMError, OSError, ImportError) as error:
        print(f"gckm: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gckm: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("gckm", description=DESCRIPTION, formatter_class=layout)
    parser.add_argument("--version", action="version", version=__version__)
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        added = chosen.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    fit = command("fit", commands.fit, "search for settings, combine the best, save them")
    fit.add_argument("model", type=Path, help="the file to write")
    fit.add_argument("--predictions", type=Path, metavar="FILE", help="also write the classes of all nodes (CSV)")
    fit.add_argument("--report", type=Path, metavar="FILE", help="also write a page about the fit (HTML)")
    fit.add_argument("--inductive", action="store_true", help="a small file, for other graphs only")
    _searching(fit)
    add_graph_arguments(fit)

    predict = command("predict", commands.predict, "classes and probabilities of all nodes, as CSV")
    predict.add_argument("model", type=Path, help="a file of 'gckm fit'; without a graph, about its own")
    predict.add_argument("--output", type=Path, metavar="FILE", help="default: the screen")
    add_graph_arguments(predict)

    looked = command("search", commands.search_settings, "try settings and print the best ones")
    looked.add_argument("--show", type=int, default=10, metavar="N", help="how many to print")
    _searching(looked)
    add_graph_arguments(looked)

    suggest = command("suggest", commands.suggest, "the nodes whose labels would help most")
    suggest.add_argument("model", type=Path, help="a file of 'gckm fit'")
    suggest.add_argument("--count", type=int, default=10, metavar="N")

    embed = command("embed", commands.embed, "embeddings of all nodes, made without labels, as CSV")
    cluster = command("cluster", commands.cluster, "clusters of nodes, found without labels, as CSV")
    for made, usual in ((embed, "64 16"), (cluster, "several models")):
        made.add_argument("--output", type=Path, metavar="FILE", help="default: the screen")
        made.add_argument("--channels", type=int, nargs="+", help=f"dimensions of the layers (default: {usual})")
        made.add_argument("--aggregation", default="gcn", choices=("gcn", "mean", "sum", "none"))
        if made is cluster:
            made.add_argument("--clusters", type=int, metavar="N", help="default: the number of classes")
        add_graph_arguments(made)

    demo = command("demo", commands.fit, "classify scikit-learn's digits from 4 labels per class, offline")
    demo.add_argument("--model", type=Path, default=Path("digits.pt"), help="the file to write (default: digits.pt)")
    demo.add_argument("--report", type=Path, metavar="FILE", help="also write a page about the fit (HTML)")
    _searching(demo, budget=10.0)
    add_seed(demo)
    absent = ("root", "split", "features", "edges", "n_neighbors", "labels", "predictions")
    given: dict[str, Any] = {"dataset": "digits", "labels_per_class": 4, "directed": False, "inductive": False}
    demo.set_defaults(**dict.fromkeys(absent), **given)

    info = command("info", commands.info, "versions, extras, and facts about a model")
    info.add_argument("model", type=Path, nargs="?", help="a file of 'gckm fit'")
    return parser


def _searching(parser: argparse.ArgumentParser, budget: float = 60.0) -> None:
    options = parser.add_argument_group("the search")
    options.add_argument("--budget", type=float, default=budget, metavar="SECONDS", help=f"{budget:g}; 0: no limit")
    options.add_argument("--max-settings", type=int, metavar="N", help="with --budget 0 the same result every time")
    options.add_argument("--checkpoint", type=Path, metavar="FILE", help="keep what was tried; go on if it is there")
    options.add_argument("--quiet", action="store_true", help="no progress bar")
