import numpy as np
import pytest

from torch_gckm.errors import InvalidInputError
from torch_gckm.estimators.labels import NumberedLabels, is_labelled


@pytest.mark.parametrize(("y", "classes", "numbers"), [
    (np.array([5, -1, 3, 5]), [3, 5], [1, -1, 0, 1]),
    (np.array([1.0, -1.0, 0.0]), [0.0, 1.0], [1, -1, 0]),
    (np.array(["b", "a", -1]), ["a", "b"], [1, 0, -1]),  # NumPy makes "-1" of it.
    (np.array(["b", -1, "a"], dtype=object), ["a", "b"], [1, -1, 0]),
    (np.array([True, False]), [False, True], [1, 0]),
])  # fmt: skip
def test_classes_of_any_kind(y, classes, numbers):
    found = NumberedLabels.of_rows(y)
    assert found.classes.tolist() == classes
    assert found.places.tolist() == numbers
    assert is_labelled(y).tolist() == [number >= 0 for number in numbers]


@pytest.mark.parametrize("y", [np.array([1, 1, -1]), np.array([-1, -1]), np.array(["a", "-1"])])
def test_two_classes_are_needed(y):
    with pytest.raises(InvalidInputError, match="at least two classes"):
        NumberedLabels.of_rows(y)


def test_numbers_that_are_no_classes():
    with pytest.raises(ValueError, match="Unknown label type"):
        NumberedLabels.of_rows(np.array([0.5, 1.7, 2.2]))
