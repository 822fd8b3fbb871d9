"""``gckm shard``: a graph as a folder of arrays, of which many processes read parts."""

import argparse
from pathlib import Path

import numpy as np

from torch_gckm.cli.graphs import NamedGraph, read_graph
from torch_gckm.cli.outputs import note
from torch_gckm.datasets import ShardFolder, write_shards
from torch_gckm.datasets.npy import Array, NpyFile
from torch_gckm.datasets.shard_format import check_replaceable
from torch_gckm.errors import InvalidInputError
from torch_gckm.files import check_writable


def shard(args: argparse.Namespace) -> None:
    """Write a graph to a folder of arrays."""
    _check_folder(args)
    if args.target == "numeric" and args.dataset is not None:
        raise InvalidInputError("the labels of datasets are classes; --target numeric goes with --features")
    partition = None if args.partition is None else read_partition(args.partition)
    graph = read_graph(args)
    if graph.summary is not None:
        note(graph.summary)
    if not args.labels and args.dataset is None:
        graph.data.y = None
    has_classes = graph.data.y is not None and args.target == "class"
    folder = write_shards(
        graph.data, args.folder, partition=partition, class_names=graph.classes if has_classes else None,
        node_names=_names(graph), feature_names=graph.columns, overwrite=args.overwrite, progress=not args.quiet,
    )  # fmt: skip
    print(f"{args.folder}: {_described(folder)}")


def read_partition(path: Path) -> Array:
    """The part of every node, from a text file with a number per line, or an NPY file."""
    if path.suffix == ".npy":
        return NpyFile.open(path).read()
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not a text file in UTF-8: {error}") from error
    cells = [line.strip() for line in lines]
    while cells and not cells[-1]:
        cells.pop()
    wrong = next((place for place, cell in enumerate(cells) if not _is_whole(cell)), None)
    if wrong is not None:
        raise InvalidInputError(f"{path}, line {wrong + 1}: not the number of a part: '{cells[wrong][:50]}'")
    return np.array([int(cell) for cell in cells], dtype=np.int64)


def _is_whole(cell: str) -> bool:
    return cell.isascii() and cell.isdecimal() and len(cell) < 19  # 64 bits hold so many digits.


def _check_folder(args: argparse.Namespace) -> None:
    """Refuse, before the work, a folder that cannot be written or that holds an input."""
    folder = args.folder.resolve()
    check_replaceable(folder, args.overwrite)
    check_writable(folder.parent / f"{folder.name}.partial")
    for path in (args.features, args.edges, args.labels, args.partition):
        if path is not None and folder in path.resolve().parents:
            raise InvalidInputError(f"{path} is in {args.folder}: it would be overwritten")


def _names(graph: NamedGraph) -> list[str] | None:
    """The names of the nodes, unless they are numbers from 0 on."""
    is_numbered = all(name == str(number) for number, name in enumerate(graph.nodes))
    return None if is_numbered else graph.nodes


def _described(folder: ShardFolder) -> str:
    parts = [f"{folder.num_nodes:,} nodes", f"{folder.num_features:,} columns", f"{folder.num_edges:,} directed edges"]
    if folder.num_classes is not None:
        parts.append(f"{folder.num_classes} classes")
    if folder.boundaries is not None:
        parts.append(f"{len(folder.boundaries) - 1} parts")
    size = sum(path.stat().st_size for path in folder.folder.iterdir())
    return f"{', '.join(parts)}; {size / 2**20:.1f} MB"
