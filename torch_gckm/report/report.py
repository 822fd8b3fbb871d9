"""One self-contained page about a fit."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch_geometric.data import Data

from torch_gckm.files import PathLike, write_atomically
from torch_gckm.plot.common import Subject
from torch_gckm.plot.embedding import Method
from torch_gckm.progress import Bar
from torch_gckm.report import facts, markup
from torch_gckm.report.classes import ClassFit, class_page
from torch_gckm.report.drawing import Drawings, require_bokeh
from torch_gckm.report.markup import join, section
from torch_gckm.report.values import ValueFit, value_page
from torch_gckm.select import SearchResult, ValueEnsemble
from torch_gckm.train import History


def write_report(
    path: PathLike,
    model: Any,
    data: Data | None = None,
    *,
    history: History | None = None,
    result: SearchResult | None = None,
    names: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
    title: str | None = None,
    seconds: Mapping[str, float] | None = None,
    command: str | None = None,
    seed: int | None = None,
    embedding: Method = "auto",
    split: int | None = None,
    progress: bool = False,
) -> None:
    """Write a page about a fitted model: one HTML file that needs no other, and no network.

    .. code-block:: python

        history = Trainer(model).fit(data)
        write_report("report.html", model, data, history=history)
        write_report("report.html", GCKMClassifier().fit(data))
        write_report("report.html", GCKMRegressor().fit(data))

    Leave-one-out numbers are about the state before fine-tuning and self-training, see
    :func:`~torch_gckm.plot.withheld`; where none is valid, the page gives the reason.

    Args:
        path: The file to write.
        model: A fitted ``GCKMClassifier``, also with several labels per node, ``GCKMRegressor``, ``GCKM`` or
            ``GCKMEnsemble``.
        data: The graph it was fitted on, with its labels; an estimator keeps it.
        history: The history of a single model's fit.
        result: The result of the search that an ensemble comes from; an estimator keeps it.
        names: Names of the classes, or of the columns of numbers; by default those of a classifier, else numbers.
        nodes: Names of the nodes; by default those of an estimator, else numbers.
        title: The heading of the page.
        seconds: How long stages took, by their names.
        command: The command or code that made the fit.
        seed: Its seed.
        embedding: How to draw embeddings, see :func:`~torch_gckm.plot.embedding`; of many nodes, t-SNE places some, and
            the others between these.
        split: The column to use of masks ``[n, splits]``.
        progress: Show a progress bar.
    """
    require_bokeh()
    with Bar("report", 3, unit=" parts", shown=progress) as bar:
        _write(path, model, data, history, result, names, nodes, title, seconds, command, seed, embedding, split, bar)


def _write(
    path: PathLike, model: Any, data: Data | None, history: History | None, result: SearchResult | None,
    names: Sequence[str] | None, nodes: Sequence[str] | None, title: str | None, seconds: Mapping[str, float] | None,
    command: str | None, seed: int | None, embedding: Method, split: int | None, bar: Bar,
) -> None:  # fmt: skip
    """Write the page: what the models say, then the drawings, then the file."""
    start, drawings = time.perf_counter(), Drawings()
    fitted = getattr(model, "model_", model)
    if command is None and getattr(model, "graph_", None) is not None:
        command = f"{model!r}.fit(...)"
    if isinstance(fitted, ValueEnsemble):
        values = ValueFit.of(model, data, names, nodes, split)
        members, used = values.members, title or values.title
    else:
        subject = Subject.of(model, names)
        classes = ClassFit.of(subject, subject.data(data), history, nodes, split)
        members, used = subject.members, title or "Node classification report"
    making = facts.Making(
        members, getattr(model, "result_", None) if result is None else result, history, seconds or {}, command,
        getattr(model, "random_state", None) if seed is None else seed,
    )  # fmt: skip
    bar.update()
    if isinstance(fitted, ValueEnsemble):
        sections = value_page(values, used, making, embedding, drawings)
    else:
        sections = class_page(classes, used, making, embedding, drawings)
    sections += facts.tail(making, time.perf_counter() - start)
    bar.update()
    sections.append(section("Words", markup.glossary()))
    body, scripts = drawings.finish(join(sections))
    content = markup.page(used, body, scripts)
    write_atomically(path, lambda file: file.write(content.encode()))
    bar.update()
