"""Numbers that single precision cannot hold."""

import numpy as np
import pytest
import torch

from tests.faults.test_silent import classifier, rows_of
from torch_gckm.errors import GCKMWarning, InvalidInputError


class TestPrecision:
    def test_digits_that_are_lost_are_told(self, graph):
        x, y = rows_of(graph)
        x = np.column_stack([x.astype(np.float64), 1_000_000 + 0.3 * np.arange(len(x))])
        with pytest.warns(GCKMWarning, match="column 8 differ by too little for single precision"):
            classifier().fit(x, y)
        data = graph.clone()
        data.x = torch.from_numpy(x)
        with pytest.warns(GCKMWarning, match="column 8 differ by too little for single precision"):
            classifier().fit(data)

    def test_numbers_that_are_too_large_are_refused(self, graph):
        x, y = rows_of(graph)
        x = x.astype(np.float64)
        x[3, 2] = 1e39
        with pytest.raises(InvalidInputError, match="too large for single precision"):
            classifier().fit(x, y)
