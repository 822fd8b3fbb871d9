import ast
import time

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.tables import TableEncoding, read_features, table_of
from torch_gckm.tables.columns import MatrixTable, TextTable

pd = pytest.importorskip("pandas")


def learn(table):
    return TableEncoding.learn(table_of(table) if isinstance(table, pd.DataFrame) else table)


def test_it_is_what_scikit_learn_makes_of_columns(frame):
    with pytest.warns(GCKMWarning, match="column 'email' is left out: 60 different words in 60 rows"):
        encoding, found = learn(frame)
    days = (frame["since"] - pd.Timestamp(0)) / pd.Timedelta(days=1)
    numbers = np.stack([frame["income"], frame["age"], days], axis=1)
    filled = SimpleImputer(add_indicator=True).fit_transform(numbers)
    # Deviations are those of the values that are known, as StandardScaler has them.
    scaled = np.nan_to_num(StandardScaler().fit_transform(numbers), nan=0.0)
    words = OneHotEncoder(sparse_output=False).fit_transform(frame[["region"]].astype(object).fillna("~"))
    expected = np.column_stack(
        [scaled[:, 0], filled[:, 3], scaled[:, 1], words, frame["member"], scaled[:, 2], filled[:, 4]]
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert encoding.names == [
        "income", "income=(blank)", "age", "region=north", "region=south", "region=town", "region=(blank)", "member",
        "since", "since=(blank)",
    ]  # fmt: skip
    assert encoding.summary() == (
        "1 column of words one-hot, 1 date column as days, 1 true/false as 1/0, blanks filled in 3 columns, left out: "
        "email, columns scaled: units differ"
    )


def test_files_and_frames_are_the_same(frame, tmp_path):
    with pytest.warns(GCKMWarning, match="email"):
        encoding, expected = learn(frame)
    frame.insert(0, "customer", [f"n{row}" for row in range(len(frame))])
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_csv(tmp_path / "x.tsv", index=False, sep="\t")
    frame.to_csv(tmp_path / "semicolons.csv", index=False, sep=";", decimal=",")
    names = ["x.csv", "x.tsv", "semicolons.csv"]
    try:
        frame.to_parquet(tmp_path / "x.parquet", index=False)
        names.append("x.parquet")
    except ImportError:
        pass
    for name in names:
        with pytest.warns(GCKMWarning, match="email"):
            table = read_features(tmp_path / name)
        assert table.encoding == encoding
        np.testing.assert_array_equal(table.x, expected)
    with pytest.warns(GCKMWarning, match="email"):
        again = learn(pd.read_csv(tmp_path / "x.csv").drop(columns="customer"))
    assert again[0] == encoding
    np.testing.assert_array_equal(again[1], expected)


@pytest.mark.filterwarnings("ignore:column 'email'")
def test_columns_are_known_by_their_names(frame):
    encoding, expected = learn(frame)
    order = np.random.default_rng(0).permutation(frame.columns)
    np.testing.assert_array_equal(encoding.apply(table_of(frame[order])), expected)
    np.testing.assert_array_equal(encoding.apply(table_of(frame.drop(columns="email"))), expected)  # It was left out.
    np.testing.assert_array_equal(encoding.apply(table_of(frame[20:30])), expected[20:30])
    with pytest.raises(InvalidInputError, match="it lacks age"):
        encoding.apply(table_of(frame.drop(columns="age")))
    with pytest.raises(InvalidInputError, match="the model does not know shoe"):
        encoding.apply(table_of(frame.assign(shoe=1)))


@pytest.mark.filterwarnings("ignore:column 'email'")
def test_words_and_blanks_that_are_new(frame):
    encoding, expected = learn(frame)
    new = frame.copy()
    new.loc[2, "region"], new["age"] = "moon", new["age"].astype(float)
    new.loc[4, "age"] = np.nan
    with pytest.warns(GCKMWarning) as told:
        found = encoding.apply(table_of(new))
    texts = [str(warning.message) for warning in told]
    assert any("column 'region': 'moon' in row 2 is new and counts as no word" in text for text in texts)
    assert any("column 'age' has blanks" in text and "row 4" in text for text in texts)
    assert found[2, 3:7].tolist() == [0.0] * 4
    assert found[4, 2] == pytest.approx(0.0, abs=1e-6)
    others = [row for row in range(60) if row not in (2, 4)]
    np.testing.assert_array_equal(found[others], expected[others])
    new["age"] = "old"
    with pytest.raises(InvalidInputError, match="row 0: 'old' in column 'age' is none of the numbers"):
        encoding.apply(table_of(new))


@pytest.mark.parametrize(("columns", "is_scaled"), [
    ({"age": [20.0, 30, 40, 60], "income": [2e4, 5e4, 3e4, 9e4]}, True),
    ({"a": [1.0, 2, 3, 5], "b": [5.0, 4, 6, 2]}, False),
    ({"rare": [0.0, 0, 0, 1], "word": [1.0, 0, 2, 0], "often": [3.0, 1, 2, 5]}, False),  # Words of texts.
    ({"first": [-30.0, 30, -10, 10], "last": [1.0, 1, -1, -1]}, False),  # Principal components.
    ({"one": [0.0, 1, 1, 0], "two": [1.0, 1, 1, 0]}, False),
    ({"age": [20.0, 30, 40, 60], "region": ["a", "b", "a", "b"]}, True),
])  # fmt: skip
def test_columns_are_scaled_if_their_units_differ(columns, is_scaled):
    frame = pd.DataFrame(columns)
    encoding, found = learn(frame)
    assert encoding.units_differ == is_scaled
    assert ("units differ" in encoding.summary()) == is_scaled
    if not is_scaled:
        assert encoding.is_plain
        np.testing.assert_array_equal(found, frame.to_numpy(dtype=np.float32))


def test_columns_that_are_mostly_zero_stay_so():
    frame = pd.DataFrame({"age": [20.0, 30, 40, 60], "fee": [0.0, 0, 0, 5_000.0], "same": [7.3] * 4})
    np.testing.assert_allclose(learn(frame)[1][:, 1:], [[0, 0], [0, 0], [0, 0], [1, 0]])


def test_many_words_and_nothing_to_learn():
    words = [f"w{number % 150}" for number in range(450)]
    with pytest.warns(GCKMWarning, match="150 different words; the 100 most frequent"):
        encoding, found = learn(pd.DataFrame({"city": words}))
    assert found.shape == (450, 100)
    assert encoding.apply(table_of(pd.DataFrame({"city": ["w0", "w999"]}))).sum() == 1  # Rare words are no news.
    with (
        pytest.warns(GCKMWarning, match="identifiers"),
        pytest.raises(InvalidInputError, match="the table has no column of numbers, dates or words"),
    ):
        learn(pd.DataFrame({"text": [f"t{number}" for number in range(40)]}))
    with pytest.warns(GCKMWarning, match="column 'b' is left out: it has no values"):
        assert learn(pd.DataFrame({"a": [1.0, 2.0], "b": [None, None]}))[0].names == ["a"]


def test_seconds_since_1970_keep_their_digits():
    stamps = 1_700_000_000.0 + np.arange(50.0)
    found = learn(pd.DataFrame({"age": np.arange(50.0) % 7, "time": stamps, "kind": ["a", "b"] * 25}))[1]
    assert np.unique(found[:, 1]).size == 50


@pytest.mark.filterwarnings("ignore:column 'email'")
def test_state_is_plain_data(frame):
    encoding, expected = learn(frame)
    state = ast.literal_eval(repr(encoding.state()))
    assert TableEncoding.from_state(state) == encoding
    np.testing.assert_array_equal(TableEncoding.from_state(state).apply(table_of(frame)), expected)


def test_wide_tables_are_fast():
    draw = np.random.default_rng(0)
    cells = [list(map(str, column)) for column in (draw.random((2_000, 300)) < 0.1).astype(int).T.tolist()]
    names = [f"w{number}" for number in range(300)]
    begin = time.process_time()
    _, found = TableEncoding.learn(TextTable(names, cells, str))
    assert time.process_time() - begin < 3.0
    np.testing.assert_array_equal(found, np.array(cells, dtype=np.float32).T)
    assert TableEncoding.learn(MatrixTable(names, found))[0].is_plain
