"""The commands of ``gckm``: what they do, and their options."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import platform
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch_geometric

from torch_gckm import __version__
from torch_gckm.cli.graphs import NamedGraph, add_graph_arguments, add_seed, read_graph
from torch_gckm.cli.label import add_label_arguments, label
from torch_gckm.cli.numbers import fit_numbers, load_estimator, write_numbers
from torch_gckm.cli.outputs import check_outputs, note, plain, write_classes, write_suggestions, write_table
from torch_gckm.cli.searches import add_search_arguments, search_files, search_options
from torch_gckm.cli.shards import add_shard_arguments, shard
from torch_gckm.datasets import data_root
from torch_gckm.errors import GCKMError, GCKMWarning, InvalidInputError
from torch_gckm.nn import KernelLayers
from torch_gckm.report import require_bokeh, write_report
from torch_gckm.select import GCKMEnsemble, search
from torch_gckm.train import accuracy

if TYPE_CHECKING:
    from torch_gckm.estimators import GCKMClassifier

EXTRAS = {"sklearn": "sklearn", "plot": "matplotlib", "tune": "optuna", "datasets": "ogb", "sparse": "torch_sparse"}
DESCRIPTION = """\
Classify the nodes of a graph from a handful of labels.

  gckm demo --report report.html                                   the digits, offline; a page about them
  gckm fit model.pt --features x.csv --edges edges.csv --labels y.csv --predictions classes.csv
  gckm suggest model.pt --count 5                                  which nodes to label next
  gckm label --features x.csv --edges edges.csv                     label nodes on a local page
  gckm predict model.pt --features new_x.csv --edges new_edges.csv
"""


def fit(args: argparse.Namespace) -> None:
    """Search, combine the best settings, and save them."""
    if args.target == "numeric":
        fit_numbers(args)
        return
    from torch_gckm.estimators import GCKMClassifier  # Needs scikit-learn.

    if args.report is not None:
        require_bokeh()  # Before the work, not after it.
    check_outputs(args, args.model, args.predictions, args.report, *search_files(args))
    graph = _read_labelled(args)
    classifier = GCKMClassifier(random_state=args.seed, directed=args.directed, **search_options(args))
    classifier.fit(graph.data, class_names=graph.classes, node_names=graph.nodes, feature_names=graph.columns)
    classifier.save(args.model, inductive=args.inductive)
    result, ensemble, labels = classifier.result_, classifier.model_, classifier.labels_
    assert result is not None
    right = f"right about {100 * result.best.measures['leave_one_out']:.0f} % of labelled nodes"
    spent = f"{len(result)} settings in {sum(classifier.seconds_.values()):.0f} s"
    note(f"{spent}; the best one is {right} whose labels are withheld")
    note(f"{args.model}: {len(ensemble.members)} models, {args.model.stat().st_size / 2**20:.1f} MB")
    if args.predictions is not None:
        write_classes(args.predictions, classifier, None, graph.nodes)
    if args.report is not None:
        title = f"Classes of {'the digits' if args.dataset == 'digits' else args.dataset or args.features.name}"
        write_report(args.report, classifier, title=title, seconds=classifier.seconds_, command=args.command)
        note(f"{args.report}: written")
    share = accuracy(ensemble.predict(), labels.y, labels.test)
    if not math.isnan(share):
        note(f"{100 * share:.1f} % of {int(labels.test.sum())} test nodes are right")


def predict(args: argparse.Namespace) -> None:
    """Write the classes of all nodes of a graph."""
    check_outputs(args, args.output, model=args.model)
    classifier = load_estimator(args.model)
    classes = getattr(classifier, "classes_", None)
    if getattr(classifier, "scales_", None) is not None:
        raise InvalidInputError(f"{args.model} predicts several labels per node; use GCKMClassifier.load in Python")
    write = write_numbers if classes is None else write_classes
    if all(part is None for part in (args.dataset, args.features, args.edges, args.n_neighbors, args.labels)):
        write(args.output, classifier, None, classifier.node_names_)
        return
    if args.directed and not classifier.directed_:
        raise InvalidInputError(f"{args.model} was fitted to undirected edges; leave out --directed")
    args.directed = classifier.directed_ and args.n_neighbors is None
    columns = getattr(classifier, "feature_names_in_", None)
    if classes is None:
        args.labels = None  # Numbers are predicted whatever is known.
    names = None if classes is None else [str(name) for name in classes.tolist()]
    graph = _read(args, names, columns, classifier.node_names_ or [])
    if columns is not None and graph.columns is None and args.features is not None:
        note(f"{args.features} does not name its columns: they are taken in the order of the model's")
    write(args.output, classifier, graph.data, graph.nodes)


def search_settings(args: argparse.Namespace) -> None:
    """Print the best settings."""
    check_outputs(args, *search_files(args))
    graph = _read_labelled(args)
    result = search(graph.data, seed=args.seed, num_classes=len(graph.classes), **search_options(args))
    print(result.table(args.show))


def suggest(args: argparse.Namespace) -> None:
    """Print the nodes to label next."""
    classifier = _load(args.model)
    if not isinstance(classifier.model_, GCKMEnsemble):
        raise InvalidInputError(f"{args.model} is for other graphs only and knows no nodes; fit without --inductive")
    write_suggestions(classifier.explain_suggestions(classifier.suggest(args.count)), classifier.node_names_)


def embed(args: argparse.Namespace) -> None:
    """Write embeddings of all nodes, made without labels."""
    check_outputs(args, args.output)
    graph = _read(args)
    layers = KernelLayers(graph.data.num_features, args.channels or (64, 16), aggregation=args.aggregation)
    with torch.no_grad():
        h = layers.initialize(graph.data).embed()
    rows = (
        [plain(name), *(f"{value:.6g}" for value in row)] for name, row in zip(graph.nodes, h.tolist(), strict=True)
    )
    write_table(args.output, ["node", *(f"h{column + 1}" for column in range(h.size(1)))], rows)


def cluster(args: argparse.Namespace) -> None:
    """Write clusters of nodes, found without labels."""
    from torch_gckm.estimators import GCKMClustering  # Needs scikit-learn.

    check_outputs(args, args.output)
    graph = read_graph(args)
    count = len(graph.classes) if args.clusters is None else args.clusters
    if not 2 <= count <= len(graph.nodes):
        raise InvalidInputError(f"say with --clusters how many to look for, from 2 to {len(graph.nodes)}, got {count}")
    _summarise(graph)
    found = GCKMClustering(
        count, args.channels, args.aggregation, random_state=args.seed, directed=args.directed
    ).fit_predict(graph.data)
    write_table(args.output, ["node", "cluster"], zip(map(plain, graph.nodes), found.tolist(), strict=True))


def info(args: argparse.Namespace) -> None:
    """Print versions, extras and a model's facts."""
    print(f"torch_gckm {__version__}, torch {torch.__version__}, PyG {torch_geometric.__version__}")
    print(f"Python {platform.python_version()}, {torch.get_num_threads()} threads")
    present = [name for name, module in EXTRAS.items() if importlib.util.find_spec(module) is not None]
    print(f"extras: {', '.join(present) or 'none'}; datasets: {data_root() or 'GCKM_DATA_ROOT is not set'}")
    if args.model is not None:
        estimator = load_estimator(args.model)
        model, names = estimator.model_, getattr(estimator, "classes_", None)
        what = "numbers" if names is None else f"classes {', '.join(map(str, names.tolist()))}"
        fitted = isinstance(model, GCKMEnsemble)
        given = f"{model.labelled.numel()} labels given, " if fitted else "for other graphs only, "
        print(f"{args.model}: {len(model.models)} models, {given}{what}")
        if fitted:
            print("the first model, whose labels may include some of self-training:")
            print(model.members[0].summary())


def _read(
    args: argparse.Namespace,
    classes: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    fitted: Sequence[str] | None = None,
) -> NamedGraph:
    graph = read_graph(args, classes, columns, fitted)
    _summarise(graph)
    return graph


def _summarise(graph: NamedGraph) -> None:
    if graph.summary is not None:
        note(graph.summary)


def _read_labelled(args: argparse.Namespace) -> NamedGraph:
    graph = read_graph(args)
    if graph.data.get("train_mask") is None and not bool((graph.data.y >= 0).any()):
        raise InvalidInputError("no node has a class: give --labels, or --labels-per-class with a dataset")
    if len(graph.classes) < 2:
        raise InvalidInputError(f"labels of at least two classes are needed, got {graph.classes}")
    _summarise(graph)
    return graph


def _load(path: Path) -> GCKMClassifier:
    from torch_gckm.estimators import GCKMClassifier  # Needs scikit-learn.

    found = load_estimator(path)
    if not isinstance(found, GCKMClassifier) or found.scales_ is not None:
        raise InvalidInputError(f"{path} holds no classes; suggestions are about nodes with one class each")
    return found


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

    to_fit = command("fit", fit, "search for settings, combine the best, save them")
    to_fit.add_argument("model", type=Path, help="the file to write")
    to_fit.add_argument("--predictions", type=Path, metavar="FILE", help="also write the classes of all nodes (CSV)")
    to_fit.add_argument("--report", type=Path, metavar="FILE", help="also write a page about the fit (HTML)")
    to_fit.add_argument("--target", choices=("class", "numeric"), default="class", help="what the labels are")
    to_fit.add_argument("--inductive", action="store_true", help="a small file, for other graphs only")

    to_predict = command("predict", predict, "classes and probabilities of all nodes, as CSV")
    to_predict.add_argument("model", type=Path, help="a file of 'gckm fit'; without a graph, about its own")
    to_predict.add_argument("--output", type=Path, metavar="FILE", help="default: the screen")

    to_search = command("search", search_settings, "try settings and print the best ones")
    to_search.add_argument("--show", type=int, default=10, metavar="N", help="how many to print")

    to_suggest = command("suggest", suggest, "the nodes whose labels would help most")
    to_suggest.add_argument("model", type=Path, help="a file of 'gckm fit'")
    to_suggest.add_argument("--count", type=int, default=10, metavar="N")

    add_label_arguments(command("label", label, "a local page for labelling nodes, which suggests the next ones"))

    to_embed = command("embed", embed, "embeddings of all nodes, made without labels, as CSV")
    to_cluster = command("cluster", cluster, "clusters of nodes, found without labels, as CSV")
    named = ("gcn", "mean", "sum", "none")
    for made, channels, kinds in ((to_embed, "64 16", named), (to_cluster, "one layer", ("ssgc", *named))):
        made.add_argument("--output", type=Path, metavar="FILE", help="default: the screen")
        made.add_argument("--channels", type=int, nargs="+", help=f"dimensions of the layers (default: {channels})")
        made.add_argument("--aggregation", default=kinds[0], choices=kinds, help=f"default: {kinds[0]}")
    to_cluster.add_argument("--clusters", type=int, metavar="N", help="default: the number of classes")

    to_shard = command("shard", shard, "a folder of arrays, of which many processes read parts")
    add_shard_arguments(to_shard)

    to_demo = command("demo", fit, "classify scikit-learn's digits from 4 labels per class, offline")
    to_demo.add_argument("--model", type=Path, default=Path("digits.pt"), help="the file to write (default: digits.pt)")
    to_demo.add_argument("--report", type=Path, metavar="FILE", help="also write a page about the fit (HTML)")
    absent = ("root", "split", "features", "edges", "n_neighbors", "labels", "predictions")
    given: dict[str, Any] = {"dataset": "digits", "labels_per_class": 4, "directed": False}
    given |= {"inductive": False, "target": "class"}
    to_demo.set_defaults(**dict.fromkeys(absent), **given)

    to_info = command("info", info, "versions, extras, and facts about a model")
    to_info.add_argument("model", type=Path, nargs="?", help="a file of 'gckm fit'")

    for searching in (to_fit, to_search, to_demo):
        add_search_arguments(searching)
    for reading in (to_fit, to_predict, to_search, to_embed, to_cluster, to_shard):
        add_graph_arguments(reading)
    add_seed(to_demo)
    return parser
