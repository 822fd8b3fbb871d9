"""Graphs from the command line: a dataset by its name, or files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.cli.tables import read_edges, read_features, read_labels
from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.errors import InvalidInputError
from torch_gckm.neighbours import nearest_edges


@dataclass
class NamedGraph:
    """A graph whose nodes and classes have names.

    Attributes:
        data: Features, edges, classes (-1: unknown) and perhaps masks.
        nodes: The names of the nodes.
        classes: The names of the classes.
    """

    data: Data
    nodes: list[str]
    classes: list[str]


def add_graph_arguments(parser: argparse.ArgumentParser) -> None:
    """The options by which a command is given a graph."""
    named = parser.add_argument_group("a graph by its name")
    named.add_argument("--dataset", help="digits, cora, citeseer, pubmed, ..., or a node dataset of PyG as Class/name")
    named.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT, else data)")
    named.add_argument("--labels-per-class", type=int, metavar="N", help="use so many labels per class, at random")
    named.add_argument("--split", type=int, metavar="N", help="which of a dataset's splits to use, from 0")
    add_seed(named)
    files = parser.add_argument_group("a graph in files; first lines that are headings are skipped")
    files.add_argument("--features", type=Path, metavar="FILE", help="CSV: node, numbers; or NPY, NPZ")
    files.add_argument("--edges", type=Path, metavar="FILE", help="CSV: node, node, perhaps a weight")
    files.add_argument("--n-neighbors", type=int, metavar="N", help="without edges: join nodes to their nearest")
    files.add_argument("--labels", type=Path, metavar="FILE", help="CSV: node, class; none, or -1, if unknown")
    parser.add_argument(
        "--directed", action="store_true", help="keep the directions of edges (fit and search try all ways)"
    )


def add_seed(parser: argparse._ActionsContainer) -> None:
    """The option of a seed."""
    parser.add_argument("--seed", type=int, default=0, help="of a random choice of labels, and of a search")


def names_a_graph(args: argparse.Namespace) -> bool:
    """Whether the options name a graph, or at least a part of one."""
    return any(getattr(args, name) is not None for name in ("dataset", "features", "edges", "n_neighbors", "labels"))


def read_graph(args: argparse.Namespace, classes: Sequence[str] | None = None) -> NamedGraph:
    """The graph that the options name.

    Args:
        args: The options of :func:`add_graph_arguments`.
        classes: The names of the classes, in order; by default those that occur.
    """
    if (args.dataset is None) == (args.features is None):
        raise InvalidInputError("name a graph with --dataset, or give --features and --edges")
    if args.dataset is None:
        return _from_files(args, classes)
    if args.edges is not None or args.n_neighbors is not None or args.labels is not None:
        raise InvalidInputError(
            "a dataset has its own edges and labels; --edges, --n-neighbors, --labels go with files"
        )
    split = None if args.labels_per_class is None else PerClassSplit(args.labels_per_class, seed=args.seed)
    try:
        data = load(args.dataset, args.root, transform=split, undirected=not args.directed)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    masks = {name: data[name] for name in ("train_mask", "val_mask", "test_mask") if data.get(name) is not None}
    several = {name: mask for name, mask in masks.items() if mask.dim() == 2}
    if args.split is not None and not several:
        raise InvalidInputError(f"{args.dataset} has one split at most; leave out --split")
    for name, mask in several.items():
        if args.split is None or not 0 <= args.split < mask.size(1):
            last = mask.size(1) - 1
            raise InvalidInputError(f"{args.dataset} has several splits: choose one with --split, from 0 to {last}")
        data[name] = mask[:, args.split]
    names = [str(number) for number in range(int(data.y.max()) + 1)]
    return NamedGraph(data, [str(node) for node in range(data.num_nodes)], names)


def _from_files(args: argparse.Namespace, classes: Sequence[str] | None) -> NamedGraph:
    if args.split is not None:
        raise InvalidInputError("--split goes with --dataset; the labels of a file are all used")
    if args.labels_per_class is not None:
        raise InvalidInputError("--labels-per-class goes with --dataset; the labels of a file are all used")
    if (args.edges is None) == (args.n_neighbors is None):
        raise InvalidInputError("give --edges, or --n-neighbors to join every node to its nearest others, and not both")
    if args.directed and args.n_neighbors is not None:
        raise InvalidInputError("--directed goes with --edges or --dataset; nearest others have no direction")
    nodes, x = read_features(args.features)
    places = {name: place for place, name in enumerate(nodes)}
    if args.edges is not None:
        edges, weight = read_edges(args.edges, places, args.directed)
    else:
        edges, weight = _nearest(x, args.n_neighbors), None
    data = Data(x=x, edge_index=edges, edge_weight=weight)
    found = {} if args.labels is None else read_labels(args.labels, places)
    names = sorted(set(found.values()), key=_natural) if classes is None else list(classes)
    number = {name: place for place, name in enumerate(names)}
    data.y = torch.full((len(nodes),), -1)
    for place, name in found.items():
        if name not in number:
            raise InvalidInputError(f"{args.labels} has the class '{name}', which the model does not know")
        data.y[place] = number[name]
    return NamedGraph(data, nodes, names)


def _natural(name: str) -> tuple[int, float, str]:
    """Numbers in their order, then names in theirs."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def _nearest(x: Tensor, count: int) -> Tensor:
    if not 1 <= count < x.size(0):
        raise InvalidInputError(f"--n-neighbors must be from 1 to {x.size(0) - 1}, got {count}")
    dense = x.to_dense() if x.layout != torch.strided else x
    return nearest_edges(dense.numpy(), count)
