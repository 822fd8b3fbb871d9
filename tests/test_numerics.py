import pytest
import torch

from torch_gckm.cache import LastCall
from torch_gckm.errors import InvalidInputError
from torch_gckm.numerics import check_finite, fix_signs, one_norm_estimate, with_gradient


def test_one_norm_estimate_is_a_tight_lower_bound():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        a = torch.randn(40, 40, generator=generator, dtype=torch.float64)
        estimate = float(one_norm_estimate(lambda x, a=a: a @ x, lambda x, a=a: a.t() @ x, like=a))
        exact = float(torch.linalg.matrix_norm(a, ord=1))
        assert 0.5 * exact <= estimate <= exact * (1 + 1e-12)


def test_one_norm_estimate_of_zero_is_zero():
    zero = torch.zeros(5, 5)
    assert float(one_norm_estimate(lambda x: zero @ x, lambda x: zero @ x, like=zero)) == 0.0


def test_fix_signs_makes_the_largest_entry_positive():
    x = torch.tensor([[1.0, -2.0], [-3.0, 1.0]])
    assert torch.equal(fix_signs(x), torch.tensor([[-1.0, 2.0], [3.0, -1.0]]))


def test_with_gradient_attaches_what_was_computed_elsewhere():
    x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)
    value = 5.0 * with_gradient(torch.tensor(7.0), [x, y], [torch.tensor([1.0, -1.0]), None])
    assert value.item() == 35.0
    value.backward()
    assert x.grad.tolist() == [5.0, -5.0]
    assert y.grad is None


def test_check_finite_counts_and_names_the_first_row():
    x = torch.zeros(5, 3)
    check_finite(x)
    x[2, 1], x[4, 0] = float("nan"), float("inf")
    with pytest.raises(InvalidInputError, match=r"2 entries that are NaN or infinite, first in row 2"):
        check_finite(x)
    check_finite(torch.full((4, 4), 3e38))  # The sum overflows, the entries do not.


def test_last_call_forgets_written_and_other_tensors():
    cache: LastCall[int] = LastCall()
    calls = []
    x, y = torch.zeros(3), torch.zeros(3)

    def get(tensor: torch.Tensor, number: int = 1) -> int:
        return cache.get((tensor, number), lambda: calls.append(1) or len(calls))

    assert get(x) == get(x) == 1
    assert get(y) == 2  # Equal values, another tensor.
    y += 1
    assert get(y) == 3  # The same tensor, written to.
    assert get(y, 2) == 4
    cache.clear()
    assert get(y, 2) == 5
