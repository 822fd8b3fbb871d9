import numpy as np
import pytest

pd = pytest.importorskip("pandas")


@pytest.fixture
def frame():
    """A table of customers with every kind of column, and blanks."""
    draw = np.random.default_rng(0)
    count = 60
    table = pd.DataFrame({
        "income": draw.normal(40_000, 9_000, count).round(2),
        "age": draw.integers(18, 80, count),
        "region": draw.choice(["north", "south", "town"], count),
        "member": draw.random(count) < 0.4,
        "since": pd.to_datetime("2020-01-01") + pd.to_timedelta(draw.integers(0, 900, count), unit="D"),
        "email": [f"c{number}@shop" for number in range(count)],
    })  # fmt: skip
    table.loc[3, "income"] = np.nan
    table.loc[[5, 9], "region"] = None
    table.loc[7, "since"] = pd.NaT
    return table
