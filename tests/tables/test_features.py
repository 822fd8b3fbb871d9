import numpy as np
import pytest

from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.tables import read_edges, read_features, read_labels, read_nodes


def write(tmp_path, text, name="x.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


TABLE = "node,age,region,member\nn0,20,a,true\nn1,,b,false\nn2,40,a,true\n"


def test_a_table_with_a_heading(tmp_path):
    table = read_features(write(tmp_path, TABLE))
    assert table.nodes == ["n0", "n1", "n2"]
    assert table.encoding.names == ["age", "age=(blank)", "region=a", "region=b", "member"]
    up, down = 0.5**0.5, -(2**0.5)  # Of two thirds, with mean 0 and deviation 1.
    np.testing.assert_allclose(table.x[:, 1:], [[0, up, -up, up], [1, down, -down, down], [0, up, -up, up]], rtol=1e-6)
    np.testing.assert_allclose(table.x[:, 0], [-1, 0, 1])
    new = write(tmp_path, "node,member,age,region\nn9,false,60,b\n", "new.csv")
    np.testing.assert_allclose(read_features(new, known=table.encoding).x, [[3, 0, down, -down, down]], rtol=1e-6)
    with pytest.raises(InvalidInputError, match=r"new.csv, line 2: 'old' in column 'age'"):
        read_features(write(tmp_path, "node,member,age,region\nn9,false,old,b\n", "new.csv"), known=table.encoding)
    with pytest.raises(InvalidInputError, match=r"new.csv has other columns .* lacks member"):
        read_features(write(tmp_path, "node,age,region\nn9,1,b\n", "new.csv"), known=table.encoding)


@pytest.mark.parametrize("heading", ["customer,2019,2020,region", "node,2019,2020,region", "customer,x,y,region"])
def test_headings_beside_words(tmp_path, heading):
    path = write(tmp_path, f"{heading}\nc0,1,2,a\nc1,3,4,b\nc2,5,7,a\n")
    if heading.startswith("customer,2"):
        with pytest.raises(InvalidInputError, match="line 1: 'region' is not a number; words and dates need a first"):
            read_features(path)
    else:
        assert read_features(path).encoding.columns == heading.split(",")[1:]


def test_a_first_node_of_words_is_no_heading(tmp_path):
    path = write(tmp_path, "n0,red,small\nn1,blue,small\nn2,red,large\n")
    with pytest.raises(InvalidInputError, match="line 1: 'red' is not a number"):
        read_features(path)
    path, edges = write(tmp_path, "n0,ann\nn1,bob\n"), write(tmp_path, "n1,n0\nn0,n1\n", "edges.csv")
    with pytest.raises(InvalidInputError, match="line 1: 'ann' is not a number"):
        read_features(path, [edges])


def test_columns_without_names(tmp_path):
    with pytest.warns(GCKMWarning, match="different units"):
        plain = read_features(write(tmp_path, "n0,1,2000\nn1,2,3000\nn2,5,9000\n"))
    assert plain.encoding is None
    assert plain.x.tolist() == [[1, 2000], [2, 3000], [5, 9000]]
    known = read_features(write(tmp_path, "node,a,b\nn0,1,2000\nn1,2,3000\nn2,5,9000\n"))
    assert known.encoding.units_differ
    again = read_features(write(tmp_path, "n0,1,2000\nn1,2,3000\nn2,5,9000\n"), known=known.encoding)
    np.testing.assert_array_equal(again.x, known.x)
    np.save(tmp_path / "x.npy", plain.x.numpy())
    np.testing.assert_array_equal(read_features(tmp_path / "x.npy", known=known.encoding).x, known.x)
    with pytest.raises(InvalidInputError, match="has 1 columns without names, but the model was fitted to 2: a, b"):
        read_features(write(tmp_path, "n0,1.5\nn1,2.5\n"), known=known.encoding)
    words = read_features(write(tmp_path, TABLE)).encoding
    with pytest.raises(InvalidInputError, match="has no heading: column 'region' holds words"):
        read_features(write(tmp_path, "n0,1.5,2,3\nn1,2,3,4\n"), known=words)


def test_nodes_of_edges_and_labels(tmp_path):
    edges = write(tmp_path, "person,friend\nc-1,c-2\nc-2,c-3\n", "edges.csv")
    labels = write(tmp_path, "person,kind\nc-3,new\nc-4,old\n", "y.csv")
    table = read_nodes(edges, labels)
    assert table.nodes == ["c-1", "c-2", "c-3", "c-4"]
    assert table.x is None
    assert read_edges(edges, table)[0].size(1) == 4
    assert read_labels(labels, table) == {2: "new", 3: "old"}
    assert len(table.headings) == 2
    assert read_nodes(write(tmp_path, "a,b\nb,c\n", "edges.csv"), None).nodes == ["a", "b", "c"]
    with pytest.raises(InvalidInputError, match=r"line 1: is person, friend a node\? if it is"):
        read_nodes(write(tmp_path, "person,friend\nann,bob\nbob,cat\n", "edges.csv"), None)
    assert len(read_nodes(write(tmp_path, "from,to\nann,bob\nbob,cat\n", "edges.csv"), None).nodes) == 3
    with pytest.raises(InvalidInputError, match="line 2: a node has no name"):
        read_nodes(write(tmp_path, "from,to\nann,\nbob,cat\n", "edges.csv"), None)
    with pytest.raises(InvalidInputError, match="there is nothing to learn from"):
        read_nodes(write(tmp_path, "from,to\n", "edges.csv"), None)


def test_edges_and_labels_of_parquet(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"from": [1, 2], "to": [2, 3], "amount": [0.5, 7.0]}).to_parquet(tmp_path / "e.parquet")
    pd.DataFrame({"node": [1, 3], "kind": ["a", None]}).to_parquet(tmp_path / "y.parquet")
    pd.DataFrame({"node": [1, 2, 3], "age": [1.0, None, 3.0]}).to_parquet(tmp_path / "x.parquet")
    table = read_features(tmp_path / "x.parquet")
    assert table.nodes == ["1", "2", "3"]
    assert table.encoding.names == ["age", "age=(blank)"]
    edges, weight = read_edges(tmp_path / "e.parquet", table)
    assert edges.t().tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert weight.tolist() == [0.5, 0.5, 7.0, 7.0]
    assert read_labels(tmp_path / "y.parquet", table) == {0: "a"}
    pd.DataFrame({"node": range(30), "text": [f"t{row}" for row in range(30)]}).to_parquet(tmp_path / "x.parquet")
    with (
        pytest.warns(GCKMWarning, match="left out"),
        pytest.raises(InvalidInputError, match=r"x.parquet has no column of numbers"),
    ):
        read_features(tmp_path / "x.parquet")


def test_a_table_needs_a_column_of_names(tmp_path):
    with pytest.raises(
        InvalidInputError, match=r"x\.csv, line 2: '52\.7' is no name of a node.* put a column of names"
    ):
        read_features(write(tmp_path, "age,income\n52.7,100\n31,200\n"))
    assert read_features(write(tmp_path, "node,a,b\n0.0,1,2\n1.0,2,3\n")).nodes == ["0.0", "1.0"]
    with pytest.raises(InvalidInputError, match=r"x\.csv, line 4: there is another node called 'b'"):
        read_features(write(tmp_path, "node,x,y\nb,1,2\na,2,3\nb,3,4\n"))


def test_units_without_a_heading_are_told(tmp_path):
    lines = "".join(f"n{node},{20 + node},{1000 * node}\n" for node in range(9))
    with pytest.warns(GCKMWarning, match=r"x\.csv seem to have different units; with a heading that names them"):
        assert read_features(write(tmp_path, lines)).x[2].tolist() == [22, 2000]
