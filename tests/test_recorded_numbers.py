"""Numbers of version 0.1, with the landmarks that it chose."""

import json
from pathlib import Path

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.gram import GramFactory, LowRank
from torch_gckm.kernels import RBF, Laplacian

RECORDED = json.loads((Path(__file__).parent / "data" / "version_0_1.json").read_text())
SETTINGS = {
    "plain": {"kernel": [RBF(3.0), RBF(0.05), RBF(0.02)]},
    "views": {
        "kernel": [RBF(3.0), RBF(0.05), RBF(0.02) * Laplacian(6.0).on("x")],
        "normalize": "l2",
        "aggregation": ["mean", "sum"],
        "hops": [2, 1],
        "eta": [1.0, 1.0, 1.1],
        "class_weight": "balanced",
    },
}


class Landmarks(GramFactory):
    """Low-rank matrices of given landmarks."""

    def __init__(self, nodes):
        self.nodes = torch.tensor(nodes)

    def centred(self, kernel, rows, *, min_rank=1, landmarks=None):
        return LowRank().centred(kernel, rows, min_rank=min_rank, landmarks=self.nodes)

    def uncentred(self, kernel, rows, *, landmarks=None):
        return LowRank().uncentred(kernel, rows, landmarks=self.nodes)

    def config(self):
        return {"kind": "Landmarks", "arguments": {"nodes": self.nodes.tolist()}}


def double_graph(num_nodes, seed=0):
    data = make_graph(num_nodes, seed=seed)
    data.x = data.x.double()
    return data


@pytest.mark.parametrize("name", SETTINGS)
def test_numbers_are_those_of_version_0_1(name):
    recorded, data, new = RECORDED[name], double_graph(120), double_graph(30, seed=3)
    grams = [Landmarks(nodes) for nodes in recorded["landmarks"]]
    model = GCKM(8, (6, 4), 3, gram=grams, power=0, **SETTINGS[name]).double()
    history = Trainer(model, steps=2, monitor="val_acc", progress=False).fit(data)
    assert [record.loss for record in history] == pytest.approx(recorded["losses"], rel=1e-6)
    model.initialize(data).solve(data)
    found = {
        "scores": model.readout.scores[:4],
        "new": model.scores(new)[:3],
        "leave_one_out": model.readout.leave_one_out()[:3],
        "eigenvalues": [conv.eigenvalues for conv in model.layers],
    }
    for key, value in found.items():
        for ours, theirs in zip(value, recorded[key], strict=True):
            torch.testing.assert_close(ours, torch.tensor(theirs).to(ours), rtol=1e-5, atol=1e-7)
