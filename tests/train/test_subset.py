"""Training on some of the nodes."""

import numpy as np
import pytest
import torch
from torch_geometric.utils import to_torch_csr_tensor

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import InvalidInputError
from torch_gckm.train.labelling import node_subset


def test_what_is_left_is_the_graph_between_the_nodes():
    graph = make_graph()
    nodes = torch.arange(0, 60, 2)
    graph.edge_weight = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0))
    part = node_subset(graph, nodes)
    kept = torch.tensor(sorted({*nodes.tolist(), *range(12)}))  # The first twelve have labels to train or validate by.
    torch.testing.assert_close(part.x, graph.x[kept])
    assert torch.equal(part.y, graph.y[kept])
    assert torch.equal(part.train_mask > 0, graph.train_mask[kept])
    dense = torch.zeros(60, 60).index_put(tuple(graph.edge_index), graph.edge_weight)
    expected = dense[kept][:, kept]
    found = torch.zeros_like(expected).index_put(tuple(part.edge_index), part.edge_weight)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("nodes", "count"), [
    (0.5, 30), (25, 25), (3, 12), (1.0, 60), (torch.arange(60) < 20, 20),
    (list(range(20)), 20), (np.arange(20), 20),
])  # fmt: skip
def test_how_many(nodes, count):
    graph = make_graph()
    part = node_subset(graph, nodes, seed=1)
    assert part.num_nodes == count
    assert int((part.train_mask > 0).sum()) == int(graph.train_mask.sum())
    assert int((part.val_mask > 0).sum()) == int(graph.val_mask.sum())


@pytest.mark.filterwarnings("ignore:.*Sparse CSR tensor support is in beta", "ignore:Sparse invariant checks")
def test_sparse_features_and_adjacency():
    graph = make_graph()
    plain = node_subset(graph, 0.5)
    sparse = graph.clone()
    sparse.x, sparse.adj_t = graph.x.to_sparse_csr(), to_torch_csr_tensor(graph.edge_index.flip(0), size=60)
    del sparse.edge_index
    part = node_subset(sparse, 0.5)
    assert part.x.layout == torch.sparse_csr
    torch.testing.assert_close(part.x.to_dense(), plain.x)
    assert {tuple(edge) for edge in part.edge_index.t().tolist()} == {
        tuple(edge) for edge in plain.edge_index.t().tolist()
    }


def test_the_trainer_fits_some_nodes_and_predicts_all():
    graph = make_graph(120)
    model = GCKM(8, (6, 4), 3, gram="dense")
    history = Trainer(model, steps=2, nodes=0.5, progress=False).fit(graph)
    assert len(history) == 3
    assert model.layers[0].h.size(0) == 60
    predicted = model.predict(graph)
    assert predicted.shape == (120,)
    assert float((predicted == graph.y)[graph.test_mask].double().mean()) > 0.8
    # All nodes are as many as there are without the option.
    whole, same = GCKM(8, (6, 4), 3), GCKM(8, (6, 4), 3)
    Trainer(whole, steps=1, nodes=1.0, progress=False).fit(graph)
    Trainer(same, steps=1, progress=False).fit(graph)
    torch.testing.assert_close(whole.readout.scores, same.readout.scores)


@pytest.mark.parametrize("nodes", [0.0, 1.5, 0, 61, -3, True])
def test_bad_numbers(nodes):
    with pytest.raises(InvalidInputError, match="share"):
        node_subset(make_graph(), nodes)
