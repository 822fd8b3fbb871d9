"""``gckm label``: a local page for labelling nodes."""

import argparse
import importlib.util
import shlex
from pathlib import Path

from torch_gckm.cli.graphs import read_graph
from torch_gckm.cli.outputs import check_outputs, note
from torch_gckm.errors import InvalidInputError


def label(args: argparse.Namespace) -> None:
    """Serve a page that asks for labels, until Ctrl-C."""
    if importlib.util.find_spec("bokeh") is None:
        raise ImportError("the page for labelling needs Bokeh; install it with: pip install 'torch_gckm[app]'")
    from torch_gckm.estimators import GCKMClassifier  # Needs scikit-learn.
    from torch_gckm.label import LabellingSession
    from torch_gckm.label.server import serve

    if not args.budget > 0:
        raise InvalidInputError(f"--budget must be a positive number of seconds, got {args.budget:g}")
    output = args.output or _usual_output(args)
    check_outputs(args, output)
    graph = read_graph(args)
    if graph.summary is not None:
        note(graph.summary)
    # All classes of a dataset are known; those of a file are named, or some occur among its labels.
    classes = [*args.classes, *graph.classes] if args.dataset is not None else args.classes
    session = LabellingSession(
        graph.data,
        output,
        classes=classes,
        class_names=graph.classes,
        node_names=graph.nodes,
        feature_names=graph.columns,
        classifier=GCKMClassifier(budget=args.budget, random_state=args.seed, progress=False),
    )
    if session.resumed:
        note(f"{output}: continued, {len(session.labels):,} labels, {len(session.skipped):,} nodes skipped")
    if session.overruled:
        note(f"{output} has other labels than {args.labels} for {session.overruled:,} nodes, and counts")
    note(f"every answer is saved to {output}")
    named = args.dataset or (args.features or args.edges).name
    serve(session, port=args.port, open_browser=not args.no_browser, title=f"Labels for {named}")
    if not output.exists():
        note(f"no node was labelled, so {output} was not written")
        return
    note(f"{output}: {len(session.labels):,} labels of {len(set(session.labels.values()))} classes")
    if args.dataset is None:
        note(f"go on with: {_fit_command(args, output)}")


def _usual_output(args: argparse.Namespace) -> Path:
    """A file beside the labels, or the features, that is neither of them."""
    beside = args.labels or args.features or args.edges
    if beside is None:
        return Path(f"{(args.dataset or 'graph').replace('/', '-')}.labelled.csv")
    return Path(beside.with_name(f"{beside.stem}.labelled.csv"))


def _fit_command(args: argparse.Namespace, output: Path) -> str:
    """The command that fits to the labels."""
    parts = ["gckm", "fit", "model.pt", *(["--features", args.features] if args.features is not None else [])]
    parts += ["--n-neighbors", args.n_neighbors] if args.edges is None else ["--edges", args.edges]
    parts += ["--directed"] if args.directed else []
    return shlex.join(map(str, [*parts, "--labels", output, "--predictions", "classes.csv"]))
