"""One base test for all kernels: each is compared with a naive loop over its formula."""

import math

import pytest
import torch

from torch_gckm.errors import InvalidInputError, ViewError, ZeroRowError
from torch_gckm.kernels import (
    RBF,
    Categorical,
    Cosine,
    Custom,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    NormalizedPolynomial,
    Polynomial,
    Precomputed,
    as_kernel,
    as_rows,
    kernel_from_config,
)


def distance(x, y):
    return float((x - y).norm())


def matern(nu, sigma):
    def value(x, y):
        t = math.sqrt(2 * nu) * distance(x, y) / sigma
        return {0.5: 1.0, 1.5: 1 + t, 2.5: 1 + t + t * t / 3}[nu] * math.exp(-t)

    return value


def normalized_polynomial(x, y):
    def plain(a, b):
        return float(a @ b + 0.7**2) ** 3

    return plain(x, y) / math.sqrt(plain(x, x) * plain(y, y))


CASES = {
    "rbf": (RBF(1.7), lambda x, y: math.exp(-(distance(x, y) ** 2) / (2 * 1.7))),
    "rbf_learned": (RBF(1.7, learnable=True), lambda x, y: math.exp(-(distance(x, y) ** 2) / (2 * 1.7))),
    "laplacian": (Laplacian(2.0), lambda x, y: math.exp(-distance(x, y) / 2.0)),
    "matern12": (Matern(0.5, 1.3), matern(0.5, 1.3)),
    "matern32": (Matern(1.5, 1.3), matern(1.5, 1.3)),
    "matern52": (Matern(2.5, 1.3), matern(2.5, 1.3)),
    "linear": (Linear(), lambda x, y: float(x @ y)),
    "polynomial": (Polynomial(2, 0.5), lambda x, y: float(x @ y + 0.25) ** 2),
    "normalized": (NormalizedPolynomial(3, 0.7), normalized_polynomial),
    "cosine": (Cosine(), lambda x, y: float(x @ y / (x.norm() * y.norm()))),
    "custom": (Custom(lambda a, b: a @ b.t() + 1), lambda x, y: float(x @ y) + 1),
    "sum": (RBF(1.7) + 0.5 * Linear(), lambda x, y: math.exp(-(distance(x, y) ** 2) / 3.4) + 0.5 * float(x @ y)),
    "product": (
        RBF(1.7) * Cosine(),
        lambda x, y: math.exp(-(distance(x, y) ** 2) / 3.4) * float(x @ y / (x.norm() * y.norm())),
    ),
    "rounded": (Categorical(), lambda x, y: float((x == y).double().mean())),
}


@pytest.fixture(params=CASES, ids=str)
def case(request):
    return CASES[request.param]


@pytest.fixture
def x():
    rows = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[3] = rows[5]  # A duplicate row.
    rows[:, 0] = rows[:, 0].round()
    return rows


def test_matches_the_formula(case, x):
    kernel, formula = case
    y = x[:4] + 0.1
    expected = torch.tensor([[formula(a, b) for b in y] for a in x], dtype=torch.float64)
    torch.testing.assert_close(kernel(x, y).detach(), expected)


def test_symmetric_and_positive_semi_definite(case, x):
    kernel, _ = case
    matrix = kernel(x).detach()
    torch.testing.assert_close(matrix, matrix.t())
    assert float(torch.linalg.eigvalsh(matrix)[0]) > -1e-10


def test_diagonal_equals_that_of_the_matrix_without_building_it(case, x):
    kernel, _ = case
    torch.testing.assert_close(kernel(x, diag=True).detach(), kernel(x).diagonal().detach())
    many = torch.ones(200_000, 2, dtype=torch.float32)  # A matrix would take 160 GB.
    assert kernel(many, diag=True).shape == (200_000,)


def test_blocks_of_rows_equal_the_whole(case, x):
    kernel, _ = case
    rows, whole = as_rows(x.float()), kernel(x.float()).detach()
    blocks = [kernel(rows.rows(slice(i, i + 3)), rows).detach() for i in (0, 3, 6)]
    torch.testing.assert_close(torch.cat(blocks), whole)
    picked = torch.tensor([5, 0, 3])
    torch.testing.assert_close(kernel(rows, rows.rows(picked)).detach(), whole[:, picked])


def test_float32_keeps_its_type_and_unit_diagonal(case, x):
    kernel, _ = case
    matrix = kernel(x.float() * 30)
    assert matrix.dtype == torch.float32
    if isinstance(kernel, Laplacian | Matern | RBF):
        assert torch.equal(matrix.diagonal(), torch.ones(7))


def test_gradient(case, x):
    kernel, _ = case
    if isinstance(kernel, Categorical):
        pytest.skip("piecewise constant: no gradient")
    a = x[[0, 1, 2, 4]].clone().requires_grad_()
    y = x[4:6] + 0.3
    assert torch.autograd.gradcheck(lambda a: kernel(a, y), (a,))
    assert torch.autograd.gradcheck(lambda a: kernel(a), (a,))


def test_config_round_trip_and_repr(case, x):
    kernel, _ = case
    if isinstance(kernel, Custom):
        with pytest.raises(InvalidInputError, match="Python function"):
            kernel_from_config(kernel.config())
        return
    copy = kernel_from_config(kernel.config())
    copy.load_state_dict(kernel.state_dict())
    torch.testing.assert_close(copy(x), kernel(x))
    assert repr(copy) == repr(kernel)
    assert "\n" not in repr(kernel)


def test_learned_bandwidth_has_the_gradient_of_a_finite_difference(x):
    kernel = RBF(1.7, learnable=True)
    (gradient,) = torch.autograd.grad(kernel(x).sum(), [kernel.log_sigma2])
    eps = 1e-6
    up, down = RBF(1.7 * math.exp(eps)), RBF(1.7 * math.exp(-eps))
    assert float(gradient) == pytest.approx(float((up(x).sum() - down(x).sum()) / (2 * eps)), rel=1e-6)
    assert kernel.is_learned
    assert not RBF(1.7).is_learned


def test_learned_kernel_on_float32_features_trains():
    kernel = Polynomial(2, 1.0, learnable=True)
    kernel(torch.randn(5, 3)).sum().backward()
    assert kernel.log_t.grad is not None


def test_automatic_bandwidth_is_half_the_mean_squared_distance(x):
    kernel = RBF().fit(x)
    squared = torch.cdist(x, x).square()
    assert float(kernel.sigma2) == pytest.approx(float(squared.mean() / 2))
    assert float(Laplacian().fit(x).sigma) == pytest.approx(float((squared.mean() / 2).sqrt()))
    assert float(RBF().fit(x + 100.0).sigma2) == pytest.approx(float(kernel.sigma2))  # Does not see a shift.
    assert "auto=" in repr(kernel)


def test_automatic_bandwidth_follows_each_fit_unless_learned(x):
    kernel, learned = RBF().fit(x), RBF(learnable=True).fit(x)
    kernel.fit(2 * x)
    learned.fit(2 * x)
    assert float(kernel.sigma2) == pytest.approx(4 * float(learned.log_sigma2.detach().exp()))


def test_automatic_bandwidth_of_equal_rows_is_refused():
    with pytest.raises(InvalidInputError, match="all rows are the same"):
        RBF()(torch.ones(4, 2))


def test_views(x):
    h, other = x[:, :2], x[:, 2:]
    kernel = RBF(0.5) * RBF(3.0).on("x")
    assert kernel.views == ("h", "x")
    product = RBF(0.5)(h) * RBF(3.0)(other)
    torch.testing.assert_close(kernel({"h": h, "x": other}), product)
    torch.testing.assert_close(kernel({"h": h, "x": other}, diag=True), product.diagonal())
    picked = torch.tensor([2, 5])
    rows = as_rows({"h": h, "x": other})
    torch.testing.assert_close(kernel(rows, rows.rows(picked)), product[:, picked])
    with pytest.raises(ViewError, match="view 'x'"):
        kernel(h)
    with pytest.raises(ViewError, match="view 'h'"):
        kernel({"x": other})
    with pytest.raises(InvalidInputError, match="same number of rows"):
        kernel({"h": h, "x": other[:3]})
    assert repr(kernel) == "(RBF(sigma2=0.5) * RBF(sigma2=3).on('x'))"


def test_on_a_composite_moves_every_leaf(x):
    kernel = (RBF(1.0) + 2 * Linear()).on("x")
    assert kernel.views == ("x",)
    torch.testing.assert_close(kernel({"x": x}), RBF(1.0)(x) + 2 * Linear()(x))


def test_precomputed_reads_row_numbers(x):
    matrix = RBF(1.0)(x)
    kernel = Precomputed(matrix)
    numbers = torch.tensor([[4.0], [1.0], [6.0]], dtype=torch.float64)
    torch.testing.assert_close(kernel(numbers), matrix[[4, 1, 6]][:, [4, 1, 6]])
    torch.testing.assert_close(kernel(numbers, diag=True), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(kernel_from_config(kernel.config())(numbers), kernel(numbers))


def test_precomputed_refuses_what_is_no_kernel(x):
    with pytest.raises(InvalidInputError, match=r"\(0, 1\) and \(1, 0\)"):
        Precomputed(torch.tensor([[1.0, 0.5], [0.4, 1.0]]))
    with pytest.raises(InvalidInputError, match="square"):
        Precomputed(torch.ones(2, 3))
    with pytest.raises(InvalidInputError, match=r"\[0, 7\)"):
        Precomputed(RBF(1.0)(x))(torch.tensor([[7.0]]))
    with pytest.raises(InvalidInputError, match="not whole numbers"):
        Precomputed(RBF(1.0)(x))(torch.tensor([[0.5]]))
    with pytest.raises(InvalidInputError, match="NaN"):
        Precomputed(torch.full((2, 2), torch.nan))
    with pytest.raises(InvalidInputError, match="one column"):
        Precomputed(RBF(1.0)(x))(torch.ones(2, 2))


def test_cosine_refuses_zero_rows(x):
    x[2] = 0
    for arguments in ({}, {"diag": True}):
        with pytest.raises(ZeroRowError, match="first: row 2"):
            Cosine()(x, **arguments)


def test_names_and_functions():
    assert isinstance(as_kernel("rbf"), RBF)
    assert isinstance(as_kernel(lambda a, b: a @ b.t()), Custom)
    kernel = Linear()
    assert as_kernel(kernel) is kernel
    with pytest.raises(InvalidInputError, match="unknown kernel 'rfb'; choose from"):
        as_kernel("rfb")
    with pytest.raises(InvalidInputError, match="a name, a Kernel or a function"):
        as_kernel(3)
    with pytest.raises(InvalidInputError, match="returned shape"):
        Custom(lambda a, b: a)(torch.ones(3, 2))
    with pytest.raises(InvalidInputError, match="is not one of"):
        kernel_from_config({"kind": "Unknown", "arguments": {}, "view": "h"})


@pytest.mark.parametrize("make", [
    lambda: RBF(0.0), lambda: RBF(-1.0), lambda: RBF(math.nan), lambda: Polynomial(0), lambda: Polynomial(2, -1.0),
    lambda: Matern(1.0), lambda: -1.0 * Linear(),
])  # fmt: skip
def test_bad_hyperparameters(make):
    with pytest.raises(InvalidInputError):
        make()


def test_only_kernels_and_numbers_combine():
    for bad in (lambda: RBF(1.0) + 1, lambda: RBF(1.0) * "2"):
        with pytest.raises(TypeError):
            bad()
    with pytest.raises(InvalidInputError, match="single argument"):
        RBF(1.0)(torch.ones(2, 2), torch.ones(2, 2), diag=True)


def test_a_kernel_in_double_and_single_precision_has_the_same_bandwidth():
    kernel = RBF(0.0499)
    assert float(kernel.sigma2) == 0.0499
    for kernel in (RBF(0.0499), RBF(0.0499, learnable=True)):
        value = next(iter(kernel.state_dict().values())).clone()
        torch.nn.ModuleList([kernel]).float().double().half()
        assert torch.equal(next(iter(kernel.state_dict().values())), value)


def test_columns_must_match(x):
    for kernel in (RBF(1.0), Categorical()):
        with pytest.raises(InvalidInputError, match="columns"):
            kernel(x, x[:, :2])


def test_integer_features_become_floating_point():
    assert isinstance(Linear(), Kernel)
    assert Linear()(torch.tensor([[1, 2], [3, 4]])).dtype == torch.get_default_dtype()
