import sys
from datetime import date
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse

from torch_gckm.errors import InvalidInputError
from torch_gckm.tables.columns import MatrixTable
from torch_gckm.tables.frames import FrameTable, read_parquet, table_of, texts_of

pd = pytest.importorskip("pandas")


def column(values, **options):
    return FrameTable(pd.DataFrame({"a": pd.Series(values, **options)})).column("a")


@pytest.mark.parametrize(("values", "options", "kind", "expected"), [
    ([1, 2, None], {"dtype": "Int64"}, "number", [1, 2, np.nan]),
    ([True, None], {"dtype": "boolean"}, "flag", [1, np.nan]),
    ([True, False], {}, "flag", [1, 0]),
    ([Decimal("1.5"), None], {}, "number", [1.5, np.nan]),
    ([True, None], {"dtype": object}, "flag", [1, np.nan]),
    ([date(1970, 1, 2), None], {"dtype": object}, "date", [1, np.nan]),
    (pd.to_datetime(["1970-01-02T12:00+12:00", None]), {}, "date", [1, np.nan]),
    (["1970-01-02", None], {}, "date", [1, np.nan]),
    (["true", "False"], {}, "flag", [1, 0]),
    ([1, 2], {"dtype": "category"}, "words", ["1", "2"]),
    (["1", "2"], {}, "words", ["1", "2"]),
    ([" red", "NA", pd.NA, 1.0], {"dtype": object}, "words", ["red", None, None, "1"]),
    ([None, None], {"dtype": object}, "number", [np.nan, np.nan]),
])  # fmt: skip
def test_columns_of_pandas(values, options, kind, expected):
    found = column(values, **options)
    assert found.kind == kind
    if kind == "words":
        assert found.values.tolist() == expected
    else:
        np.testing.assert_array_equal(found.values, expected)


def test_other_types_are_refused():
    with pytest.raises(InvalidInputError, match="column 'a' is of type complex128; make real numbers"):
        column([1j, 2j])
    with pytest.raises(InvalidInputError, match="two columns called 'a'"):
        table_of(pd.DataFrame([[1, "x", 2]], columns=["a", "b", "a"]))
    with pytest.raises(InvalidInputError, match="row 1: 'red' in column 'a' is none of the dates"):
        FrameTable(pd.DataFrame({"a": [None, "red"]})).column("a", "date")


def test_what_is_a_table():
    assert isinstance(table_of(pd.DataFrame({"a": [1, 2]})), MatrixTable)
    sparse = pd.DataFrame.sparse.from_spmatrix(scipy.sparse.eye(3))
    for other in (np.eye(3), [[1.0]], sparse, pd.Series([1])):
        assert table_of(other) is None


def test_texts_keep_names():
    assert texts_of(pd.Series([1.0, None, "NA", "None"], dtype=object)) == ["1", "", "NA", "None"]


def test_parquet(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="node")).to_parquet(path)
    assert read_parquet(path).columns.tolist() == ["node", "a"]
    path.write_bytes(b"no")
    with pytest.raises(InvalidInputError, match="is not a Parquet file"):
        read_parquet(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"torch_gckm\[tables\]"):
        read_parquet(path)


def test_a_word_among_numbers_is_refused():
    with pytest.raises(InvalidInputError, match="row 2: 'alt' is not a number, as most values of column 'a' are"):
        column([1, 2.5, "alt", None, 3])
    assert column(["x", "y", 3], dtype=object).kind == "words"
