"""Graphs from the command line: a dataset by its name, or files."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels import to_csr
from torch_gckm.neighbours import nearest_rows

Row = tuple[int, list[str]]  # The number of a line, and its cells.


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
    named.add_argument("--labels-a-class", type=int, metavar="N", help="use so many labels of every class, at random")
    named.add_argument("--seed", type=int, default=0, help="of that choice, and of a search")
    files = parser.add_argument_group("a graph in files; first lines that are headings are skipped")
    files.add_argument("--features", type=Path, metavar="FILE", help="CSV: node, numbers; or NPY, NPZ")
    files.add_argument("--edges", type=Path, metavar="FILE", help="CSV: node, node, perhaps a weight")
    files.add_argument("--neighbours", type=int, metavar="N", help="without edges: join nodes to their nearest")
    files.add_argument("--labels", type=Path, metavar="FILE", help="CSV: node, class; no class where it is not known")


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
    split = None if args.labels_a_class is None else PerClassSplit(args.labels_a_class, seed=args.seed)
    try:
        data = load(args.dataset, args.root, transform=split)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    names = [str(number) for number in range(int(data.y.max()) + 1)]
    return NamedGraph(data, [str(node) for node in range(data.num_nodes)], names)


def _from_files(args: argparse.Namespace, classes: Sequence[str] | None) -> NamedGraph:
    nodes, x = _features(args.features)
    places = {name: place for place, name in enumerate(nodes)}
    if len(places) < len(nodes):
        raise InvalidInputError(f"{args.features} names a node twice")
    if args.edges is not None:
        edges, weight = _edges(args.edges, places)
    elif args.neighbours is not None:
        edges, weight = _nearest(x, args.neighbours), None
    else:
        raise InvalidInputError("give --edges, or --neighbours to join every node to its nearest others")
    data = Data(x=x, edge_index=edges, edge_weight=weight)
    found = {} if args.labels is None else _labels(args.labels, places)
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
    return (0, float(name), name) if name.lstrip("-").isdigit() else (1, 0.0, name)


def _rows(path: Path) -> Iterator[Row]:
    if not path.exists():
        raise InvalidInputError(f"there is no file {path}")
    with path.open(newline="") as file:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        for number, cells in enumerate(csv.reader(file, delimiter=delimiter), start=1):
            if any(cell.strip() for cell in cells):
                yield number, [cell.strip() for cell in cells]


def _features(path: Path) -> tuple[list[str], Tensor]:
    if path.suffix in (".npy", ".npz"):
        x = _from_numpy(path)
        return [str(node) for node in range(x.size(0))], x
    rows = list(_rows(path))
    if rows and not all(map(_is_number, rows[0][1][1:])):
        rows = rows[1:]  # A heading.
    if not rows or len(rows[0][1]) < 2:
        raise InvalidInputError(f"{path} needs lines of a node and numbers")
    width = len(rows[0][1])
    for number, cells in rows:
        wrong = next((cell for cell in cells[1:] if not _is_number(cell)), None)
        if len(cells) != width or wrong is not None:
            what = f"'{wrong}' is not a number" if wrong is not None else f"{len(cells)} cells instead of {width}"
            raise InvalidInputError(f"{path}, line {number}: {what}")
    values = np.array([[float(cell) for cell in cells[1:]] for _, cells in rows], dtype=np.float32)
    return [cells[0] for _, cells in rows], torch.from_numpy(values)


def _from_numpy(path: Path) -> Tensor:
    if not path.exists():
        raise InvalidInputError(f"there is no file {path}")
    try:
        content = np.load(path, allow_pickle=False)
        if path.suffix == ".npz" and "indptr" in content:
            matrix = scipy.sparse.coo_matrix(scipy.sparse.load_npz(path))
            places = torch.from_numpy(np.stack([matrix.row, matrix.col]).astype(np.int64))
            values = torch.from_numpy(matrix.data.astype(np.float32))
            return to_csr(torch.sparse_coo_tensor(places, values, matrix.shape, check_invariants=False).coalesce())
        array = content if path.suffix == ".npy" else content["x" if "x" in content else content.files[0]]
        return torch.from_numpy(np.asarray(array, dtype=np.float32))
    except ValueError as error:
        raise InvalidInputError(f"{path} holds no matrix of numbers: {error}") from error


def _edges(path: Path, places: dict[str, int]) -> tuple[Tensor, Tensor | None]:
    ends, weights = [], []
    for number, cells in _rows(path):
        known = len(cells) in (2, 3) and cells[0] in places and cells[1] in places
        if not known or (len(cells) == 3 and not _is_number(cells[2])):
            if number == 1:
                continue  # A heading.
            shown = ", ".join(cells)
            raise InvalidInputError(f"{path}, line {number}: not two known nodes and perhaps a weight: {shown}")
        ends.append((places[cells[0]], places[cells[1]]))
        weights.append(float(cells[2]) if len(cells) == 3 else 1.0)
    edges = torch.tensor(ends, dtype=torch.long).view(-1, 2).t()
    # A pair that occurs twice counts once, with the mean of its weights.
    edges, weight = to_undirected(edges, torch.tensor(weights), len(places), reduce="mean")
    return edges, None if bool((weight == 1).all()) else weight


def _labels(path: Path, places: dict[str, int]) -> dict[int, str]:
    found: dict[int, str] = {}
    for number, cells in _rows(path):
        if len(cells) != 2 or cells[0] not in places:
            if number == 1:
                continue  # A heading.
            raise InvalidInputError(f"{path}, line {number}: not a known node and its class: {', '.join(cells)}")
        if cells[1]:
            found[places[cells[0]]] = cells[1]
    return found


def _nearest(x: Tensor, count: int) -> Tensor:
    if not 1 <= count < x.size(0):
        raise InvalidInputError(f"--neighbours must be from 1 to {x.size(0) - 1}, got {count}")
    dense = x.to_dense() if x.layout != torch.strided else x
    near = nearest_rows(dense.numpy(), count)
    return to_undirected(torch.stack([near.flatten(), torch.arange(len(near)).repeat_interleave(count)]))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
