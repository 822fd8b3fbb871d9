"""A solve with other labels may keep the kernel matrix."""

import torch

from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.nn import SemiSupRKMReadout


def test_other_labels_with_the_same_matrix(monkeypatch):
    """The kernel matrix is evaluated once, and the scores are those of a fresh readout."""
    x = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(80) % 3
    first, second = torch.arange(80) < 9, torch.arange(80) < 20
    readout = SemiSupRKMReadout(4, 3, gram=LowRank(max_rank=40))
    calls, original = [], RBF.forward
    monkeypatch.setattr(RBF, "forward", lambda self, *a, **k: (calls.append(1), original(self, *a, **k))[1])
    with torch.no_grad():
        readout(x, y, first)
        before = len(calls)
        scores = readout(x, y, second, keep_landmarks=True, keep_gram=True)
        assert len(calls) == before
        fresh = SemiSupRKMReadout(4, 3, gram=LowRank(max_rank=40))(x, y, second)
    torch.testing.assert_close(scores, fresh)


def test_other_features_are_noticed():
    x = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
    y, mask = torch.arange(80) % 3, torch.arange(9)
    readout = SemiSupRKMReadout(4, 3, gram=LowRank(max_rank=80, tol=0.0))
    with torch.no_grad():
        readout(x, y, mask)
        x.mul_(torch.linspace(0.5, 2.0, 80).unsqueeze(1))
        scores = readout(x, y, mask, keep_gram=True)
        fresh = SemiSupRKMReadout(4, 3, gram=LowRank(max_rank=80, tol=0.0))(x, y, mask)
    torch.testing.assert_close(scores, fresh, rtol=1e-3, atol=1e-3)


def test_kept_landmarks_and_gradients():
    x = torch.randn(80, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    y, mask = torch.arange(80) % 3, torch.arange(9)
    readout = SemiSupRKMReadout(4, 3, RBF(4.0), gram=LowRank(max_rank=40)).double()
    gradients = []
    for _ in range(3):  # The landmarks of the second are those of the first.
        scores = readout(x, y, mask, keep_landmarks=True)
        gradients.append(torch.autograd.grad(scores.square().sum(), x)[0])
    assert bool(gradients[0].any())
    torch.testing.assert_close(gradients[1], gradients[2])
