"""Fits follow a module that holds layers, a PyG layer and a readout wherever it goes."""

import copy
import pickle

import pytest
import torch
from torch_geometric.nn import GCNConv

from tests.conftest import make_graph
from torch_gckm import GCKMConv, SemiSupRKMReadout
from torch_gckm.errors import NotFittedError
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.layouts import to_csr
from torch_gckm.nn import GCKM, Propagation
from torch_gckm.readout import Targets

GRAMS = {"dense": "dense", "low_rank": LowRank(max_rank=25)}


class Network(torch.nn.Module):
    """A user's own: a kernel machine layer, a graph convolution, and the readout upon both."""

    def __init__(self, gram="dense"):
        super().__init__()
        self.embedding = GCKMConv(8, 5, kernel=RBF() * RBF(9.0).on("x"), gram=GRAMS[gram])
        self.convolution = GCNConv(5, 4)
        self.readout = SemiSupRKMReadout(4, 3, kernel=RBF() * RBF().on("x"), gram=GRAMS[gram])

    def forward(self, x, edge_index):
        return self.convolution(self.embedding(x, edge_index), edge_index)

    def solve(self, data):
        with torch.no_grad():
            return self.readout({"h": self(data.x, data.edge_index), "x": data.x}, data.y, data.train_mask)

    def answers(self, data, other):
        """All that the fits are asked for, on the fitted graph and on another."""
        with torch.no_grad():
            h = self.embedding.transform(other.x, other.edge_index)
            new = self.readout.transform({"h": self.convolution(h, other.edge_index), "x": other.x})
            loss = self.embedding.loss(data.x, data.edge_index)
            return [self(data.x, data.edge_index), h, new, self.readout.scores, self.readout.h, loss]


@pytest.fixture(params=GRAMS)
def network(request, graph):
    torch.manual_seed(0)
    network = Network(request.param)
    network.solve(graph)
    return network


@pytest.fixture
def other():
    return make_graph(25, seed=3)


def in_double(data):
    result = data.clone()
    result.x = data.x.double()
    return result


def assert_same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_state_dict_into_a_fresh_module(network, graph, other, tmp_path):
    expected = network.answers(graph, other)
    torch.save(network.state_dict(), tmp_path / "state.pt")
    gram = "low_rank" if isinstance(network.readout.gram, LowRank) else "dense"
    fresh = Network(gram)
    loaded = fresh.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert not loaded.missing_keys
    assert not loaded.unexpected_keys
    found = fresh.answers(graph, other)
    assert_same(found[:-1], expected[:-1])
    torch.testing.assert_close(found[-1], expected[-1])
    assert torch.equal(fresh.embedding.fit.landmarks, network.embedding.fit.landmarks)
    assert fresh.embedding.fit.description == network.embedding.fit.description
    assert fresh.readout.fit.description == network.readout.fit.description
    assert set(fresh.state_dict()) == set(network.state_dict())


def test_state_dict_over_another_fit(network, graph, other):
    """Of another graph, of another size: the old fit is replaced as a whole."""
    expected = network.answers(graph, other)
    state = copy.deepcopy(network.state_dict())
    parameter = network.embedding.h
    larger = make_graph(90, seed=7)
    network.embedding.reset_parameters()
    network.solve(larger)
    assert network.readout.scores.size(0) == 90
    network.load_state_dict(state)
    assert network.embedding.h is parameter  # The one that optimisers hold.
    found = network.answers(graph, other)
    assert_same(found[:-1], expected[:-1])
    torch.testing.assert_close(found[-1], expected[-1])


def test_an_unfitted_state_empties_a_fit(network, graph):
    gram = "low_rank" if isinstance(network.readout.gram, LowRank) else "dense"
    network.load_state_dict(Network(gram).state_dict())
    assert network.embedding.fitted is None
    assert network.readout.fitted is None
    assert network.embedding.h.shape == (0, 5)
    assert network.readout.h.shape == (0, 3)
    for ask in (
        lambda: network.embedding.transform(graph.x, graph.edge_index),
        lambda: network.embedding.loss(graph.x, graph.edge_index),
        lambda: network.readout.scores,
        lambda: network.readout.transform({"h": torch.ones(2, 4), "x": torch.ones(2, 8)}),
        network.readout.leave_one_out,
    ):
        with pytest.raises(NotFittedError):
            ask()
    network.solve(graph)  # And it can be fitted again.
    assert network.readout.is_fitted


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))],
                         ids=["deepcopy", "pickle"])  # fmt: skip
def test_copies(network, graph, other, twin_of):
    expected = network.answers(graph, other)
    twin = twin_of(network)
    found = twin.answers(graph, other)
    assert_same(found[:-1], expected[:-1])
    torch.testing.assert_close(found[-1], expected[-1])
    assert twin.embedding.fit is not network.embedding.fit
    with torch.no_grad():  # They share no memory.
        for tensor in (*twin.parameters(), *twin.buffers()):
            tensor.zero_()
    found = network.answers(graph, other)
    assert_same(found[:-1], expected[:-1])
    torch.testing.assert_close(found[-1], expected[-1])
    with pytest.raises(NotFittedError, match="factors"):
        twin_of(network).readout.leave_one_out()  # Copies do without matrices.
    assert network.readout.leave_one_out().shape == (6, 3)


def test_copies_can_be_trained_and_solved(network, graph):
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        twin.embedding.loss(graph.x, graph.edge_index).backward()
        assert bool(twin.embedding.h.grad.any())
        torch.testing.assert_close(twin.solve(graph), network.readout.scores)
        again = twin.readout.solve_again(Targets.of(graph, 3))
        torch.testing.assert_close(again, network.readout.scores, rtol=1e-4, atol=1e-4)


def test_another_precision(network, graph, other):
    expected = network.answers(graph, other)
    assert network.to(torch.float64) is network
    assert network.embedding.h.dtype == network.embedding.eigenvalues.dtype == torch.float64
    assert all(view.dtype == torch.float64 for view in network.embedding.fit.views.values())
    assert network.readout.scores.dtype == network.readout.bias.dtype == torch.float64
    assert network.readout.fit.label_class.dtype == torch.long
    wide, wide_other = in_double(graph), in_double(other)
    found = network.answers(wide, wide_other)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == torch.float64
        torch.testing.assert_close(ours, theirs.double(), rtol=1e-4, atol=1e-5)
    assert_same([found[3]], [expected[3].double()])
    back = network.float().answers(graph, other)
    for ours, theirs in zip(back, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_state_of_another_precision(network, graph, other):
    """What is loaded takes the type of the module."""
    expected = network.answers(graph, other)
    gram = "low_rank" if isinstance(network.readout.gram, LowRank) else "dense"
    wide = Network(gram).double()
    wide.load_state_dict(network.state_dict())
    assert wide.embedding.h.dtype == wide.embedding.eigenvalues.dtype == wide.readout.scores.dtype == torch.float64
    for ours, theirs in zip(wide.answers(in_double(graph), in_double(other)), expected, strict=True):
        torch.testing.assert_close(ours, theirs.double(), rtol=1e-4, atol=1e-5)


def test_modes_and_repr(network):
    assert not network.eval().embedding.fit.training
    assert not copy.deepcopy(network).embedding.fit.training
    assert "LayerFit" not in repr(network)
    assert repr(network.embedding.fit).startswith("LayerFit(eigenvalues: (5,), ")
    assert "view_h: (60, 8), view_x: (60, 8)" in repr(network.embedding.fit)


def test_fits_of_sparse_features_follow_too(graph, other, monkeypatch):
    monkeypatch.setattr("torch_gckm.graph.prepared._DENSE_ABOVE", 1.0)  # All entries of these are there.
    graph.x, new = to_csr(graph.x), other.clone()
    conv = GCKMConv(8, 4, kernel=RBF() * RBF().on("x")).initialize(graph.x, graph.edge_index)
    assert {view.layout for view in conv.fit.views.values()} == {torch.sparse_csr}
    expected = conv.transform(new.x, new.edge_index)
    fresh = GCKMConv(8, 4, kernel=RBF() * RBF().on("x"))
    fresh.load_state_dict(conv.state_dict())
    for twin in (fresh, copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        torch.testing.assert_close(twin.transform(new.x, new.edge_index), expected)
    wide = copy.deepcopy(conv).double()
    torch.testing.assert_close(wide.transform(new.x, new.edge_index).float(), expected, rtol=1e-4, atol=1e-5)


def test_fits_are_replaced_and_never_written_to(graph):
    model = GCKM(8, (4, 3), 3).initialize(graph)
    model.solve(graph)
    fits = [part.fit for part in (*model.layers, model.readout)]
    kept = [{name: tensor.clone() for name, tensor in fit.state_dict().items()} for fit in fits]
    other = make_graph(seed=5)
    model.initialize(other).solve(other)
    for fit, tensors in zip(fits, kept, strict=True):
        assert all(torch.equal(fit.state_dict()[name], tensor) for name, tensor in tensors.items())
    assert all(part.fit is not fit for part, fit in zip((*model.layers, model.readout), fits, strict=True))
    propagated = Propagation()(other.x, other.edge_index)
    torch.testing.assert_close(model.layers[0].fit.rows().view("h").dense(), propagated)
