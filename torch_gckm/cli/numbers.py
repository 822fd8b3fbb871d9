"""What ``gckm fit --target numeric`` does, and predictions of its files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data

from torch_gckm.cli.graphs import read_graph
from torch_gckm.cli.outputs import asked, check_outputs, note, plain, working, write_table
from torch_gckm.cli.searches import search_files, search_options
from torch_gckm.errors import InvalidInputError
from torch_gckm.files import load_tensors
from torch_gckm.progress import Bar
from torch_gckm.report import require_bokeh, write_report

if TYPE_CHECKING:
    from torch_gckm.estimators import GCKMRegressor


def fit_numbers(args: argparse.Namespace) -> None:
    """Search, combine the best settings for real targets, and save them."""
    from torch_gckm.estimators import GCKMRegressor  # Needs scikit-learn.

    if args.report is not None:
        require_bokeh()
    if args.dataset is not None:
        raise InvalidInputError(
            "the labels of datasets are classes; give --features and --labels with --target numeric"
        )
    check_outputs(args, args.model, args.predictions, args.report, *search_files(args))
    with Bar("reading the graph", shown=not args.quiet):
        graph = read_graph(args)
    if graph.summary is not None:
        note(graph.summary)
    regressor = GCKMRegressor(random_state=args.seed, directed=args.directed, **search_options(args))
    regressor.fit(graph.data, node_names=graph.nodes, feature_names=graph.columns)
    regressor.save(args.model, inductive=args.inductive)
    result = regressor.result_
    assert result is not None
    share, spread = result.best.measures["leave_one_out"], float(regressor.model_.deviation[0])
    spent = f"{len(result)} settings in {sum(regressor.seconds_.values()):.0f} s"
    note(f"{spent}; the best one explains {100 * share:.0f} % of the variance of withheld numbers")
    note(f"{args.model}: {len(regressor.model_.members)} models; the usual error on withheld numbers is {spread:.4g}")
    if args.predictions is not None:
        write_numbers(args.predictions, regressor, None, graph.nodes)
    if args.report is not None:
        title = f"Numbers of {(args.features or args.edges).name}"
        write_report(
            args.report, regressor, title=title, seconds=regressor.seconds_, command=args.command,
            progress=not args.quiet,
        )  # fmt: skip
        note(f"{args.report}: written")


def write_numbers(path: Path | None, regressor: GCKMRegressor, data: Data | None, nodes: list[str] | None) -> None:
    """Write the number of every node of a graph, by default the fitted one, and the spread of its error."""
    values, spread = (torch.as_tensor(part) for part in regressor.predict(**asked(data), return_std=True))
    if values.dim() == 2:
        raise InvalidInputError("the model predicts several columns; use GCKMRegressor.load(path).predict() in Python")
    names = nodes or [str(node) for node in range(len(values))]
    rows = zip(map(plain, names), values.tolist(), spread.tolist(), strict=True)
    write_table(path, ["node", "value", "spread"], ([name, f"{v:.6g}", f"{s:.6g}"] for name, v, s in rows))


def load_estimator(path: Path) -> Any:
    """A classifier or a regressor, whatever a file holds."""
    from torch_gckm.estimators import GCKMClassifier, GCKMRegressor  # Needs scikit-learn.

    if not path.exists():
        raise InvalidInputError(f"there is no file {path}; make one with 'gckm fit'")
    with working("reading the model"):
        is_regressor = str(load_tensors(path).get("format")).startswith("regressor")
        return GCKMRegressor.load(path) if is_regressor else GCKMClassifier.load(path)
