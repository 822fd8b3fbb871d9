import pytest
import torch

from tests.conftest import projector_distance
from torch_gckm import memory as memory_module
from torch_gckm.errors import EigenResidualError, InvalidInputError, KernelNotPSDError, OutOfMemoryError
from torch_gckm.gram import Dense, as_gram, gram_from_config
from torch_gckm.gram import dense as dense_module
from torch_gckm.kernels import RBF, Custom, Linear, Polynomial, Precomputed, as_rows


def features(n=50, d=5, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=dtype)


def centring(n):
    return torch.eye(n, dtype=torch.float64) - 1.0 / n


@pytest.mark.parametrize("block_entries", [2**25, 400], ids=["whole", "blocks"])
class TestAgainstTheMatrix:
    def gram(self, block_entries, x, kernel=None):
        return Dense(block_entries).centred(kernel or RBF(3.0), as_rows(x))

    def test_products(self, block_entries):
        x, v = features(), features(50, 3)
        gram, matrix = self.gram(block_entries, x), RBF(3.0)(x)
        torch.testing.assert_close(gram.matmul(v), matrix @ v)
        torch.testing.assert_close(gram.degrees(), matrix.sum(dim=1))
        assert gram.representer(v) == (None, v)
        torch.testing.assert_close(gram.matrix(), matrix)
        torch.testing.assert_close(gram.matrix().diagonal(), matrix.diagonal())
        assert gram.panel() is None

    def test_centred_quadratic_and_its_gradient(self, block_entries):
        x, h = features(12, 3).requires_grad_(), features(12, 2).requires_grad_()
        centre = centring(12)
        block_entries = min(block_entries, 40) if block_entries < 1000 else block_entries
        gram = self.gram(block_entries, x)
        expected = torch.trace(h.t() @ centre @ RBF(3.0)(x) @ centre @ h)
        torch.testing.assert_close(gram.centred_quadratic(h), expected)
        assert torch.autograd.gradcheck(lambda x, h: self.gram(block_entries, x).centred_quadratic(h), (x, h))

    def test_bilinear_gradient_of_a_learned_kernel(self, block_entries):
        x, u, v = features(), features(50, 2), features(50, 2) + 1
        kernel = RBF(3.0, learnable=True)
        (gradient,) = torch.autograd.grad(self.gram(block_entries, x, kernel).bilinear(u, v), [kernel.log_sigma2])
        (expected,) = torch.autograd.grad((u * (kernel(x) @ v)).sum(), [kernel.log_sigma2])
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("n", [60, 600], ids=["full", "lanczos"])
@pytest.mark.parametrize("kernel", [RBF(3.0), RBF(1000.0), Polynomial(2, 1.0), Linear()], ids=repr)
def test_eigenvectors(n, kernel):
    x, count = features(n, 6), 5
    values, vectors = Dense().centred(kernel, as_rows(x)).eigenvectors(count)
    centred = centring(n) @ kernel(x) @ centring(n)
    expected_values, expected = torch.linalg.eigh(centred)
    torch.testing.assert_close(values, expected_values[-count:].flip(0))
    assert projector_distance(vectors, expected[:, -count:]) < 1e-8
    peak = vectors.abs().argmax(dim=0)
    assert bool((vectors[peak, torch.arange(count)] > 0).all())


def test_float32_features_get_double_precision_eigenvectors():
    """A wide kernel: centring removes all but 0.1 % of the matrix, more than float32 has digits for."""
    x = features(600, 6, torch.float32)
    _, vectors = Dense().centred(RBF(2000.0), as_rows(x)).eigenvectors(8)
    assert vectors.dtype == torch.float32
    centred = centring(600) @ RBF(2000.0)(x.double()) @ centring(600)
    exact = torch.linalg.eigh(centred)[1][:, -8:]
    assert projector_distance(vectors.double(), exact) < 1e-5


def test_eigenvectors_stop_at_the_rank():
    values, vectors = Dense().centred(Linear(), as_rows(features(60, 3))).eigenvectors(10)
    assert values.shape == (3,)
    assert vectors.shape == (60, 3)
    values, _ = Dense().centred(RBF(1.0), as_rows(torch.ones(30, 2))).eigenvectors(4)
    assert values.numel() == 0


def test_repeated_eigenvalues_are_all_found():
    """Far-away points: the identity matrix, centred; every vector is an eigenvector."""
    x = 1e3 * torch.arange(500, dtype=torch.float64).unsqueeze(1)
    values, vectors = Dense().centred(RBF(1.0), as_rows(x)).eigenvectors(6)
    torch.testing.assert_close(values, torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(vectors.t() @ vectors, torch.eye(6, dtype=torch.float64))


@pytest.mark.parametrize("n", [50, 500])
def test_kernels_that_are_not_psd_are_refused(n):
    x = features(n, 4)
    signed = x[:, :3] @ x[:, :3].t() - 2 * torch.outer(x[:, 3], x[:, 3])
    numbers = torch.arange(n, dtype=torch.float64).unsqueeze(1)
    with pytest.raises(KernelNotPSDError, match="positive semi-definite"):
        Dense().centred(Precomputed(signed), as_rows(numbers)).eigenvectors(2)
    Dense().centred(Precomputed(x @ x.t()), as_rows(numbers)).eigenvectors(2)


def test_wrong_eigenvectors_are_noticed(monkeypatch):
    real = dense_module.eigsh

    def wrong(*args, **kwargs):
        values, vectors = real(*args, **kwargs)
        return values * 1.01, vectors

    monkeypatch.setattr(dense_module, "eigsh", wrong)
    with pytest.raises(EigenResidualError, match="residual"):
        Dense().centred(RBF(1.0), as_rows(features(500, 4))).eigenvectors(3)


def test_overflow_is_named():
    with pytest.raises(InvalidInputError, match="overflow"):
        Dense().centred(Polynomial(9, 1.0), as_rows(1e50 * features(20, 3))).eigenvectors(2)


def test_memory_is_asked_for_first(monkeypatch):
    monkeypatch.setattr(memory_module, "available_bytes", lambda device: 10_000)
    monkeypatch.setattr(dense_module, "available_bytes", lambda device: 10_000)
    gram = Dense().centred(RBF(1.0), as_rows(features(100, 3)))
    with pytest.raises(OutOfMemoryError, match=r"kernel matrix needs about .* GB, but only .* are available"):
        gram.eigenvectors(2)
    with pytest.raises(MemoryError, match="the exact readout needs about"):
        gram.matrix()


def test_a_constant_matrix_is_evaluated_once():
    calls = []

    def counted(a, b):
        calls.append(a.size(0))
        return a @ b.t()

    gram = Dense().centred(Custom(counted), as_rows(features()))
    h = features(50, 2).requires_grad_()
    for _ in range(3):
        gram.centred_quadratic(h).backward()
    assert calls == [50]


def test_names_and_configuration():
    assert isinstance(as_gram("dense"), Dense)
    gram = Dense(block_entries=77)
    assert as_gram(gram) is gram
    assert gram_from_config(gram.config()).block_entries == 77
    with pytest.raises(InvalidInputError, match="unknown gram 'sparse'"):
        as_gram("sparse")
    with pytest.raises(InvalidInputError, match="block_entries"):
        Dense(0)


def test_centred_and_uncentred_are_the_same_exact_matrix():
    rows, v = as_rows(features()), features(50, 2)
    centred, plain = Dense().centred(RBF(3.0), rows, min_rank=9), Dense().uncentred(RBF(3.0), rows)
    assert torch.equal(centred.matmul(v), plain.matmul(v))
    for gram in (centred, plain):
        assert gram.landmarks is None
        assert gram.error() == 0.0
        assert gram.describe() == "exact, 50 x 50"


def test_the_matrix_of_tracked_features():
    x = features(12, 3)
    gram, tracked = Dense().uncentred(RBF(3.0), as_rows(x)), x.clone().requires_grad_()
    u, v = features(12, 2), features(12, 2) + 1
    value = gram.tracking(as_rows(tracked)).bilinear(u, v)
    torch.testing.assert_close(value.detach(), gram.bilinear(u, v))
    (gradient,) = torch.autograd.grad(value, [tracked])
    (expected,) = torch.autograd.grad((u * (RBF(3.0)(tracked) @ v)).sum(), [tracked])
    torch.testing.assert_close(gradient, expected)
