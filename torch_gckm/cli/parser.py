"""The commands of ``gckm`` and their options; reading them imports nothing that takes long."""

import argparse
from pathlib import Path
from typing import Any

from torch_gckm._version import __version__

BUDGET = 10.0
DESCRIPTION = """\
Classify the nodes of a graph from a handful of labels.

  gckm demo --report report.html                                   the digits, offline; a page about them
  gckm fit model.pt --features x.csv --edges edges.csv --labels y.csv --predictions classes.csv
  gckm suggest model.pt --count 5                                  which nodes to label next
  gckm label --features x.csv --edges edges.csv                     label nodes on a local page
  gckm predict model.pt --features new_x.csv --edges new_edges.csv
"""


def command_parser() -> argparse.ArgumentParser:
    """The parser of all commands and options."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("gckm", description=DESCRIPTION, formatter_class=layout)
    parser.add_argument("--version", action="version", version=__version__)
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        added = chosen.add_parser(name, help=text, description=text)
        added.set_defaults(run=name)
        return added

    to_fit = command("fit", "search for settings, combine the best, save them")
    to_fit.add_argument("model", type=Path, help="the file to write")
    to_fit.add_argument("--predictions", type=Path, metavar="FILE", help="also write the classes of all nodes (CSV)")
    to_fit.add_argument("--report", type=Path, metavar="FILE", help="also write a page about the fit (HTML)")
    to_fit.add_argument("--target", choices=("class", "numeric"), default="class", help="what the labels are")
    to_fit.add_argument("--inductive", action="store_true", help="a small file, for other graphs only")

    to_predict = command("predict", "classes and probabilities of all nodes, as CSV")
    to_predict.add_argument("model", type=Path, help="a file of 'gckm fit'; without a graph, about its own")
    to_predict.add_argument("--output", type=Path, metavar="FILE", help="default: the screen")

    to_search = command("search", "try settings and print the best ones")
    to_search.add_argument("--show", type=int, default=10, metavar="N", help="how many to print")

    to_suggest = command("suggest", "the nodes whose labels would help most")
    to_suggest.add_argument("model", type=Path, help="a file of 'gckm fit'")
    to_suggest.add_argument("--count", type=int, default=10, metavar="N")

    add_label_arguments(command("label", "a local page for labelling nodes, which suggests the next ones"))

    to_embed = command("embed", "embeddings of all nodes, made without labels, as CSV")
    to_cluster = command("cluster", "clusters of nodes, found without labels, as CSV")
    named = ("gcn", "mean", "sum", "none")
    for made, channels, kinds in ((to_embed, "64 16", named), (to_cluster, "one layer", ("ssgc", *named))):
        made.add_argument("--output", type=Path, metavar="FILE", help="default: the screen")
        made.add_argument("--channels", type=int, nargs="+", help=f"dimensions of the layers (default: {channels})")
        made.add_argument("--aggregation", default=kinds[0], choices=kinds, help=f"default: {kinds[0]}")
    to_cluster.add_argument("--clusters", type=int, metavar="N", help="default: the number of classes")

    to_shard = command("shard", "a folder of arrays, of which many processes read parts")
    add_shard_arguments(to_shard)

    to_demo = command("demo", "classify scikit-learn's digits from 4 labels per class, offline")
    to_demo.add_argument("--model", type=Path, default=Path("digits.pt"), help="the file to write (default: digits.pt)")
    to_demo.add_argument("--report", type=Path, metavar="FILE", help="also write a page about the fit (HTML)")
    absent = ("root", "split", "features", "edges", "n_neighbors", "labels", "predictions")
    given: dict[str, Any] = {"dataset": "digits", "labels_per_class": 4, "directed": False}
    given |= {"inductive": False, "target": "class"}
    to_demo.set_defaults(**dict.fromkeys(absent), **given)

    to_info = command("info", "versions, extras, and facts about a model")
    to_info.add_argument("model", type=Path, nargs="?", help="a file of 'gckm fit'")

    for searching in (to_fit, to_search, to_demo):
        add_search_arguments(searching)
    for reading in (to_fit, to_predict, to_search, to_embed, to_cluster, to_shard):
        add_graph_arguments(reading)
    add_seed(to_demo)
    return parser


def add_graph_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options by which a command is given a graph."""
    named = parser.add_argument_group("a graph by its name")
    named.add_argument("--dataset", help="digits, cora, citeseer, pubmed, ..., or a node dataset of PyG as Class/name")
    named.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT, else data)")
    named.add_argument("--labels-per-class", type=int, metavar="N", help="use so many labels per class, at random")
    named.add_argument("--split", type=int, metavar="N", help="which of a dataset's splits to use, from 0")
    add_seed(named)
    files = parser.add_argument_group("a graph in files: CSV (commas, semicolons), TSV or Parquet")
    files.add_argument(
        "--features", type=Path, metavar="FILE", help="node, then numbers, words, true/false, dates; or NPY, NPZ"
    )
    files.add_argument(
        "--edges", type=Path, metavar="FILE", help="node, node, perhaps a weight; also without --features"
    )
    files.add_argument("--n-neighbors", type=int, metavar="N", help="without edges: join nodes to their nearest")
    files.add_argument("--labels", type=Path, metavar="FILE", help="node, class; none, or -1, if unknown")
    parser.add_argument(
        "--directed", action="store_true", help="keep directions of edges (fit and search try all ways)"
    )


def add_seed(parser: argparse._ActionsContainer) -> None:
    """Add the option of a seed."""
    parser.add_argument("--seed", type=_seed, default=0, help="of a random choice of labels, and of a search")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a seed is a number from 0 on, got {text}")
    return int(text)


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how long to search, and where to keep what was tried."""
    group = parser.add_argument_group("the search")
    group.add_argument(
        "--budget",
        type=float,
        default=BUDGET,
        metavar="SECONDS",
        help=f"of the whole fit, after reading files (default: {BUDGET:g}; 0: no limit)",
    )
    group.add_argument("--max-settings", type=int, metavar="N", help="the number of settings to try (default: 48)")
    group.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="keep what was tried; go on if it is there, with the whole budget",
    )
    group.add_argument(
        "--storage", metavar="FILE_OR_URL", help="share the search with all who name the same journal or database"
    )
    group.add_argument("--study", default="gckm", metavar="NAME", help="the search in the storage (default: gckm)")
    group.add_argument("--quiet", action="store_true", help="no progress bars")


def add_label_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gckm label``."""
    add_graph_arguments(parser)
    own = parser.add_argument_group("the page")
    own.add_argument("--classes", nargs="+", default=[], metavar="NAME", help="the classes; others can be added")
    own.add_argument("--output", type=Path, metavar="FILE", help="where to save (default: LABELS.labelled.csv)")
    own.add_argument("--budget", type=float, default=10.0, metavar="SECONDS", help="of every fit (default: 10)")
    own.add_argument("--port", type=int, default=0, metavar="N", help="default: one that is free")
    own.add_argument("--no-browser", action="store_true", help="print the address and open no browser")


def add_shard_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``gckm shard``, except those of the graph."""
    parser.add_argument("folder", type=Path, help="the folder to write")
    parser.add_argument(
        "--partition", type=Path, metavar="FILE", help="a part number per line, as METIS writes; or NPY"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a folder of 'gckm shard'")
    parser.add_argument("--target", choices=("class", "numeric"), default="class", help="what the labels are")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
