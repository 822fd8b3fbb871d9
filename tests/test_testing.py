"""The checks that users' own kernels and kernel matrices can inherit, on those of the package."""

import pytest
import torch

from torch_gckm.gram import Auto, Dense, LowRank
from torch_gckm.kernels import RBF, Cosine, Custom, Laplacian, Linear, Matern, Polynomial
from torch_gckm.testing import GramChecks, KernelChecks


@pytest.mark.parametrize("kernel", [
    RBF(2.0), RBF(), Laplacian(1.5), Matern(2.5, 2.0), Linear(), Polynomial(2, 1.5), Cosine(),
    RBF(2.0) * Linear() + 0.5 * Cosine(), Custom(lambda a, b: torch.exp(-torch.cdist(a, b) ** 2)),
], ids=str)  # fmt: skip
class TestKernels(KernelChecks):
    @pytest.fixture(autouse=True)
    def _choose(self, kernel):
        self.kernel = kernel

    def make_kernel(self):
        return self.kernel


@pytest.mark.parametrize("gram", [Dense(), Auto(), LowRank(max_rank=24, tol=0.0)], ids=repr)
class TestGrams(GramChecks):
    tolerance = 1e-5

    @pytest.fixture(autouse=True)
    def _choose(self, gram):
        self.gram = gram

    def make_gram(self):
        return self.gram


def test_they_can_fail():
    class Lopsided(KernelChecks):
        def make_kernel(self):
            return Custom(lambda a, b: a.sum(dim=1, keepdim=True) * torch.ones(b.size(0), dtype=b.dtype))

    with pytest.raises(AssertionError):
        Lopsided().test_is_symmetric_and_its_diagonal_agrees()

    class Rough(GramChecks):
        def make_gram(self):
            return LowRank(max_rank=2)

    with pytest.raises(AssertionError):
        Rough().test_products_and_forms()
    with pytest.raises(NotImplementedError, match="make_kernel"):
        KernelChecks().test_gradients_to_features()
