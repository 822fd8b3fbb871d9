import numpy as np
import pytest

from torch_gckm.errors import InvalidInputError
from torch_gckm.tables.columns import MatrixTable, TextTable


def table(*cells):
    return TextTable(["a"], [list(cells)], lambda row: f"x.csv, line {row + 2}")


@pytest.mark.parametrize(("cells", "kind"), [
    (["1", "2.5", ""], "number"),
    (["true", "false", ""], "flag"),
    (["2020-01-01", "NA"], "date"),
    (["red", "blue", "red"], "words"),
    (["", "nan"], "number"),
    (["red", "1", "blue"], "words"),
])  # fmt: skip
def test_kinds(cells, kind):
    column = table(*cells).column("a")
    assert column.kind == kind
    blank = [cell in ("", "NA", "nan") for cell in cells]
    assert column.is_known.tolist() == [not each for each in blank]


@pytest.mark.parametrize(("cells", "message"), [
    (["1", "2", "red"], "x.csv, line 4: 'red' is not a number, as most cells of column 'a' are"),
    (["2020-01-01", "2020-31-01"], "x.csv, line 3: '2020-31-01' is not a date"),
    (["1", "inf"], "x.csv, line 3: a value is infinite"),
    (["1", "1e39"], "x.csv, line 3: a value is too large for single precision"),
])  # fmt: skip
def test_cells_that_differ_from_others_are_refused(cells, message):
    with pytest.raises(InvalidInputError, match=message):
        table(*cells).column("a")


def test_the_kind_that_a_model_knows():
    assert table("12", "7").column("a", "words").values.tolist() == ["12", "7"]
    assert table("1", "red", "2").column("a", "words").values.tolist() == ["1", "red", "2"]
    assert table("0", "1").column("a", "flag").values.tolist() == [0.0, 1.0]
    assert table("true", "false").column("a", "number").values.tolist() == [1.0, 0.0]
    assert np.isnan(table("", "").column("a", "date").values).all()
    for kind in ("number", "flag", "date"):
        with pytest.raises(InvalidInputError, match="line 3: 'red' in column 'a' is none of the"):
            table("", "red").column("a", kind)


def test_arrays_have_numbers_only():
    with pytest.raises(InvalidInputError, match="column 'b' holds words"):
        MatrixTable(["a", "b"], np.eye(2)).column("b", "words")
