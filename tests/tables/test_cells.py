import math
from datetime import UTC, datetime

import numpy as np
import pytest

from torch_gckm.tables.cells import as_dates, as_flags, as_numbers, day_of, is_number


def test_numbers_and_blanks():
    found = as_numbers(["1", "-2.5e3", "", "NA", "nan", "None"])
    np.testing.assert_array_equal(found, [1.0, -2500.0, *[math.nan] * 4])
    assert as_numbers(["1", "red"]) is None
    assert as_numbers(["1_000", "2"]) is None
    assert not is_number("1_000")


def test_true_and_false():
    np.testing.assert_array_equal(as_flags(["true", "False", "", "TRUE"]), [1.0, 0.0, math.nan, 1.0])
    assert as_flags(["true", "yes"]) is None


def test_dates():
    np.testing.assert_array_equal(as_dates(["1970-01-02", "", "31.12.1969", "1970/01/03"]), [1.0, math.nan, -1.0, 2.0])
    assert day_of("2024-02-29T12:00:00+02:00") == datetime(2024, 2, 29, 10, tzinfo=UTC).timestamp() / 86_400
    assert as_dates(["2024-02-30"]) is None


@pytest.mark.parametrize("cell", ["12/31/2020", "2020", "1.5.20", "2020-1-1", "2020-01/01", "20200101"])
def test_what_is_no_date_for_sure(cell):
    assert day_of(cell) is None
