"""Layers inside ordinary PyG models."""

import pytest
import torch
from torch_geometric.nn import GAT, GCN, GCNConv, GraphSAGE, Sequential, summary

from tests.conftest import make_graph
from torch_gckm import CayleyAdam, GCKMConv, SemiSupRKMReadout
from torch_gckm.gram import Dense
from torch_gckm.kernels import RBF, as_rows
from torch_gckm.manifold import orthogonality_error
from torch_gckm.optim import param_groups

# Warnings of torch.compile's own doing.
compiles = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


def test_beside_gcn_layers_with_its_loss_as_a_term():
    graph = make_graph()
    conv = GCKMConv(8, 6, gram="dense")
    model = Sequential("x, edge_index", [
        (conv, "x, edge_index -> h"),
        (GCNConv(6, 3), "h, edge_index -> h"),
    ])  # fmt: skip
    model(graph.x, graph.edge_index)  # Fits the layer.
    before = conv.h.detach().clone()
    optimizer = CayleyAdam(param_groups(model, lr=0.1), lr=0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        out = model(graph.x, graph.edge_index)
        supervised = torch.nn.functional.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])
        loss = supervised + 0.01 * conv.loss(graph.x, graph.edge_index)
        loss.backward()
        optimizer.step()
        losses.append(float(supervised.detach()))
    assert losses[-1] < 0.5 * losses[0]
    assert float(orthogonality_error(conv.h)) < 1e-4
    assert not torch.allclose(conv.h, before)


@pytest.mark.parametrize("encoder", [GCN, GAT, GraphSAGE])
@pytest.mark.parametrize("loss", ["cross_entropy", "multi_margin_loss"])
def test_head_of_an_encoder(encoder, loss):
    torch.manual_seed(0)
    graph = make_graph()
    network, readout = encoder(8, 16, num_layers=2, out_channels=6), SemiSupRKMReadout(6, 3, gram="dense")
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        readout(network(graph.x, graph.edge_index), graph.y, graph.train_mask)
        value = getattr(torch.nn.functional, loss)(readout.leave_one_out(), graph.y[graph.train_mask])
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    assert losses[-1] < losses[0]
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_summary():
    graph = make_graph()
    model = Sequential("x, edge_index", [(GCKMConv(8, 6, gram="dense"), "x, edge_index -> x"), torch.nn.Linear(6, 3)])
    model(graph.x, graph.edge_index)
    shown = summary(model, graph.x, graph.edge_index)
    assert "GCKMConv" in shown
    assert "[60, 6]" in shown


@compiles
def test_the_objective_compiles_whole():
    graph, kernel = make_graph(), RBF(2.0)
    h = torch.linalg.qr(torch.randn(60, 4, generator=torch.Generator().manual_seed(0)))[0].requires_grad_()

    def objective(aggregated, h):
        return Dense().centred(kernel, as_rows(aggregated)).centred_quadratic(h)

    compiled = torch.compile(objective, fullgraph=True, backend="aot_eager")
    plain = objective(graph.x, h)
    (expected,) = torch.autograd.grad(plain, h)
    value = compiled(graph.x, h)
    (gradient,) = torch.autograd.grad(value, h)
    torch.testing.assert_close(value, plain)
    torch.testing.assert_close(gradient, expected)


@compiles
def test_a_compiled_kernel_is_fitted_first():
    x = make_graph().x
    kernel = RBF()
    compiled = torch.compile(lambda x: kernel(x), backend="eager")(x)
    torch.testing.assert_close(compiled, RBF()(x))
