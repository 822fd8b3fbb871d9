import numpy as np
import pytest
import torch

from torch_gckm import panels
from torch_gckm.blocks import blocks, filled, row_dots, times, times_upper
from torch_gckm.errors import InvalidInputError
from torch_gckm.panels import (
    check_finite,
    double_gram,
    fix_signs,
    one_norm_estimate,
    orthonormalize,
)


def test_fix_signs_makes_the_largest_entry_positive():
    x = torch.tensor([[1.0, -2.0], [-3.0, 1.0]])
    assert torch.equal(fix_signs(x), torch.tensor([[-1.0, 2.0], [3.0, -1.0]]))


def test_check_finite_counts_and_names_the_first_row():
    x = torch.zeros(5, 3)
    check_finite(x)
    x[2, 1], x[4, 0] = float("nan"), float("inf")
    with pytest.raises(InvalidInputError, match=r"2 entries that are NaN or infinite, first in row 2"):
        check_finite(x)
    check_finite(torch.full((4, 4), 3e38))  # The sum overflows, the entries do not.


def matrix(num_rows=45, columns=7, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(num_rows, columns, generator=generator, dtype=torch.float64).to(dtype)


def test_sums_and_means():
    x = matrix()
    torch.testing.assert_close(panels.total(x), x.sum())
    torch.testing.assert_close(panels.mean(x), x.mean())
    torch.testing.assert_close(panels.column_sums(x), x.sum(dim=0))
    torch.testing.assert_close(panels.column_means(x), x.mean(dim=0))
    torch.testing.assert_close(panels.centred(x), x - x.mean(dim=0))
    torch.testing.assert_close(panels.column_spread(x), x.std(dim=0, correction=0))
    torch.testing.assert_close(panels.spread(x), x.std())


def test_sums_over_groups():
    groups = torch.tensor([2, 0, 2, 1, 2])
    assert panels.counts(groups, 4).tolist() == [1, 1, 3, 0]
    assert panels.counts(groups).tolist() == [1, 1, 3]
    assert panels.sums_by(groups, torch.arange(5.0), 4).tolist() == [1.0, 3.0, 6.0, 0.0]


def test_accumulate_adds_what_blocks_contribute_and_writes_to_none_of_it():
    parts = list(matrix(6, 2).split(2))
    expected, before = sum(parts), [part.clone() for part in parts]
    torch.testing.assert_close(panels.accumulate(iter(parts)), expected)
    sums = panels.accumulate_each([part, 2 * part] for part in parts)
    torch.testing.assert_close(sums, [expected, 2 * expected])
    assert all(map(torch.equal, parts, before))


def test_questions_about_all_rows():
    mask = torch.tensor([False, True, False, True])
    assert panels.count(mask) == 2
    assert panels.first(mask) == 1
    assert panels.rows_where(mask).tolist() == [1, 3]
    assert panels.holds_somewhere(mask)
    assert not panels.holds_everywhere(mask)
    x = torch.tensor([3.0, -1.0, 7.0])
    assert (float(panels.largest(x)), float(panels.smallest(x))) == (7.0, -1.0)
    assert int(panels.place_of_largest(x)) == 2


def test_row_dots():
    a, b = matrix(), matrix().flip(0).requires_grad_()
    torch.testing.assert_close(row_dots(a, b), (a * b).sum(dim=1))
    (gradient,) = torch.autograd.grad(row_dots(a, b).sum(), b)
    torch.testing.assert_close(gradient, a)


def test_double_gram_of_single_precision():
    x = matrix(20_000, 3, torch.float32)
    result = double_gram(x)
    assert result.dtype == torch.float64
    torch.testing.assert_close(result, x.double().t() @ x.double(), rtol=1e-12, atol=0)


def test_orthonormalize_is_the_polar_factor_and_keeps_the_type():
    for dtype in (torch.float32, torch.float64):
        x = matrix(dtype=dtype)
        u, _, v = torch.linalg.svd(x.double(), full_matrices=False)
        y = orthonormalize(x)
        assert y.dtype == dtype
        torch.testing.assert_close(y.double(), u @ v, atol=1e-6, rtol=0)


def test_draws_follow_the_weight_and_the_seed():
    weight = torch.tensor([0.0, 3.0, 0.0, 1.0], dtype=torch.float64)
    drawn = panels.draw(weight, 4000, np.random.default_rng(0))
    counts = drawn.bincount(minlength=4)
    assert counts[[0, 2]].tolist() == [0, 0]
    assert float(counts[1] / 4000) == pytest.approx(0.75, abs=0.03)
    assert torch.equal(drawn, panels.draw(weight, 4000, np.random.default_rng(0)))
    for make in (lambda seed: panels.random_normal(9, 2, seed), lambda seed: panels.random_order(9, seed)):
        assert torch.equal(make(3), make(3))
        assert not torch.equal(make(3), make(4))


class TestProductsInBlocks:
    @pytest.fixture(autouse=True)
    def small_blocks(self, monkeypatch):
        monkeypatch.setattr("torch_gckm.blocks.BLOCK_ENTRIES", 70)
        monkeypatch.setattr("torch_gckm.blocks.STRIPE", 3)
        monkeypatch.setattr("torch_gckm.panels.STRIPE", 3)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_symmetric_product(self, weighted):
        f = matrix(dtype=torch.float32)
        w = torch.linspace(-1, 2, 45, dtype=torch.float64) if weighted else None
        expected = f.double().t() @ (f.double() if w is None else w.unsqueeze(1) * f.double())
        result = panels.moments(f, w)[0]
        assert result.dtype == torch.float64
        assert torch.equal(result, result.t())
        assert torch.allclose(result, expected, atol=1e-5)
        assert torch.allclose(panels.moments(f, w, torch.float64)[0], expected, atol=1e-13)

    def test_times_upper(self):
        f, upper = matrix(), torch.randn(7, 7, dtype=torch.float64).triu()
        out = torch.full((45, 9), torch.nan, dtype=torch.float64)
        times_upper(f, upper, out[:, :7])
        assert torch.allclose(out[:, :7], f @ upper)
        assert out[:, 7:].isnan().all()

    def test_products_with_thin_matrices(self):
        f, v = matrix(dtype=torch.float32), matrix(7, 3)
        torch.testing.assert_close(times(f, v, torch.float64), f.double() @ v)
        assert times(f, v, torch.float32).dtype == torch.float64  # Of the right side.
        weight = torch.linspace(-1, 2, 45, dtype=torch.float64)
        torch.testing.assert_close(panels.moments(f, weight, torch.float64)[1], f.double().t() @ weight)
        assert panels.moments(f, weight, torch.float32)[1].dtype == torch.float64

    def test_what_is_computed_by_blocks(self):
        f = matrix()
        result = filled(lambda rows: 2.0 * f[rows], f, torch.float32)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, (2.0 * f).float())

    def test_blocks_cover_every_row_once(self):
        for entries in (None, 70):
            found = [(b.start, b.stop) for b in blocks(45, 7, entries)]
            assert found == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 45)]
        assert list(blocks(0, 3)) == []
        assert [(b.start, b.stop) for b in blocks(2, 1000)] == [(0, 1), (1, 2)]  # A row at least.
        assert list(blocks(45, 0)) == [slice(0, 45)]


class TestDraw:
    @pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 5000])
    def test_rows_are_drawn_in_proportion_to_their_weight(self, size):
        weight = torch.rand(size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)
        weight[::3] *= 5.0
        weight[1::7] = 0.0
        drawn = panels.draw(weight, 200_000, np.random.default_rng(0))
        assert 0 <= int(drawn.min()) <= int(drawn.max()) < size
        counts, expected = torch.bincount(drawn, minlength=size), 200_000 * weight / weight.sum()
        assert int(counts[weight == 0].sum()) == 0
        deviation = (counts - expected) / expected.clamp(min=1e-9).sqrt()
        assert float(deviation[weight > 0].abs().max()) < 5.5

    def test_rounding_changes_no_draw(self):
        """Half of the weights grow in the eighth digit; one cumulative sum notices it, the tree does not."""
        weight = torch.rand(200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        shifted = weight.clone()
        shifted[:100_000] *= 1.0 + 1e-7
        first, second = (panels.draw(w, 1000, np.random.default_rng(1)) for w in (weight, shifted))
        assert torch.equal(first, second)
        uniform = np.random.default_rng(1).random(1000)
        sums = [w.numpy().cumsum() for w in (weight, shifted)]
        plain = [np.searchsorted(total, uniform * total[-1]) for total in sums]
        assert (plain[0] != plain[1]).any()

    def test_the_last_row_with_weight_is_never_passed(self):
        class Ones:
            def random(self, size):
                return np.full(size, np.nextafter(1.0, 0.0))

        weight = torch.zeros(300, dtype=torch.float64)
        weight[:70] = 0.1
        assert panels.draw(weight, 3, Ones()).tolist() == [69, 69, 69]


def test_one_norm_estimate_is_a_tight_lower_bound():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        a = torch.randn(40, 40, generator=generator, dtype=torch.float64)
        estimate = float(
            one_norm_estimate(lambda x, a=a: a @ x, lambda x, a=a: a.t() @ x, start=torch.full_like(a[0], 1 / 40))
        )
        exact = float(torch.linalg.matrix_norm(a, ord=1))
        assert 0.5 * exact <= estimate <= exact * (1 + 1e-12)


def test_one_norm_estimate_of_zero_is_zero():
    zero = torch.zeros(5, 5)
    assert float(one_norm_estimate(lambda x: zero @ x, lambda x: zero @ x, start=torch.full((5,), 0.2))) == 0.0
