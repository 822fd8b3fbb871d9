import pytest

from torch_gckm.errors import InvalidInputError
from torch_gckm.tables.lines import read_lines


def rows_of(tmp_path, text, name="x.csv"):
    (tmp_path / name).write_text(text)
    return read_lines(tmp_path / name).rows


@pytest.mark.parametrize(("text", "rows"), [
    ("a,b\n1,2\n", [["a", "b"], ["1", "2"]]),
    ("a;b\n1;2\n", [["a", "b"], ["1", "2"]]),
    ("a\tb\n1\t2\n", [["a", "b"], ["1", "2"]]),
    ("a;b;c\n1,5;2;x\n", [["a", "b", "c"], ["1.5", "2", "x"]]),
    ("n0;1,5;2,25\nn1;1,0;2,5\n", [["n0", "1.5", "2.25"], ["n1", "1.0", "2.5"]]),
    ("node,a;b,c\nn0,1,2\n", [["node", "a;b", "c"], ["n0", "1", "2"]]),
    ('"x, y";1\n"z";2\n', [["x, y", "1"], ["z", "2"]]),
    ("one\ntwo\n", [["one"], ["two"]]),
    ("", []),
])  # fmt: skip
def test_what_separates_cells(tmp_path, text, rows):
    assert rows_of(tmp_path, text) == rows


def test_the_first_line_alone_does_not_decide(tmp_path):
    assert rows_of(tmp_path, "n0\t1,5\nn1\t2,x,y\n") == [["n0", "1,5"], ["n1", "2,x,y"]]
    with pytest.raises(InvalidInputError, match="separated by commas or semicolons"):
        rows_of(tmp_path, "a b,c;d e\nf,g;h\n")
    assert rows_of(tmp_path, "a,b;c\n", "x.tsv") == [["a,b;c"]]


@pytest.mark.parametrize(("text", "message"), [
    ("a;b\n1,5;2.5\n", r"line 2: '1,5' has a decimal comma, and '2.5' a decimal point"),
    ("a;b\n1,234;2\n", r"line 2: '1,234' may be a thousand or a fraction"),
])  # fmt: skip
def test_decimal_commas_that_are_not_clear(tmp_path, text, message):
    with pytest.raises(InvalidInputError, match=message):
        rows_of(tmp_path, text)


def test_lines_keep_their_numbers(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n\n1,2\n")
    lines = read_lines(tmp_path / "x.csv")
    assert lines.where(1) == f"{tmp_path / 'x.csv'}, line 3"
    assert lines.rest().where(0) == lines.where(1)
    assert read_lines(tmp_path / "x.npy").rows == []
