import pytest
import torch

from tests.conftest import projector_distance
from tests.gram.test_low_rank import KERNELS, features
from torch_gckm.gram import Dense, LowRank
from torch_gckm.kernels import RBF, Linear, as_rows


class TestFactor:
    @pytest.mark.parametrize("kernel", KERNELS, ids=repr)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_reported_error_is_the_true_one(self, kernel, dtype):
        x = features(200, 4, dtype)
        exact = kernel(x.double())
        factor = LowRank(max_rank=60, tol=0.05, block_size=16).uncentred(kernel, as_rows(x)).factor()
        panel = factor.values.double()
        centred = exact - exact.mean(0) - exact.mean(1, keepdim=True) + exact.mean()
        error = float((exact - panel @ panel.t()).trace() / centred.trace())
        assert factor.error == pytest.approx(error, rel=0.05, abs=1e-5)
        assert factor.error <= 0.05 or factor.values.size(1) == 60
        assert factor.landmarks.unique().numel() == factor.landmarks.numel()
        chosen = factor.landmarks  # Columns of landmarks are reproduced.
        scale = float(exact.abs().max())
        assert (
            float((panel @ panel[chosen].t() - exact[:, chosen]).abs().max())
            < (1e-8 if dtype == torch.float64 else 1e-4) * scale
        )

    def test_few_columns_suffice_for_few_directions(self):
        x = features(300, 3)
        gram = LowRank(max_rank=100, tol=1e-6).uncentred(Linear(), as_rows(x))
        assert gram.landmarks.numel() <= 4

    def test_wide_float32_kernels_keep_their_digits(self):
        """Centring leaves a thousandth of the matrix."""
        x = features(500, 6, torch.float32)
        _, vectors = LowRank(max_rank=400, tol=1e-4).centred(RBF(3000.0), as_rows(x), min_rank=12).eigenvectors(6)
        _, exact = Dense().centred(RBF(3000.0), as_rows(x.double())).eigenvectors(6)
        assert projector_distance(vectors.double(), exact) < 1e-2

    def test_is_deterministic(self):
        x = features()
        marks = [LowRank(max_rank=20, seed=seed).uncentred(RBF(1.0), as_rows(x)).landmarks for seed in (0, 0, 1)]
        assert torch.equal(marks[0], marks[1])
        assert not torch.equal(marks[0], marks[2])

    def test_duplicate_rows_and_a_constant_matrix(self):
        x = features(6).repeat(20, 1)
        gram = LowRank(max_rank=50, tol=0.0).uncentred(RBF(1.0), as_rows(x))
        assert gram.landmarks.numel() == 6
        assert LowRank().uncentred(RBF(1.0), as_rows(torch.ones(30, 2))).landmarks.numel() == 1
