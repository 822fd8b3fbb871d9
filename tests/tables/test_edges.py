"""Edges and labels of named nodes."""

import pytest

from tests.tables.test_features import write
from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.tables import read_edges, read_features, read_labels

NUMBERED = "node,a,b\n" + "".join(f"{node},{node}.5,{node % 3}\n" for node in range(6))


@pytest.fixture
def nodes(tmp_path):
    return read_features(write(tmp_path, NUMBERED))


@pytest.mark.parametrize("heading", ["from_customer,to_customer,weight", "u,v,weight", "caller,callee,amount"])
def test_weights_may_be_the_only_usual_name(tmp_path, nodes, heading):
    edges, weight = read_edges(write(tmp_path, f"{heading}\n0,1,2.5\n1,2,3.5\n", "e.csv"), nodes, directed=True)
    assert edges.tolist() == [[0, 1], [1, 2]]
    assert weight.tolist() == [2.5, 3.5]
    with pytest.raises(InvalidInputError, match="sources before targets"):
        read_edges(write(tmp_path, "time,source,target\n1,0,1\n", "t.csv"), nodes)


def test_numbered_columns_are_no_label(tmp_path, nodes):
    path = write(tmp_path, "0,1\n2,gold\n3,silver\n4,gold\n", "y.csv")
    with pytest.raises(InvalidInputError, match=r"y\.csv, line 1: are 0 and 1 numbers of columns, or a node and a"):
        read_labels(path, nodes)
    labels = read_labels(write(tmp_path, "0,1\n2,1\n3,0\n4,0\n", "y.csv"), nodes)
    assert labels == {0: "1", 2: "1", 3: "0", 4: "0"}


def test_a_class_of_the_first_line_alone_is_told(tmp_path, nodes):
    path = write(tmp_path, "0,segment\n2,gold\n3,silver\n4,gold\n", "y.csv")
    with pytest.warns(GCKMWarning, match="line 1: no other node has the class 'segment'; if the line is a heading"):
        assert read_labels(path, nodes)[0] == "segment"
    assert read_labels(write(tmp_path, "node,segment\n2,gold\n3,silver\n", "y.csv"), nodes) == {2: "gold", 3: "silver"}


def test_unknown_nodes_are_told_what_nodes_are_called(tmp_path, nodes):
    with pytest.raises(InvalidInputError, match=r"e\.csv, line 2: .*: 1\.0, 2\.0; nodes are called 0, 1, 2, \.\.\."):
        read_edges(write(tmp_path, "0.0,1.0\n1.0,2.0\n", "e.csv"), nodes)
    with pytest.raises(InvalidInputError, match=r"y\.csv, line 2: not a known node .* x, gold; nodes are called 0, 1"):
        read_labels(write(tmp_path, "node,class\nx,gold\n", "y.csv"), nodes)
