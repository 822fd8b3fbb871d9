"""Small graphs with named nodes, as sessions and as files."""

import csv

import pytest

from tests.conftest import make_graph
from torch_gckm import GCKMClassifier
from torch_gckm.label import LabellingSession

CLASSES = ["ant", "bee", "cat"]
NAMES = [f"n{node}" for node in range(60)]


@pytest.fixture
def unlabelled():
    """A graph without labels."""
    graph = make_graph()
    del graph.y, graph.train_mask, graph.val_mask, graph.test_mask
    return graph


@pytest.fixture
def truth():
    """The class of every node."""
    return [CLASSES[number] for number in make_graph().y.tolist()]


@pytest.fixture
def quick():
    """A classifier that tries four settings."""
    return GCKMClassifier(budget=None, max_settings=4, members=2, workers=1, progress=False)


@pytest.fixture
def start(unlabelled, quick, tmp_path):
    """What starts a session that keeps its answers in one file, so that a second one continues the first."""

    def start(data=unlabelled, **options):
        given = {"node_names": NAMES, "classes": CLASSES, "classifier": quick}
        return LabellingSession(data, tmp_path / "labels.csv", **given | options)

    return start


def rows_of(path):
    """The rows of a table, without its heading."""
    with path.open(newline="") as file:
        return [tuple(row) for row in csv.reader(file)][1:]
