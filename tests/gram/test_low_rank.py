import pytest
import torch

from tests.conftest import projector_distance
from torch_gckm import memory as memory_module
from torch_gckm.errors import InvalidInputError, KernelNotPSDError, OutOfMemoryError
from torch_gckm.gram import Auto, Dense, LowRank, as_gram, gram_from_config
from torch_gckm.kernels import RBF, Laplacian, Linear, Polynomial, Precomputed, SparseFeatures, as_rows
from torch_gckm.layouts import to_csr

FULL = LowRank(max_rank=10_000, tol=0.0, block_size=16)


def features(n=80, d=5, dtype=torch.float64, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


KERNELS = [RBF(3.0), RBF(500.0), Polynomial(2, 1.0), Laplacian(2.0), RBF(2.0) + 0.1 * Linear()]


class TestFullRankEqualsDense:
    @pytest.mark.parametrize("kernel", KERNELS, ids=repr)
    def test_eigenvectors(self, kernel):
        x = features()
        values, vectors = FULL.centred(kernel, as_rows(x)).eigenvectors(5)
        expected_values, expected = Dense().centred(kernel, as_rows(x)).eigenvectors(5)
        torch.testing.assert_close(values, expected_values, rtol=1e-6, atol=1e-9)
        assert projector_distance(vectors, expected) < 1e-5
        torch.testing.assert_close(vectors.t() @ vectors, torch.eye(5, dtype=torch.float64))
        of_readout, _ = FULL.uncentred(kernel, as_rows(x)).eigenvectors(5)
        torch.testing.assert_close(of_readout, values, rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize("form", ["centred", "uncentred"])
    def test_products(self, form):
        x, v = features(), features(80, 3, seed=1)
        low, dense = (getattr(gram, form)(RBF(3.0), as_rows(x)) for gram in (FULL, Dense()))
        new = as_rows(features(9, seed=2))
        for name, arguments in (("matmul", (v,)), ("degrees", ())):
            ours, theirs = getattr(low, name)(*arguments), getattr(dense, name)(*arguments)
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
        nodes, weights = low.representer(v)
        assert nodes.numel() == weights.size(0)
        extended = RBF(3.0)(new, as_rows(x[nodes])) @ weights
        torch.testing.assert_close(extended, RBF(3.0)(new, as_rows(x)) @ v, rtol=1e-6, atol=1e-6)

    def test_diagonals(self):
        x = features()
        panel = FULL.uncentred(RBF(3.0), as_rows(x)).factor()
        diagonal = panel.values.square().sum(dim=1) + panel.residual
        torch.testing.assert_close(diagonal, RBF(3.0)(x, diag=True), rtol=1e-6, atol=1e-6)

    def test_gradient_of_the_objective(self):
        x, h = features(30, 3).requires_grad_(), features(30, 2, seed=1)
        full = LowRank(max_rank=30, tol=0.0)
        gradients = []
        for gram in (full, Dense()):
            value = gram.uncentred(RBF(3.0), as_rows(x)).centred_quadratic(h)
            gradients.append(torch.autograd.grad(value, [x])[0])
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-6)


class TestLowRank:
    def test_the_diagonal_is_exact(self):
        gram = LowRank(max_rank=15, tol=0.0).uncentred(RBF(1.0), as_rows(features()))
        panel = gram.factor()
        matrix = panel.values @ panel.values.t() + torch.diag(panel.residual)
        torch.testing.assert_close(matrix.diagonal(), torch.ones(80, dtype=torch.float64))
        torch.testing.assert_close(gram.degrees(), matrix.sum(dim=1))
        torch.testing.assert_close(gram.constant_degrees(), matrix.sum(dim=1))
        torch.testing.assert_close(panel.row_sums, (panel.values @ panel.values.t()).sum(dim=1))

    def test_eigenvectors_converge_as_the_tolerance_falls(self):
        x = features(300, 3)
        _, exact = Dense().centred(RBF(2.0), as_rows(x)).eigenvectors(4)
        subspace = []
        for tol in (0.1, 1e-2, 1e-4, 1e-7):
            gram = LowRank(max_rank=300, tol=tol).centred(RBF(2.0), as_rows(x), min_rank=8)
            subspace.append(projector_distance(gram.eigenvectors(4)[1], exact))
        assert subspace == sorted(subspace, reverse=True)
        assert subspace[-1] < 1e-6

    def test_as_many_directions_as_are_needed(self):
        """A rank that is asked for goes before the tolerance and the largest rank."""
        rows = as_rows(features())
        assert LowRank(tol=0.5).centred(RBF(3.0), rows).landmarks.numel() < 30
        assert LowRank(tol=0.5).centred(RBF(3.0), rows, min_rank=30).landmarks.numel() >= 30
        assert LowRank(max_rank=5).centred(RBF(3.0), rows, min_rank=12).landmarks.numel() >= 12
        assert LowRank(max_rank=5).centred(RBF(3.0), rows, min_rank=500).landmarks.numel() <= 80

    def test_landmarks_are_chosen_at_once_and_can_be_given_again(self):
        rows = as_rows(features())
        for form in ("centred", "uncentred"):
            make = getattr(LowRank(max_rank=20), form)
            gram = make(RBF(3.0), rows)
            assert 0 < gram.landmarks.numel() <= 20
            again = make(RBF(3.0), rows, landmarks=gram.landmarks)
            assert torch.equal(again.landmarks, gram.landmarks)
            assert again.error() == pytest.approx(gram.error(), rel=1e-6)
            assert again.describe() == gram.describe()
            torch.testing.assert_close(again.factor().values, gram.factor().values, rtol=1e-5, atol=1e-6)

    def test_a_wide_kernel_keeps_its_digits_when_factored_again(self):
        """Single precision would lose the objective of an almost constant kernel matrix to rounding."""
        x = features(400, 4, torch.float32)
        kernel = RBF(1e5)
        _, h = Dense().centred(kernel, as_rows(x.double())).eigenvectors(3)
        exact = float(Dense().centred(kernel, as_rows(x.double())).centred_quadratic(h))
        chosen = LowRank().centred(kernel, as_rows(x), min_rank=6)
        again = LowRank().centred(kernel, as_rows(x), landmarks=chosen.landmarks)
        from_columns = float(again.centred_quadratic(h.float()))
        panel = again.factor().values
        assert float(panel.mean(dim=0).abs().max()) < 1e-6 * float(panel.abs().max())
        for gram in (chosen, again):
            assert float(gram.centred_quadratic(h.float())) == pytest.approx(exact, rel=1e-3)
        assert from_columns == pytest.approx(exact, rel=1e-3)

    def test_released_factors_are_made_again(self):
        gram = LowRank(max_rank=20).centred(RBF(3.0), as_rows(features()))
        h, values, described = features(80, 2, seed=1), gram.factor().values, gram.describe()
        kept = gram.centred_quadratic(h)
        gram.release()
        torch.testing.assert_close(gram.centred_quadratic(h), kept, rtol=1e-6, atol=1e-8)
        assert gram.describe() == described
        assert gram.factor().values is not values
        torch.testing.assert_close(gram.factor().values, values, rtol=1e-5, atol=1e-6)

    def test_rank_is_raised_where_it_makes_degrees_negative(self):
        """Exactly, node 1 is similar to the others; seen through the first coordinate alone it is not."""
        x = torch.ones(40, 2, dtype=torch.float64)
        x[0], x[1] = torch.tensor([1.0, 0.0]), torch.tensor([-0.1, 1.0])
        gram = LowRank().uncentred(Linear(), as_rows(x), landmarks=torch.tensor([0]))
        assert gram.landmarks.numel() == 2
        torch.testing.assert_close(gram.degrees(), Linear()(x).sum(dim=1))

    def test_factors_leave_the_features_alone(self):
        rows = as_rows(features(30, 3))
        sparse = SparseFeatures(to_csr(features(30, 3)))
        for x in (rows, sparse):
            before = x.view("h").sq_norm().clone()
            marks = LowRank(max_rank=2).uncentred(Linear(), x).factor().landmarks
            LowRank().uncentred(Linear(), x, landmarks=marks).factor()
            assert torch.equal(x.view("h").sq_norm(), before)

    def test_a_matrix_of_zeros_has_no_eigenvectors(self):
        values, vectors = LowRank().centred(Linear(), as_rows(torch.zeros(10, 3)), min_rank=4).eigenvectors(2)
        assert values.numel() == 0
        assert vectors.shape == (10, 0)

    @pytest.mark.parametrize("diagonal", [-1.0, 0.0, 0.5], ids=str)
    @pytest.mark.parametrize("form", ["centred", "uncentred"])
    def test_kernels_that_are_not_positive_are_refused(self, diagonal, form):
        matrix = torch.ones(6, 6)
        matrix[5, 5] = diagonal
        kernel, rows = Precomputed(matrix), as_rows(torch.arange(6.0).unsqueeze(1))
        with pytest.raises(KernelNotPSDError, match="positive semi-definite"):
            getattr(LowRank(tol=0.0), form)(kernel, rows)


def test_auto_chooses_by_size():
    small, large = as_rows(features(50)), as_rows(features(90))
    auto = Auto(dense_below=60, low_rank=LowRank(max_rank=7))
    for form in ("centred", "uncentred"):
        make = getattr(auto, form)
        assert make(RBF(1.0), small).describe() == "exact, 50 x 50"
        assert make(RBF(1.0), large).describe().startswith("rank 7 of 90, error 0.")
        assert torch.equal(make(RBF(1.0), large, landmarks=torch.tensor([4, 2])).landmarks, torch.tensor([4, 2]))
    assert isinstance(as_gram("auto"), Auto)
    assert isinstance(as_gram("low_rank"), LowRank)
    assert gram_from_config(auto.config()).config() == auto.config()
    assert gram_from_config(FULL.config()).config() == FULL.config()
    assert repr(Auto()) == "Auto()"
    assert repr(auto) == "Auto(60, LowRank(max_rank=7, tol=0.05, seed=0))"


def test_memory_is_asked_for_first(monkeypatch):
    monkeypatch.setattr(memory_module, "available_bytes", lambda device: 1000)
    for form in ("centred", "uncentred"):
        with pytest.raises(OutOfMemoryError, match="rank 80"):
            getattr(LowRank(), form)(RBF(1.0), as_rows(features()))


@pytest.mark.parametrize("arguments", [{"max_rank": 0}, {"tol": -1.0}, {"tol": 1.0}, {"block_size": 0}], ids=str)
def test_bad_options(arguments):
    with pytest.raises(InvalidInputError):
        LowRank(**arguments)
