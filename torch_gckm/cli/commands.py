"""What the commands of ``gckm`` do; their options are in :mod:`torch_gckm.cli.parser`."""

from __future__ import annotations

import argparse
import importlib.util
import math
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch_geometric

from torch_gckm import __version__
from torch_gckm.cli.graphs import NamedGraph, read_graph
from torch_gckm.cli.label import label
from torch_gckm.cli.numbers import fit_numbers, load_estimator, write_numbers
from torch_gckm.cli.outputs import check_outputs, note, plain, working, write_classes, write_suggestions, write_table
from torch_gckm.cli.searches import search_files, search_options
from torch_gckm.cli.shards import shard
from torch_gckm.datasets import data_root
from torch_gckm.errors import InvalidInputError
from torch_gckm.nn import KernelLayers
from torch_gckm.progress import Bar
from torch_gckm.report import require_bokeh, write_report
from torch_gckm.select import GCKMEnsemble, search
from torch_gckm.train import accuracy

if TYPE_CHECKING:
    from torch_gckm.estimators import GCKMClassifier
    from torch_gckm.tables import TableEncoding

EXTRAS = {
    "sklearn": "sklearn", "tables": "pyarrow", "report": "bokeh", "plot": "matplotlib", "tune": "optuna",
    "datasets": "ogb", "sparse": "torch_sparse",
}  # fmt: skip


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
        named = "the digits" if args.dataset == "digits" else args.dataset or (args.features or args.edges).name
        title = f"Classes of {named}"
        write_report(
            args.report, classifier, title=title, seconds=classifier.seconds_, command=args.command,
            progress=not args.quiet,
        )  # fmt: skip
        note(f"{args.report}: written")
    share = accuracy(ensemble.predict(), labels.y, labels.test)
    if not math.isnan(share):
        note(f"{100 * share:.1f} % of {int(labels.test.sum())} test nodes are right")


def predict(args: argparse.Namespace) -> None:
    """Write the classes of all nodes of a graph."""
    from torch_gckm.estimators.tables import encoding_of  # Needs scikit-learn.

    check_outputs(args, args.output, model=args.model)
    classifier = load_estimator(args.model)
    classes = getattr(classifier, "classes_", None)
    if getattr(classifier, "scales_", None) is not None:
        raise InvalidInputError(f"{args.model} predicts several labels per node; use GCKMClassifier.load in Python")
    write = write_numbers if classes is None else write_classes
    if all(part is None for part in (args.dataset, args.features, args.edges, args.n_neighbors, args.labels)):
        write(args.output, classifier, None, classifier.node_names_)
        return
    if args.dataset is None and args.features is None:
        told = "needs features: give --features, with --edges or --n-neighbors"
        if classifier.structural_:
            told = "was fitted without features and knows its own nodes only: fit again to a graph with the new nodes"
        raise InvalidInputError(f"{args.model} {told}")
    if args.directed and not classifier.directed_:
        raise InvalidInputError(f"{args.model} was fitted to undirected edges; leave out --directed")
    args.directed = classifier.directed_ and args.n_neighbors is None
    encoding = encoding_of(classifier)
    if classes is None:
        args.labels = None  # Numbers are predicted whatever is known.
    names = None if classes is None else [str(name) for name in classes.tolist()]
    graph = _read(args, names, encoding, classifier.node_names_ or [])
    if encoding is not None and graph.columns is None and args.features is not None:
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
    with working("choosing nodes"):
        nodes = classifier.suggest(args.count)
    write_suggestions(classifier.explain_suggestions(nodes), classifier.node_names_)


def embed(args: argparse.Namespace) -> None:
    """Write embeddings of all nodes, made without labels."""
    check_outputs(args, args.output)
    graph = _read(args)
    layers = KernelLayers(graph.data.num_features, args.channels or (64, 16), aggregation=args.aggregation)
    with torch.no_grad(), working("embedding"):
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
    clustering = GCKMClustering(count, args.channels, args.aggregation, random_state=args.seed, directed=args.directed)
    with working("clustering"):
        found = clustering.fit_predict(graph.data)
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
    encoding: TableEncoding | None = None,
    fitted: Sequence[str] | None = None,
) -> NamedGraph:
    with working("reading the graph"):
        graph = read_graph(args, classes, encoding, fitted)
    _summarise(graph)
    return graph


def _summarise(graph: NamedGraph) -> None:
    if graph.summary is not None:
        note(graph.summary)


def _read_labelled(args: argparse.Namespace) -> NamedGraph:
    with Bar("reading the graph", shown=not args.quiet):
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


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "fit": fit, "predict": predict, "search": search_settings, "suggest": suggest, "label": label, "embed": embed,
    "cluster": cluster, "shard": shard, "demo": fit, "info": info,
}  # fmt: skip
