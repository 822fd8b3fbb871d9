"""What the commands write: tables and notes."""

import argparse
import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import check_writable, write_atomically
from torch_gckm.progress import Bar
from torch_gckm.tables.cells import is_number

if TYPE_CHECKING:
    from torch_gckm.estimators import GCKMClassifier
    from torch_gckm.select.suggestions import Reason


def working(title: str) -> Bar:
    """A line at terminals that says what is being done, for commands whose output others may read."""
    return Bar(title, shown=sys.stderr.isatty())


def check_outputs(args: argparse.Namespace, *outputs: Path | None, model: Path | None = None) -> None:
    """Refuse, before the work, outputs that cannot be written, or that would overwrite each other or an input.

    Inputs are the files of a graph and a ``model``.
    """
    inputs = [model, *(getattr(args, name, None) for name in ("features", "edges", "labels"))]
    taken = {path.resolve() for path in inputs if path is not None}
    for path in filter(None, outputs):
        check_writable(path)
        if path.resolve() in taken:
            raise InvalidInputError(f"{path} is named twice: it would be overwritten")
        if path.is_file() or not path.exists():  # Pipes and devices may take several.
            taken.add(path.resolve())


def write_classes(path: Path | None, classifier: "GCKMClassifier", data: Data | None, nodes: list[str] | None) -> None:
    """Write the two likeliest classes of every node of a graph, by default the fitted one."""
    classes = [str(name) for name in classifier.classes_.tolist()]
    with working("predicting"):
        values, places = torch.as_tensor(classifier.predict_proba(**asked(data))).topk(2, dim=1)
    names = nodes or [str(node) for node in range(len(values))]
    rows = (
        [plain(name), plain(classes[first]), f"{sure:.4f}", plain(classes[second]), f"{less:.4f}"]
        for name, (first, second), (sure, less) in zip(names, places.tolist(), values.tolist(), strict=True)
    )
    write_table(path, ["node", "class", "probability", "second", "second probability"], rows)


def asked(data: Data | None) -> dict[str, Any]:
    """How to ask an estimator about its own graph, about another, or about new nodes with edges to its own."""
    if data is None or "new_edges" not in data:
        return {"X": data}
    return {"X": data.table, "new_edges": data.new_edges, "edge_weight": data.edge_weight}


def write_suggestions(found: "Sequence[Reason]", nodes: list[str] | None) -> None:
    """Print nodes to label next as a table, with what is predicted for them."""
    rows = (
        [
            plain(str(one.node if nodes is None else nodes[one.node])), plain(str(one.guess)), f"{one.probability:.4f}",
            plain(str(one.second)), f"{one.second_probability:.4f}",
        ]
        for one in found
    )  # fmt: skip
    write_table(None, ["node", "class", "probability", "second", "second probability"], rows)


def plain(name: str) -> str:
    """A name that spreadsheets do not take for a formula."""
    return f"'{name}" if name[:1] in tuple("=+-@\t\r") and not is_number(name) else name


def write_table(path: Path | None, header: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file, or to the standard output."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([header, *rows])
    if path is None:
        print(text.getvalue(), end="", flush=True)
    else:
        write_atomically(path, lambda file: file.write(text.getvalue().encode()))
        note(f"{path}: written")


def note(text: str) -> None:
    """Tell something about the work; results go to the standard output."""
    print(text, file=sys.stderr)
