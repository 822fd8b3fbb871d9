import pytest
import torch

from torch_gckm.gram.products import row_blocks, symmetric_product, times_upper


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("torch_gckm.gram.products._BLOCK_ENTRIES", 70)
    monkeypatch.setattr("torch_gckm.gram.products._STRIPE", 3)


def panel(dtype=torch.float32):
    return torch.randn(45, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("weighted", [False, True])
def test_symmetric_product(weighted):
    f = panel()
    w = torch.linspace(-1, 2, 45, dtype=torch.float64) if weighted else None
    expected = f.double().t() @ (f.double() if w is None else w.unsqueeze(1) * f.double())
    result = symmetric_product(f, w)
    assert result.dtype == torch.float64
    assert torch.equal(result, result.t())
    assert torch.allclose(result, expected, atol=1e-5)
    assert torch.allclose(symmetric_product(f, w, torch.float64), expected, atol=1e-13)


def test_times_upper():
    f, upper = panel(torch.float64), torch.randn(7, 7, dtype=torch.float64).triu()
    out = torch.full((45, 9), torch.nan, dtype=torch.float64)
    times_upper(f, upper, out[:, :7])
    assert torch.allclose(out[:, :7], f @ upper)
    assert out[:, 7:].isnan().all()


def test_row_blocks_cover_every_row_once():
    assert [(b.start, b.stop) for b in row_blocks(panel())] == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 45)]
    assert list(row_blocks(torch.empty(0, 3))) == []
