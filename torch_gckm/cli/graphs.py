"""Graphs from the command line: a dataset by its name, or files with tables of named nodes."""

import argparse
import csv
import math
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.layouts import from_scipy
from torch_gckm.neighbours import nearest_edges
from torch_gckm.panels import check_finite


@dataclass
class NamedGraph:
    """A graph whose nodes and classes have names."""

    data: Data  # Features, edges, classes (-1: unknown) and perhaps masks.
    nodes: list[str]
    classes: list[str]


def add_graph_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options by which a command is given a graph."""
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
        "--directed", action="store_true", help="keep directions of edges (fit and search try all ways)"
    )


def add_seed(parser: argparse._ActionsContainer) -> None:
    """Add the option of a seed."""
    parser.add_argument("--seed", type=int, default=0, help="of a random choice of labels, and of a search")


def read_graph(args: argparse.Namespace, classes: Sequence[str] | None = None) -> NamedGraph:
    """The graph that the options name; the names of its classes are given, in order, or those that occur."""
    if (args.dataset is None) == (args.features is None):
        raise InvalidInputError("name a graph with --dataset, or give --features and --edges")
    if args.dataset is None:
        return _from_files(args, classes)
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


def _from_files(args: argparse.Namespace, classes: Sequence[str] | None) -> NamedGraph:
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
    nodes, x = read_features(args.features)
    places = {name: place for place, name in enumerate(nodes)}
    if args.edges is None:
        if not 1 <= args.n_neighbors < len(nodes):
            raise InvalidInputError(f"--n-neighbors must be from 1 to {len(nodes) - 1}, got {args.n_neighbors}")
        dense = x if x.layout == torch.strided else x.to_dense()
        data = Data(x=x, edge_index=nearest_edges(dense.numpy(), args.n_neighbors))
    else:
        edges, weight = read_edges(args.edges, places, args.directed)
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
    return (0, float(name), name) if _is_number(name) else (1, 0.0, name)


def read_features(path: Path) -> tuple[list[str], Tensor]:
    """The names of nodes and their features, from CSV (node, numbers), NPY or NPZ."""
    if path.suffix in (".npy", ".npz"):
        x = _from_numpy(path)
        return [str(node) for node in range(x.size(0))], x
    rows = list(_rows(path))
    if rows and (not any(map(_is_number, rows[0][1][1:])) or not rows[0][1][0]):
        rows = rows[1:]  # A heading; tables with an index have one that begins with an empty cell.
    if not rows or len(rows[0][1]) < 2:
        hint = "; separate cells by commas" if rows and ";" in rows[0][1][0] else ""
        raise InvalidInputError(f"{path} needs lines of a node and numbers{hint}")
    width = len(rows[0][1])
    for number, cells in rows:
        wrong = next((cell for cell in cells[1:] if cell and not _is_number(cell)), None)
        if len(cells) != width or wrong is not None:
            what = f"'{wrong}' is not a number" if wrong is not None else f"{len(cells)} cells instead of {width}"
            raise InvalidInputError(f"{path}, line {number}: {what}")
        if not cells[0]:
            raise InvalidInputError(f"{path}, line {number}: a node has no name")
        if not all(cell and math.isfinite(float(cell)) for cell in cells[1:]):
            raise InvalidInputError(f"{path}, line {number}: a value is missing or infinite; fill it, or drop the node")
    names = [cells[0] for _, cells in rows]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"{path} names a node twice")
    values = np.array([[float(cell) for cell in cells[1:]] for _, cells in rows], dtype=np.float32)
    return names, torch.from_numpy(values)


def read_edges(path: Path, places: dict[str, int], directed: bool = False) -> tuple[Tensor, Tensor | None]:
    """Edges ``[2, E]`` and their weights ``[E]``, from CSV (node, node, perhaps a weight)."""
    ends, weights = [], []
    for number, cells in _rows(path):
        if number == 1 and not any(cell in places for cell in cells[:2]):
            continue  # A heading.
        known = len(cells) in (2, 3) and cells[0] in places and cells[1] in places
        if not known or (len(cells) == 3 and not _is_number(cells[2])):
            shown = ", ".join(cells)
            raise InvalidInputError(f"{path}, line {number}: not two known nodes and perhaps a weight: {shown}")
        ends.append((places[cells[0]], places[cells[1]]))
        weights.append(float(cells[2]) if len(cells) == 3 else 1.0)
    if not ends:
        warnings.warn(f"{path} has no edges: nodes will be told apart by their features alone", GCKMWarning, 2)
    edges = torch.tensor(ends, dtype=torch.long).view(-1, 2).t()
    # A pair that occurs twice counts once, with the mean of its weights.
    join = coalesce if directed else to_undirected
    edges, weight = join(edges, torch.tensor(weights), len(places), reduce="mean")
    return edges, None if bool((weight == 1).all()) else weight


def read_labels(path: Path, places: dict[str, int]) -> dict[int, str]:
    """The classes of nodes, from CSV (node, class); nodes without a class, or with -1, are left out."""
    rows = list(_rows(path))
    if rows and rows[0][1][0] not in places and rows[0][1][1:] not in [cells[1:] for _, cells in rows[1:]]:
        rows = rows[1:]  # A heading: no node, and a class that occurs nowhere else.
    found: dict[int, str] = {}
    for number, cells in rows:
        if len(cells) != 2 or cells[0] not in places:
            raise InvalidInputError(f"{path}, line {number}: not a known node and its class: {', '.join(cells)}")
        name, place = "" if cells[1] == "-1" else cells[1], places[cells[0]]
        if name and found.get(place, name) != name:
            raise InvalidInputError(f"{path}, line {number}: '{cells[0]}' has two classes, {found[place]} and {name}")
        if name:
            found[place] = name
    return found


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The lines of a table that are not empty: their numbers and cells."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            delimiter = "\t" if path.suffix == ".tsv" else ","
            for number, cells in enumerate(csv.reader(file, delimiter=delimiter), start=1):
                if any(cell.strip() for cell in cells):
                    yield number, [cell.strip() for cell in cells]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(f"{path} is not a text file in UTF-8") from error


def _from_numpy(path: Path) -> Tensor:
    """The matrix of a file, ``[n, d]``."""
    try:
        content = np.load(path, allow_pickle=False)
        if path.suffix == ".npz" and "format" in content:
            return from_scipy(scipy.sparse.load_npz(path).astype(np.float32))
        array = content if path.suffix == ".npy" else content["x" if "x" in content else content.files[0]]
        x = torch.from_numpy(np.asarray(array, dtype=np.float32))
    except (ValueError, EOFError, IndexError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"{path} holds no matrix of numbers: {error}") from error
    if x.dim() != 2:
        raise InvalidInputError(f"{path} holds an array of shape {tuple(x.shape)}; a row for every node is needed")
    check_finite(x, str(path))
    return x


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
