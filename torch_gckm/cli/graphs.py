"""Graphs from the command line: a dataset by its name, or files with tables of named nodes."""

import argparse
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import with_structural_features
from torch_gckm.neighbours import nearest_edges
from torch_gckm.tables import FeatureTable, TableEncoding, read_edges, read_features, read_labels, read_nodes
from torch_gckm.tables.cells import is_number


@dataclass
class NamedGraph:
    """A graph whose nodes and classes have names."""

    data: Data  # Features, edges, classes (-1: unknown) and perhaps masks; how features of a table were encoded.
    nodes: list[str]
    classes: list[str]
    columns: list[str] | None = None  # The names of the features, if the file has a heading.
    summary: str | None = None  # What was read from files.


def read_graph(
    args: argparse.Namespace,
    classes: Sequence[str] | None = None,
    encoding: TableEncoding | None = None,
    fitted: Sequence[str] | None = None,
) -> NamedGraph:
    """The graph that the options name; its classes are those given, in order, or those that occur.

    Features of files are encoded as those of a model were, or as it suits them. Edges of files may lead to ``fitted``
    nodes of a model: the graph's ``new_edges`` are then those of new nodes. A model may know none.
    """
    if args.dataset is None and args.features is None and args.edges is None:
        raise InvalidInputError("name a graph with --dataset, or give --features, --edges or both")
    if args.dataset is not None and args.features is not None:
        raise InvalidInputError("give --dataset or --features, not both")
    if args.dataset is None:
        return _from_files(args, classes, encoding, fitted)
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


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector, which would look again and again at millions of cells: twice as fast."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_collector_paused()
def _from_files(
    args: argparse.Namespace,
    classes: Sequence[str] | None,
    encoding: TableEncoding | None,
    fitted: Sequence[str] | None = None,
) -> NamedGraph:
    for option, value in (("--split", args.split), ("--labels-per-class", args.labels_per_class)):
        if value is not None:
            raise InvalidInputError(f"{option} goes with --dataset; the labels of a file are all used")
    if args.features is not None and (args.edges is None) == (args.n_neighbors is None):
        raise InvalidInputError("give --edges, or --n-neighbors to join every node to its nearest others, and not both")
    if args.n_neighbors is not None and args.features is None:
        raise InvalidInputError("--n-neighbors goes with --features, by which nodes are near")
    if args.directed and args.n_neighbors is not None:
        raise InvalidInputError("--directed goes with --edges or --dataset; nearest others have no direction")
    for path in (args.features, args.edges, args.labels):
        if path is not None and not path.is_file():
            raise InvalidInputError(f"there is no file {path}")
    others = [path for path in (args.edges, args.labels) if path is not None]
    if args.features is None:
        table = read_nodes(args.edges, args.labels)
    else:
        table = read_features(args.features, others, encoding)
    nodes = table.nodes
    if table.x is None:
        edges, weight = read_edges(args.edges, table, args.directed)
        data = with_structural_features(Data(edge_index=edges, edge_weight=weight, num_nodes=len(nodes)))
    elif args.edges is None:
        if not 1 <= args.n_neighbors < len(nodes):
            raise InvalidInputError(f"--n-neighbors must be from 1 to {len(nodes) - 1}, got {args.n_neighbors}")
        dense = table.x if table.x.layout == torch.strided else table.x.to_dense()
        data = Data(x=table.x, edge_index=nearest_edges(dense.numpy(), args.n_neighbors))
    else:
        data = _joined(args, table, table.x, fitted)
    if table.encoding is not None:
        data.encoding = table.encoding
    numeric = getattr(args, "target", "class") == "numeric"
    found = {} if args.labels is None else read_labels(args.labels, table, numeric=numeric)
    if numeric:
        return _with_numbers(data, found, table, args.labels)
    names = sorted(set(found.values()), key=_natural) if classes is None else list(classes)
    number = {name: place for place, name in enumerate(names)}
    data.y = torch.full((len(nodes),), -1)
    for place, name in found.items():
        if name not in number:
            raise InvalidInputError(f"{args.labels} has the class '{name}', which the model does not know")
        data.y[place] = number[name]
    return _named(data, table, names, _labels_read(data, names))


def _joined(args: argparse.Namespace, table: FeatureTable, x: Tensor, fitted: Sequence[str] | None) -> Data:
    """The graph of a file of edges, or, if some lead to fitted nodes, new nodes and their ``new_edges``."""
    if not fitted or not set(fitted).isdisjoint(table.nodes):  # A whole graph, which has fitted nodes perhaps.
        hint = ""
        if fitted is not None:
            both = next((node for node in table.nodes if node in set(fitted)), None) if fitted else None
            hint = "; a model for other graphs only (--inductive) knows no nodes of its own"
            if both is not None:
                hint = (
                    f"; {args.features} has '{both}' of the fitted graph: give new nodes alone, or the whole new graph"
                )
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
    return Data(x=x, new_edges=edges, edge_weight=weight, table=table)


def _with_numbers(data: Data, found: dict[int, str], table: FeatureTable, path: Path | None) -> NamedGraph:
    """The graph with numbers as targets, NaN where unknown."""
    data.y = torch.full((len(table.nodes),), torch.nan, dtype=torch.float64)
    for place, cell in found.items():
        if not is_number(cell):
            raise InvalidInputError(
                f"{path}: '{cell}' is not a number; leave out --target numeric if these are classes"
            )
        data.y[place] = float(cell)
    return _named(data, table, [], [f"{len(found):,} numbers to learn from"])


def _labels_read(data: Data, classes: Sequence[str]) -> list[str]:
    known = int((data.y >= 0).sum())
    shown = ", ".join(classes[:8]) + (", ..." if len(classes) > 8 else "")
    return [f"{known:,} labels of {len(classes)} classes: {shown}"] if known else []


def _named(data: Data, table: FeatureTable, classes: list[str], labels: list[str]) -> NamedGraph:
    """The graph, and what was read, in a line, so that nothing is taken for something else unnoticed."""
    width = len(table.encoding.columns) if table.encoding is not None else data.num_features
    to_fitted = data.get("new_edges")
    edges = f"{data.num_edges:,} directed edges" if to_fitted is None else "edges to nodes of the fitted graph"
    features = f"{width:,} columns" if table.x is not None else "no features: nodes are known by their edges"
    parts = [f"{data.num_nodes:,} nodes", features, edges]
    if data.edge_weight is not None:
        parts.append(f"weights {_size(float(data.edge_weight.min()))} to {_size(float(data.edge_weight.max()))}")
    done = [] if table.encoding is None else [table.encoding.summary()]
    headings = f"headings: {', '.join(table.headings)}" if table.headings else "no headings"
    told = "; ".join(filter(None, [", ".join([*parts, *labels]), *done, headings]))
    columns = table.encoding.names if table.encoding is not None and table.has_names else None
    return NamedGraph(data, table.nodes, classes, columns, told)


def _size(weight: float) -> str:
    """A number in few digits, without exponent if it is not extreme."""
    return f"{weight:,.0f}" if 100 <= abs(weight) < 1e9 else f"{weight:.3g}"


def _natural(name: str) -> tuple[int, float, str]:
    """Numbers in their order, then names in theirs."""
    return (0, float(name), name) if is_number(name) else (1, 0.0, name)
