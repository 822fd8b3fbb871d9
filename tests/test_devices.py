"""Everything stays on the device of the data, and gives there what it gives on the CPU."""

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM, GCKMConv, SemiSupRKMReadout, Trainer
from torch_gckm.gram import LowRank


@pytest.mark.parametrize("gram", ["dense", LowRank(max_rank=30)], ids=repr)
def test_a_model_is_trained_and_extended(device, gram):
    data, new = make_graph(), make_graph(25, seed=3)
    results = []
    for where in (torch.device("cpu"), device):
        model = GCKM(8, (6, 4), 3, gram=gram).to(where)
        Trainer(model, steps=2, progress=False).fit(data.clone().to(where))
        scores = [model.readout.scores, model.scores(new.clone().to(where)), model.readout.h]
        assert all(part.device.type == where.type for part in scores)
        results.append([part.cpu() for part in scores])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_layers_follow_to_another_device(device):
    data = make_graph()
    conv = GCKMConv(8, 4).initialize(data.x, data.edge_index)
    readout = SemiSupRKMReadout(4, 3)
    scores = readout(conv.h, data.y, data.train_mask)
    before = conv.transform(data.x, data.edge_index)
    conv, readout = conv.to(device), readout.to(device)
    moved = data.clone().to(device)
    assert conv.fit.landmarks.device.type == readout.fit.alpha.device.type == device.type
    torch.testing.assert_close(conv.transform(moved.x, moved.edge_index).cpu(), before, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(readout.scores.cpu(), scores.detach(), rtol=1e-3, atol=1e-4)
    conv.loss(moved.x, moved.edge_index).backward()
    assert conv.h.grad.device.type == device.type
