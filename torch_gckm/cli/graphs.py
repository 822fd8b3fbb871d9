"""Graphs from the command line: a dataset by its name, or files with tables of named nodes."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.cli.tables import FeatureTable, is_number, read_edges, read_features, read_labels
from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.errors import InvalidInputError
from torch_gckm.neighbours import nearest_edges


@dataclass
class NamedGraph:
    """A graph whose nodes and classes have names."""

    data: Data  # Features, edges, classes (-1: unknown) and perhaps masks.
    nodes: list[str]
    classes: list[str]
    columns: list[str] | None = None  # The names of the features, if the file has a heading.
    summary: str | None = None  # What was read from files.


def read_graph(
    args: argparse.Namespace,
    classes: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    fitted: Sequence[str] | None = None,
) -> NamedGraph:
    """The graph that the options name; names of its classes and columns are given, in order, or those that occur.

    Edges of files may lead to ``fitted`` nodes of a model: the graph's ``new_edges`` are then those of new nodes. A
    model may know none.
    """
    if (args.dataset is None) == (args.features is None):
        raise InvalidInputError("name a graph with --dataset, or give --features and --edges")
    if args.dataset is None:
        return _from_files(args, classes, columns, fitted)
    if args.edges is not None or args.n_neighbors is not None or args.labels is not None:
        raise InvalidInputError("a dataset has its edges and labels; --edges, --n-neighbors, --labels go with files")
    split = None if args.labels_per_class is None else PerClassSplit(args.labels_per_class, seed=args.seed)
    try:
        data = load(args.dataset, args.root, transform=split, undirected=not args.directed)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    masks = {name: data.get(name) for name in ("train_mask", "val_mask", "test_mask")}
    several = {name: mask for name, mask in masks.items() if mask is not None and mask.dim() == 2}
    if args.split is not None and not several:
        raise InvalidInputError(f"{args.dataset} has one split at most; leave out --split")
    for name, mask in several.items():
        if args.split is None or not 0 <= args.split < mask.size(1):
            last = mask.size(1) - 1
            raise InvalidInputError(f"{args.dataset} has several splits: choose one with --split, from 0 to {last}")
        data[name] = mask[:, args.split]
    names = [str(number) for number in range(int(data.y.max()) + 1)]
    return NamedGraph(data, [str(node) for node in range(data.num_nodes)], names)


def _from_files(
    args: argparse.Namespace,
    classes: Sequence[str] | None,
    columns: Sequence[str] | None,
    fitted: Sequence[str] | None = None,
) -> NamedGraph:
    for option, value in (("--split", args.split), ("--labels-per-class", args.labels_per_class)):
        if value is not None:
            raise InvalidInputError(f"{option} goes with --dataset; the labels of a file are all used")
    if (args.edges is None) == (args.n_neighbors is None):
        raise InvalidInputError("give --edges, or --n-neighbors to join every node to its nearest others, and not both")
    if args.directed and args.n_neighbors is not None:
        raise InvalidInputError("--directed goes with --edges or --dataset; nearest others have no direction")
    for path in (args.features, args.edges, args.labels):
        if path is not None and not path.is_file():
            raise InvalidInputError(f"there is no file {path}")
    others = [path for path in (args.edges, args.labels) if path is not None]
    table = read_features(args.features, others, columns)
    nodes, x = table.nodes, table.x
    if columns is not None and table.columns is not None:
        x = in_order(x, table.columns, columns, args.features)
    if args.edges is None:
        if not 1 <= args.n_neighbors < len(nodes):
            raise InvalidInputError(f"--n-neighbors must be from 1 to {len(nodes) - 1}, got {args.n_neighbors}")
        dense = x if x.layout == torch.strided else x.to_dense()
        data = Data(x=x, edge_index=nearest_edges(dense.numpy(), args.n_neighbors))
    else:
        data = _joined(args, table, x, fitted)
    numeric = getattr(args, "target", "class") == "numeric"
    found = {} if args.labels is None else read_labels(args.labels, table, numeric=numeric)
    if numeric:
        return _with_numbers(data, nodes, found, table, args.labels)
    names = sorted(set(found.values()), key=_natural) if classes is None else list(classes)
    number = {name: place for place, name in enumerate(names)}
    data.y = torch.full((len(nodes),), -1)
    for place, name in found.items():
        if name not in number:
            raise InvalidInputError(f"{args.labels} has the class '{name}', which the model does not know")
        data.y[place] = number[name]
    return NamedGraph(data, nodes, names, table.columns, _summary(data, names, table.headings))


def _joined(args: argparse.Namespace, table: FeatureTable, x: Tensor, fitted: Sequence[str] | None) -> Data:
    """The graph of a file of edges, or, if some lead to fitted nodes, new nodes and their ``new_edges``."""
    if not fitted or not set(fitted).isdisjoint(table.nodes):  # A whole graph, which has fitted nodes perhaps.
        hint = "" if fitted is None else "; a model for other graphs only (--inductive) knows no nodes of its own"
        edges, weight = read_edges(args.edges, table, args.directed, hint)
        return Data(x=x, edge_index=edges, edge_weight=weight)
    size = len(fitted)
    edges, weight = read_edges(args.edges, replace(table, nodes=[*fitted, *table.nodes]), args.directed)
    is_fitted = edges < size
    if not bool(is_fitted.any()):
        return Data(x=x, edge_index=edges - size, edge_weight=weight)
    between = edges[:, is_fitted.all(dim=0)]
    if between.numel():
        first, second = (fitted[node] for node in between[:, 0].tolist())
        raise InvalidInputError(
            f"{args.edges} joins '{first}' and '{second}', which both belong to the fitted graph: give edges of new "
            "nodes alone, or the features and edges of the whole new graph"
        )
    return Data(x=x, new_edges=edges, edge_weight=weight)


def _with_numbers(
    data: Data, nodes: list[str], found: dict[int, str], table: FeatureTable, path: Path | None
) -> NamedGraph:
    """The graph with numbers as targets, NaN where unknown."""
    data.y = torch.full((len(nodes),), torch.nan, dtype=torch.float64)
    for place, cell in found.items():
        if not is_number(cell):
            raise InvalidInputError(
                f"{path}: '{cell}' is not a number; leave out --target numeric if these are classes"
            )
        data.y[place] = float(cell)
    text = f"{data.num_nodes:,} nodes, {data.num_features:,} columns, {data.num_edges:,} directed edges"
    return NamedGraph(data, nodes, [], table.columns, f"{text}, {len(found):,} numbers to learn from")


def _summary(data: Data, classes: Sequence[str], headings: Sequence[str]) -> str:
    """What was read, in a line, so that nothing is taken for something else unnoticed."""
    to_fitted = data.get("new_edges")
    edges = f"{data.num_edges:,} directed edges" if to_fitted is None else "edges to nodes of the fitted graph"
    parts = [f"{data.num_nodes:,} nodes", f"{data.num_features:,} columns", edges]
    if data.edge_weight is not None:
        parts.append(f"weights {float(data.edge_weight.min()):,.3g} to {float(data.edge_weight.max()):,.3g}")
    known = int((data.y >= 0).sum())
    if known:
        shown = ", ".join(classes[:8]) + (", ..." if len(classes) > 8 else "")
        parts.append(f"{known:,} labels of {len(classes)} classes: {shown}")
    return "; ".join([", ".join(parts), *([f"headings: {', '.join(headings)}"] if headings else ["no headings"])])


def in_order(x: Tensor, given: Sequence[str], wanted: Sequence[str], path: Path) -> Tensor:
    """The columns that a model knows by their names, in its order."""
    missing, unknown = [name for name in wanted if name not in given], [name for name in given if name not in wanted]
    if missing or unknown:
        lacks = f"it lacks {', '.join(missing[:5])}" if missing else f"the model does not know {', '.join(unknown[:5])}"
        raise InvalidInputError(f"{path} has other columns than the model was fitted to: {lacks}")
    return x[:, [given.index(name) for name in wanted]]


def _natural(name: str) -> tuple[int, float, str]:
    """Numbers in their order, then names in theirs."""
    return (0, float(name), name) if is_number(name) else (1, 0.0, name)
