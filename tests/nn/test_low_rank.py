"""Layers and models whose kernel matrices are of low rank."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Data

from tests.conftest import make_graph
from tests.gram.test_low_rank import FULL
from torch_gckm import GCKM, GCKMConv, Trainer
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF


def test_full_rank_equals_dense(graph64):
    models = []
    for gram in (FULL, "dense"):
        model = GCKM(8, (6, 4), 3, kernel=[RBF(3.0), RBF(0.5), RBF(0.2)], gram=gram).double()
        Trainer(model, steps=0, progress=False).fit(graph64)
        models.append(model)
    low, dense = models
    torch.testing.assert_close(low.readout.scores, dense.readout.scores, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(low.readout.leave_one_out(), dense.readout.leave_one_out(), rtol=1e-4, atol=1e-4)
    new = make_graph(20, seed=3)
    new.x = new.x.double()
    torch.testing.assert_close(low.scores(new), dense.scores(new), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(low.loss(graph64).detach(), dense.loss(graph64).detach(), rtol=1e-6, atol=1e-8)


def test_released_factors_are_not_needed(graph64, monkeypatch):
    conv = GCKMConv(8, 4, kernel=RBF(3.0), gram=LowRank(max_rank=20)).double()
    conv.initialize(graph64.x, graph64.edge_index)
    kept, described = conv.loss(graph64.x, graph64.edge_index), conv.fit.description
    conv.fit.gram.release()
    gram = conv.fit.gram
    monkeypatch.setattr(gram, "factor", lambda: pytest.fail("the factor was made again"))
    torch.testing.assert_close(conv.loss(graph64.x, graph64.edge_index), kept, rtol=1e-6, atol=1e-8)
    assert conv.fit.gram is gram
    assert gram.describe() == conv.fit.description == described


def test_constant_and_tracked_objective_agree(graph64):
    conv = GCKMConv(8, 4, kernel=RBF(3.0), gram=LowRank(max_rank=20)).double()
    conv.initialize(graph64.x, graph64.edge_index)
    constant = conv.loss(graph64.x, graph64.edge_index)
    tracked = conv.loss(graph64.x.clone().requires_grad_(), graph64.edge_index)
    torch.testing.assert_close(constant, tracked, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(conv.transform(graph64.x, graph64.edge_index), conv.z.detach(), rtol=1e-5, atol=1e-5)


def test_landmarks_stay_fixed_in_fine_tuning_and_are_saved(graph, tmp_path):
    model = GCKM(8, (6, 4), 3, gram=LowRank(max_rank=25))
    Trainer(model, steps=0, progress=False).fit(graph)
    before = [layer.fit.landmarks.clone() for layer in (*model.layers, model.readout)]
    assert all(marks.numel() for marks in before)
    Trainer(model, steps=3, progress=False).fit(graph)
    for marks, layer in zip(before, (*model.layers, model.readout), strict=True):
        assert torch.equal(marks, layer.fit.landmarks)
    model.save(tmp_path / "model.pt")
    new = make_graph(20, seed=4)
    loaded = GCKM.load(tmp_path / "model.pt")
    assert torch.equal(loaded.scores(new), model.scores(new))
    for text in (model.summary(), loaded.summary()):
        assert text.count("rank") == 3
        assert "of 60, error 0." in text
    assert loaded.summary() == model.summary()


class LargestTensor(TorchDispatchMode):
    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self.largest = max(self.largest, tensor.numel())
        return out


def test_200_000_nodes_need_nothing_of_their_square():
    n, rank = 200_000, 24
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 4
    x = torch.randn(4, 6, generator=generator)[y] + 0.5 * torch.randn(n, 6, generator=generator)
    step = torch.arange(n)
    edges = torch.stack([step, (step + 4) % n])
    data = Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=y, train_mask=step < 40)
    model = GCKM(6, (4, 4), 4, gram=LowRank(max_rank=rank))
    with LargestTensor() as seen:
        Trainer(model, steps=1, progress=False).fit(data)
    assert 0 < seen.largest <= n * rank  # The panel itself: no temporary is larger.
    assert float((model.predict() == y).double().mean()) > 0.9
