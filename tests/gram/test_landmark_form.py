"""Gradients of forms in a kernel matrix that is known through landmarks."""

import pytest
import torch

from tests.gram.test_low_rank import features
from torch_gckm.gram import LowRank
from torch_gckm.gram.landmark_form import with_gradient
from torch_gckm.kernels import RBF, as_rows

MARKS = torch.tensor([3, 11, 7, 0, 15])


def nystrom(k):
    return k[:, MARKS] @ torch.linalg.solve(k[MARKS][:, MARKS], k[MARKS])


def test_with_gradient_attaches_what_was_computed_elsewhere():
    x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)
    value = 5.0 * with_gradient(torch.tensor(7.0), [x, y], [torch.tensor([1.0, -1.0]), None])
    assert value.item() == 35.0
    value.backward()
    assert x.grad.tolist() == [5.0, -5.0]
    assert y.grad is None


@pytest.mark.parametrize("entries", [2**25, 60], ids=["whole", "blocks"])
def test_gradcheck_of_the_objective(monkeypatch, entries):
    monkeypatch.setattr("torch_gckm.blocks.BLOCK_ENTRIES", entries)
    x, h = features(20, 3), features(20, 2, seed=1)

    def objective(x, h):
        return LowRank().centred(RBF(3.0), as_rows(x), landmarks=MARKS).centred_quadratic(h)

    x, h = x.requires_grad_(), h.requires_grad_()
    assert len(list(as_rows(x).blocks(MARKS.numel()))) == (1 if entries > 60 else 2)
    assert torch.autograd.gradcheck(objective, (x, h))
    hc = h - h.mean(dim=0)
    expected = torch.trace(hc.t() @ nystrom(RBF(3.0)(x)) @ hc)
    torch.testing.assert_close(objective(x, h), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("entries", [2**25, 60], ids=["whole", "blocks"])
@pytest.mark.parametrize("form", ["centred", "uncentred"])
def test_gradient_to_views_kernel_and_both_sides(monkeypatch, entries, form):
    monkeypatch.setattr("torch_gckm.blocks.BLOCK_ENTRIES", entries)
    kernel = RBF(3.0, learnable=True) * RBF(4.0).on("x")
    views = {"h": features(20, 3).requires_grad_(), "x": features(20, 2, seed=1).requires_grad_()}
    u, v = features(20, 2, seed=2).requires_grad_(), features(20, 2, seed=3).requires_grad_()
    inputs = [*views.values(), *kernel.parameters(), u, v]
    gram = getattr(LowRank(), form)(kernel, as_rows(views), landmarks=MARKS)
    assert torch.equal(gram.landmarks, MARKS)
    expected = torch.trace(u.t() @ nystrom(kernel(views)) @ v)
    if form == "uncentred":  # The residual diagonal counts as constant.
        expected = expected + (gram.factor().residual * (u * v).sum(dim=1)).sum()
    ours = gram.bilinear(u, v)
    torch.testing.assert_close(ours, expected)
    for got, want in zip(torch.autograd.grad(ours, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)
