"""The graph of the last call, known again by its tensors."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch_geometric.nn import GCNConv

from tests.conftest import make_graph
from torch_gckm import GCKM, GCKMConv, Trainer
from torch_gckm.graph import Propagation, RememberedGraph
from torch_gckm.graph.topology import PropagationMatrix
from torch_gckm.kernels import RBF


def ask(remembered, x, edges, weight=None, dtype=torch.float32):
    return remembered.get(x, edges, weight, dtype)


def test_the_same_tensors_are_the_same_graph(graph):
    remembered = RememberedGraph()
    weight = torch.rand(graph.num_edges)
    for edges, weights in ((graph.edge_index, None), (graph.edge_index, weight), (None, None)):
        first = ask(remembered, graph.x, edges, weights)
        assert ask(remembered, graph.x, edges, weights) is first


def test_other_and_written_tensors_are_another_graph(graph):
    remembered, x, edges = RememberedGraph(), graph.x.clone(), graph.edge_index.clone()
    graphs = [ask(remembered, x, edges)]
    graphs.append(ask(remembered, x.clone(), edges))  # Equal values, another tensor.
    x += 1
    graphs.append(ask(remembered, x, edges))
    x.data = x + 1
    graphs.append(ask(remembered, x, edges))
    edges[0, 0] = edges[0, 1]
    graphs.append(ask(remembered, x, edges))
    graphs.append(ask(remembered, x, edges, torch.ones(edges.size(1))))
    graphs.append(ask(remembered, x, edges, torch.ones(edges.size(1)), torch.float64))
    assert len({id(graph) for graph in graphs}) == len(graphs)


def test_edges_are_kept_while_features_change(graph):
    """Above layers that are trained, x is another tensor in every step."""
    remembered = RememberedGraph()
    first = ask(remembered, graph.x, graph.edge_index)
    second = ask(remembered, graph.x + 1, graph.edge_index)
    assert second is not first
    assert second.topology is first.topology
    fewer = graph.edge_index[:, graph.edge_index.max(dim=0).values < 59]
    third = ask(remembered, graph.x, fewer)
    assert ask(remembered, graph.x[:59], fewer).topology is not third.topology


def test_nothing_is_kept_in_inference_mode(graph):
    remembered = RememberedGraph()
    with torch.inference_mode():
        assert ask(remembered, graph.x, graph.edge_index) is not ask(remembered, graph.x, graph.edge_index)
        made_here = graph.x + 1
    assert ask(remembered, made_here, graph.edge_index) is not ask(remembered, made_here, graph.edge_index)


def test_nothing_is_kept_while_gradients_flow_to_the_weights(graph):
    conv = GCKMConv(8, 4, kernel=RBF(2.0))
    weights = torch.ones(graph.num_edges, 1, requires_grad=True)
    adj_t = torch.sparse_coo_tensor(graph.edge_index.flip(0), torch.ones(graph.num_edges), (60, 60),
                                    check_invariants=True).coalesce().requires_grad_()  # fmt: skip
    for edges, weight, tracked in ((graph.edge_index, weights, weights), (adj_t, None, adj_t)):
        conv.initialize(graph.x, edges, weight)
        gradients = []
        for _ in range(2):  # What one backward pass frees, the next one needs.
            conv.loss(graph.x, edges, weight).backward()
            gradients.append(tracked.grad.to_dense().clone())
        torch.testing.assert_close(gradients[1], 2 * gradients[0])


def test_copies_and_pickles_start_empty(graph):
    remembered = RememberedGraph()
    first = ask(remembered, graph.x, graph.edge_index)
    for other in (copy.deepcopy(remembered), pickle.loads(pickle.dumps(remembered))):
        assert ask(other, graph.x, graph.edge_index) is not first
    assert ask(remembered, graph.x, graph.edge_index) is first


def test_threads_see_whole_calls():
    remembered, graphs = RememberedGraph(), [make_graph(10 + number) for number in range(5)]

    def nodes(number):
        data = graphs[number % 5]
        found = ask(remembered, data.x, data.edge_index)
        return found.num_nodes == found.x.size(0) == 10 + number % 5

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(nodes, range(500)))


@pytest.fixture
def counted(monkeypatch):
    """How often features were propagated, and matrices built."""
    calls = {"propagated": 0, "built": 0}
    forward, build = Propagation.forward, PropagationMatrix

    def propagate(self, *args):
        calls["propagated"] += 1
        return forward(self, *args)

    def matrix(*args):
        calls["built"] += 1
        return build(*args)

    monkeypatch.setattr(Propagation, "forward", propagate)
    monkeypatch.setattr("torch_gckm.graph.topology.PropagationMatrix", matrix)
    return calls


def test_a_layer_propagates_its_features_once(graph, counted):
    conv = GCKMConv(8, 4)
    for _ in range(3):
        conv(graph.x, graph.edge_index)
        conv.loss(graph.x, graph.edge_index).backward()
    assert counted == {"propagated": 1, "built": 1}


def test_other_data_do_not_evict_the_training_graph(graph, counted):
    conv, other = GCKMConv(8, 4), make_graph(30, seed=1)
    conv.initialize(graph.x, graph.edge_index)
    before = conv.loss(graph.x, graph.edge_index).detach()
    conv.transform(other.x, other.edge_index)
    counted.update(propagated=0, built=0)
    assert torch.equal(conv.loss(graph.x, graph.edge_index).detach(), before)
    assert counted == {"propagated": 0, "built": 0}


def test_trained_features_need_no_new_matrix(graph, counted):
    below, conv = GCNConv(8, 8), GCKMConv(8, 4).initialize(graph.x, graph.edge_index)
    for _ in range(3):
        conv.loss(below(graph.x, graph.edge_index), graph.edge_index).backward()
    assert counted["built"] == 1


class TestAFitBeginsAnew:
    """Writes that torch cannot see, through NumPy and ``.data``, are seen by the next fit."""

    @pytest.mark.parametrize("through", ["numpy", "data"])
    @pytest.mark.parametrize("what", ["x", "edge_index"])
    @pytest.mark.parametrize("aggregation", ["gcn", "none"])
    def test_of_a_layer(self, through, what, aggregation):
        graph = make_graph()
        conv = GCKMConv(8, 4, kernel=RBF(2.0), aggregation=aggregation).initialize(graph.x, graph.edge_index)
        conv.loss(graph.x, graph.edge_index)
        write(graph, what, through)
        conv.initialize(graph.x, graph.edge_index)
        fresh = GCKMConv(8, 4, kernel=RBF(2.0), aggregation=aggregation)
        fresh.initialize(graph.x.clone(), graph.edge_index.clone())
        assert torch.equal(conv.h, fresh.h)
        losses = [layer.loss(graph.x, graph.edge_index).detach() for layer in (conv, fresh)]
        torch.testing.assert_close(losses[0], losses[1])

    @pytest.mark.parametrize("through", ["numpy", "data"])
    @pytest.mark.parametrize("what", ["x", "edge_index"])
    def test_of_a_model(self, through, what):
        graph = make_graph()
        model, fresh = GCKM(8, (4, 3), 3), GCKM(8, (4, 3), 3)
        Trainer(model, steps=1, progress=False).fit(graph)
        before = model.readout.scores
        write(graph, what, through)
        assert not model.is_fitted_on(graph)
        Trainer(model, steps=1, progress=False).fit(graph)
        Trainer(fresh, steps=1, progress=False).fit(graph.clone())
        assert not torch.allclose(model.readout.scores, before)
        assert torch.equal(model.readout.scores, fresh.readout.scores)
        model.initialize(graph).solve(graph)
        assert torch.equal(model.readout.scores, fresh.initialize(graph.clone()).solve(graph))


def write(graph, what, through):
    tensor = getattr(graph, what)
    values = tensor.numpy() if through == "numpy" else tensor.data
    values[:, 0] = values[:, 1]
    values[0] = values[0][::-1].copy() if through == "numpy" else values[0].flip(0)


def test_knows_the_arguments_of_the_last_call(graph):
    remembered = RememberedGraph()
    arguments = (graph.x, graph.edge_index, None, torch.float32)
    assert not remembered.knows(*arguments)
    remembered.get(*arguments)
    assert remembered.knows(*arguments)
    assert not remembered.knows(graph.x.clone(), *arguments[1:])
