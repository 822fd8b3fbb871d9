"""Layers inside ordinary PyG models."""

import copy

import pytest
import torch
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GAT, GCN, GCNConv, GraphSAGE, Sequential, summary

from tests.conftest import make_graph
from torch_gckm import GCKM, CayleyAdam, GCKMConv, SemiSupRKMReadout, Trainer
from torch_gckm.datasets import load
from torch_gckm.errors import DetachedInputWarning, InvalidInputError
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


class Tutorial(torch.nn.Module):
    """The network of PyG's introduction by example, with a kernel layer in place of its first GCNConv."""

    def __init__(self, in_channels, classes, layer=GCKMConv):
        super().__init__()
        self.conv1, self.conv2 = layer(in_channels, 16), GCNConv(16, classes)

    def forward(self, x, edge_index):
        x = torch.nn.functional.relu(self.conv1(x, edge_index))
        x = torch.nn.functional.dropout(x, training=self.training)
        return self.conv2(x, edge_index)


def accuracy_of(model, data, epochs):
    optimizer = CayleyAdam(model.parameters(), lr=0.01, weight_decay=5e-4)
    model.train()
    for _ in range(epochs):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        torch.nn.functional.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = model(data.x, data.edge_index).argmax(dim=1) == data.y
    return float(right[data.test_mask].double().mean())


def test_the_tutorial_network_trains(graph):
    torch.manual_seed(0)
    model = Tutorial(-1, 3)
    assert accuracy_of(model, graph, 60) > 0.85
    assert float(orthogonality_error(model.conv1.h)) < 1e-5
    twin = copy.deepcopy(model)
    assert torch.equal(twin(graph.x, graph.edge_index), model(graph.x, graph.edge_index))
    accuracy_of(twin, graph, 5)
    assert float(orthogonality_error(twin.conv1.h)) < 1e-5
    assert not torch.equal(twin.conv1.h, model.conv1.h)


@pytest.mark.data
def test_the_tutorial_network_on_cora(data_root):
    data = load("cora", data_root)
    found = []
    for layer in (GCNConv, GCKMConv):
        torch.manual_seed(1000)
        found.append(accuracy_of(Tutorial(data.num_features, 7, layer), data, 200))
    assert found[1] > max(0.79, found[0] - 0.02)


@compiles
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_compiled_network_is_fitted_by_its_first_call(graph):
    torch.manual_seed(0)
    model = Tutorial(8, 3).eval()
    compiled = torch.compile(model, backend="eager")
    output = compiled(graph.x, graph.edge_index)
    assert model.conv1.is_initialized
    torch.testing.assert_close(output, model(graph.x, graph.edge_index))
    output.sum().backward()
    assert model.conv1.h.grad is not None


def explanation(model, graph, **masks):
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    algorithm = GNNExplainer(epochs=3)
    explainer = Explainer(model, algorithm, explanation_type="model", model_config=config, **masks)
    return explainer(graph.x, graph.edge_index, index=3)


class Head(torch.nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.encoder, self.readout, self.graph = GCNConv(8, 6), SemiSupRKMReadout(6, 3), graph

    def forward(self, x, edge_index):
        return self.readout(self.encoder(x, edge_index), self.graph.y, self.graph.train_mask)


def test_gnn_explainer_with_the_readout_as_a_head(graph):
    found = explanation(Head(graph), graph, node_mask_type="attributes", edge_mask_type="object")
    assert float(found.node_mask[3].abs().sum()) > 0
    assert bool(found.edge_mask.any())


def test_gnn_explainer_above_a_kernel_layer(graph):
    model = Tutorial(8, 3).eval()
    model(graph.x, graph.edge_index)
    with pytest.warns(DetachedInputWarning, match="which edges matter to the other layers only"):
        assert bool(explanation(model, graph, edge_mask_type="object").edge_mask.any())
    with (
        pytest.warns(DetachedInputWarning, match="passes no gradient"),
        pytest.raises(ValueError, match="node features are used inside the model"),
    ):
        explanation(model, graph, node_mask_type="attributes")


def test_the_best_state_so_far_is_kept_by_a_deep_copy():
    graph = make_graph()
    x = graph.x.relu().to_sparse_csr()
    conv, other = GCKMConv(8, 4), GCKMConv(-1, 4)
    conv(x, graph.edge_index)
    state = copy.deepcopy(conv.state_dict())
    other.load_state_dict(state)
    assert other.in_channels == 8
    torch.testing.assert_close(other(x, graph.edge_index), conv(x, graph.edge_index))
    torch.testing.assert_close(other.transform(x, graph.edge_index), conv.transform(x, graph.edge_index))
    with pytest.raises(InvalidInputError, match="layer with out_channels=4, not 5"):
        GCKMConv(8, 5).load_state_dict(state)


def test_channels_are_taken_from_the_first_graph():
    graph = make_graph()
    for hidden in ((4, 3), ()):
        model = GCKM(-1, hidden, 3)
        Trainer(model, steps=0, progress=False).fit(graph)
        assert all(part.in_channels > 0 for part in (model, model.readout, *model.layers))
        assert "-1" not in repr(model)
    readout = SemiSupRKMReadout(-1, 3)
    readout(graph.x, graph.y, graph.train_mask)
    assert readout.in_channels == 8
    with pytest.raises(InvalidInputError, match=r"shape \[n, 8\], got \[n, 7\]"):
        readout(graph.x[:, :7], graph.y, graph.train_mask)
    with pytest.raises(InvalidInputError, match="must be positive, or -1"):
        GCKMConv(0, 4)


@pytest.mark.parametrize(("n_id", "message"), [
    (torch.tensor([60]), "names nodes 60 to 60; fitted ones are 0 to 59"),
    (torch.tensor([-1, 2]), "names nodes -1 to 2"),
    (torch.ones(60, dtype=torch.bool), "must be numbers of nodes"),
    (torch.ones(60), "must be numbers of nodes"),
])  # fmt: skip
def test_numbers_of_sampled_nodes_are_checked(n_id, message):
    graph = make_graph()
    conv = GCKMConv(8, 4).initialize(graph.x, graph.edge_index)
    with pytest.raises(InvalidInputError, match=message):
        conv(graph.x, graph.edge_index, n_id=n_id)
