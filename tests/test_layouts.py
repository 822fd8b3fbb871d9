import numpy as np
import pytest
import scipy.sparse
import torch

from torch_gckm import layouts
from torch_gckm.errors import GCKMWarning
from torch_gckm.layouts import (
    csr_matrix,
    from_scipy,
    prefers_sparse,
    same_values,
    scale_columns,
    scale_rows,
    to_csr,
    warn_of_lost_digits,
    with_short_indices,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse CSR tensor support is in beta")


def words(n=12, d=7):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, d, generator=generator) * (torch.rand(n, d, generator=generator) < 0.3)


@pytest.mark.parametrize("convert", [lambda x: x, torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_csr_of_any_layout(convert):
    x = convert(words())
    sparse = to_csr(x)
    assert sparse.layout == torch.sparse_csr
    assert torch.equal(sparse.to_dense(), words())
    assert to_csr(sparse) is sparse


def test_scipy_and_back():
    sparse = to_csr(words())
    there = layouts.to_scipy(sparse)
    assert np.shares_memory(there.data, sparse.values().numpy())
    assert torch.equal(from_scipy(there).to_dense(), words())
    twice = scipy.sparse.coo_matrix(([1.0, 2.0, 5.0], ([1, 1, 0], [2, 2, 1])), shape=(2, 3))
    assert from_scipy(twice).to_dense().tolist() == [[0.0, 5.0, 0.0], [0.0, 0.0, 3.0]]


def test_equal_places_add_up():
    matrix = csr_matrix(torch.tensor([[0, 1, 0], [2, 0, 2]]), torch.tensor([1.0, 5.0, 2.0]), (2, 3))
    assert matrix.layout == torch.sparse_csr
    assert matrix.to_dense().tolist() == [[0.0, 0.0, 3.0], [5.0, 0.0, 0.0]]


@pytest.mark.parametrize("convert", [lambda x: x, torch.Tensor.to_sparse_csr])
def test_rows_and_columns_are_scaled_in_a_copy(convert):
    x, rows, columns = convert(words()), torch.arange(1.0, 13.0), torch.arange(1.0, 8.0)
    assert torch.equal(scale_rows(x, rows).to_dense(), words() * rows.unsqueeze(1))
    assert torch.equal(scale_columns(x, columns).to_dense(), words() * columns)
    assert torch.equal(x.to_dense(), words())


def test_same_values():
    x = words()
    assert same_values(x, x)
    assert same_values(x, x.clone())
    assert same_values(x.to_sparse_csr(), x.to_sparse_csr())
    assert same_values(x.t(), x.t().contiguous())
    for other in (x + 1, x[:5], x.double(), x.to_sparse_csr()):
        assert not same_values(x, other)
    assert not same_values(x.to_sparse_csr(), (x + 1).to_sparse_csr())
    square = torch.arange(9.0).view(3, 3)
    assert not same_values(square, square.t())  # The same memory, read in another order.


def test_which_matrices_are_faster_as_sparse_ones():
    few = torch.zeros(1100, 1000)
    few[:, 0] = 1.0
    assert prefers_sparse(few)
    assert not prefers_sparse(torch.ones(1100, 1000))
    assert not prefers_sparse(few[:100])  # Small.
    assert not prefers_sparse(few.to_sparse())
    assert not prefers_sparse(few.clone().requires_grad_())


class TestLostDigits:
    times = torch.tensor([[0.0, 1700000001.0], [1.0, 1700000050.0], [0.5, 1700000101.0]], dtype=torch.float64)

    def test_numbers_that_single_precision_blurs(self):
        with pytest.warns(GCKMWarning, match=r"column 1 .* makes 1700000000 of 1700000050; subtract a constant"):
            warn_of_lost_digits(self.times, torch.float32)
        with pytest.warns(GCKMWarning, match="column 'time'"):
            warn_of_lost_digits(self.times.long(), torch.float32, ["share", "time"])

    @pytest.mark.parametrize(
        "x",
        [
            times - torch.tensor([0.0, 1.7e9]),
            times[:1],
            times.to_sparse(),
            times.float(),
            torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
            torch.full((3, 1), 1700000001.0, dtype=torch.float64),  # No more is lost than there was.
            torch.tensor([[True], [False]]),
        ],
    )
    def test_others(self, x):
        warn_of_lost_digits(x, torch.float32)

    def test_double_precision_keeps_them(self):
        warn_of_lost_digits(self.times, torch.float64)


def test_short_indices():
    x = to_csr(torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]]))
    short = with_short_indices(x)
    assert short.crow_indices().dtype == short.col_indices().dtype == torch.int32
    assert torch.equal(short.to_dense(), x.to_dense())
    v = torch.randn(3, 2)
    torch.testing.assert_close(short @ v, x @ v)
