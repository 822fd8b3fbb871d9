"""The file of answers: read by 'gckm fit', never written over something else, whole after a kill."""

import os
import signal

import pytest

from tests.label.conftest import NAMES, rows_of
from torch_gckm.errors import InvalidInputError
from torch_gckm.label import LabelFile
from torch_gckm.tables import FeatureTable, read_labels


def test_the_command_line_reads_what_is_written(tmp_path):
    table = FeatureTable(["a,b", "x y", '"', "node"], None)
    file = LabelFile(tmp_path / "y.csv", table.nodes)
    assert file.heading == ["id", "class"]  # A node is called 'node'.
    answers = {0: "3", 2: 'an "odd", name', 1: None, 3: "=1+1"}
    file.write(answers)
    assert read_labels(file.path, table) == {node: name for node, name in answers.items() if name}
    again = LabelFile(file.path, table.nodes).read()
    assert list(again.items()) == list(answers.items())


@pytest.mark.parametrize(
    "content", ["n1,ant\n", "node,label\nn1,ant\n", "a note to myself\n", "\n", "node,class,who\n"]
)
def test_files_of_others_are_left_alone(tmp_path, content):
    path = tmp_path / "y.csv"
    path.write_text(content)
    file = LabelFile(path, NAMES)
    with pytest.raises(InvalidInputError, match="left as it is"):
        file.read()
    with pytest.raises(InvalidInputError, match="left as it is"):
        file.write({0: "ant"})
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("row", "message"),
    [("x,ant", "line 2: not a known"), ("n1,a,b", "line 2"), ("n2,a\nn2,b", "line 3: 'n2' occurs twice")],
)
def test_lines_that_mean_nothing(tmp_path, row, message):
    path = tmp_path / "y.csv"
    path.write_text(f"node,class\n{row}\n")
    with pytest.raises(InvalidInputError, match=message):
        LabelFile(path, NAMES).read()


def test_changes_of_another_program_are_not_overwritten(tmp_path):
    path = tmp_path / "y.csv"
    ours, theirs = LabelFile(path, NAMES), LabelFile(path, NAMES)
    ours.write({0: "ant"})
    theirs.read()
    theirs.write({0: "ant", 1: "bee"})
    with pytest.raises(InvalidInputError, match="changed by another program"):
        ours.write({0: "ant", 2: "cat"})
    assert rows_of(path) == [("n0", "ant"), ("n1", "bee")]
    path.unlink()
    with pytest.raises(InvalidInputError, match="is gone"):
        theirs.write({})


def test_names_must_be_fit_for_a_table(tmp_path):
    with pytest.raises(InvalidInputError, match="two nodes are called 'a'"):
        LabelFile(tmp_path / "y.csv", ["a", "b", "a"])
    with pytest.raises(InvalidInputError, match="blanks around"):
        LabelFile(tmp_path / "y.csv", ["a", " b"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_process_that_is_killed_leaves_a_whole_file(tmp_path):
    """It writes longer and longer files until it is killed."""
    path = tmp_path / "y.csv"
    names = [f"n{node}" for node in range(3000)]
    written, tell = os.pipe()
    child = os.fork()
    if child == 0:
        file = LabelFile(path, names)
        for count in range(1, 3000):
            file.write(dict.fromkeys(range(count), "ant"))
            os.write(tell, b".")
        os._exit(0)
    for _ in range(200):
        os.read(written, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    rows = rows_of(path)
    assert 200 <= len(rows) < 2999
    assert rows == [(name, "ant") for name in names[: len(rows)]]
