"""Graphs of all kinds: directed, weighted, several at once, and those that are refused."""

import re

import pytest
import torch
import torch_geometric
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.utils import to_undirected

from tests.conftest import make_graph
from torch_gckm import GCKM, GCKMConv
from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.graph import canonical_edges, graph_of, is_directed


def fitted(data, **settings):
    model = GCKM(data.num_features, (2,), 2, gram="dense", **settings)
    model.initialize(data).solve(data)
    return model


def receivers(count=40):
    """Nodes of the second half receive from one of two kinds of sources and send to the other: that is their class.

    The features of the second half are noise; its nodes have edges to or from one source of each kind.
    """
    generator = torch.Generator().manual_seed(0)
    kind = torch.arange(count) % 2
    x = torch.cat([torch.nn.functional.one_hot(kind, 2).float(), torch.zeros(count, 2)])
    x = x + 0.03 * torch.randn(x.shape, generator=generator)
    nodes = torch.arange(count, 2 * count)
    receives = 2 * torch.randint(count // 2, (count,), generator=generator) + kind
    sends = 2 * torch.randint(count // 2, (count,), generator=generator) + 1 - kind
    edges = torch.stack([torch.cat([receives, nodes]), torch.cat([nodes, sends])])
    train_mask = torch.zeros(2 * count, dtype=torch.bool)
    train_mask[count : count + 6] = True
    return Data(x=x, edge_index=edges, y=torch.cat([kind, kind]), train_mask=train_mask)


def accuracy(data, **settings):
    right = fitted(data, aggregation="sum", **settings).predict() == data.y
    return float(right[46:].double().mean())


def test_direction_decides_the_class():
    data = receivers()
    both_ways = data.clone()
    both_ways.edge_index = to_undirected(data.edge_index)
    assert accuracy(data) > 0.9
    assert accuracy(data, direction="out") > 0.9
    assert accuracy(data, direction="both") < 0.7
    assert accuracy(both_ways) < 0.7


def test_which_graphs_are_directed():
    data = receivers()
    assert is_directed(data)
    data.edge_index = to_undirected(data.edge_index)
    assert not is_directed(data)
    data.edge_weight = torch.rand(data.num_edges, generator=torch.Generator().manual_seed(0))
    assert is_directed(data)
    # Parallel edges add up; sums and roundings may differ a little.
    data.edge_index = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]])
    data.edge_weight = torch.tensor([1.0, 2.0, 2.0, 1.0 + 1e-7])
    assert not is_directed(data)
    data.edge_weight = data.edge_index = None
    assert not is_directed(data)


def test_weights_decide_the_class():
    data = receivers()
    data.edge_weight = torch.where(data.edge_index[1] >= 40, 1.0, 0.1)
    both_ways = data.clone()
    both_ways.edge_index, both_ways.edge_weight = to_undirected(data.edge_index, data.edge_weight)
    assert accuracy(both_ways) > 0.9
    del both_ways.edge_weight
    assert accuracy(both_ways) < 0.7


@pytest.mark.parametrize("columns", [(), (1,), (3,)])
def test_edge_attributes_are_no_weights(columns):
    graph = make_graph()
    data = graph.clone()
    data.edge_attr = torch.rand(graph.num_edges, *columns, generator=torch.Generator().manual_seed(0))
    with pytest.warns(GCKMWarning, match="'edge_attr' are not used; set data.edge_weight"):
        x, edges, weight = graph_of(data)
    assert weight is None
    assert x is data.x
    assert edges is data.edge_index
    data.edge_weight = torch.rand(graph.num_edges)  # Says what to do about them.
    assert graph_of(data)[2] is data.edge_weight


@pytest.mark.parametrize("gram", ["dense", "auto"])
def test_several_graphs_in_a_batch_are_one(gram):
    graphs = [make_graph(40), make_graph(30, seed=1)]
    batch = Batch.from_data_list(graphs)
    model = GCKM(8, (4,), 3, gram=gram).initialize(batch)
    model.solve(batch)
    assert model.predict().shape == (70,)
    new = [make_graph(20, seed=2), make_graph(25, seed=3)]
    together = model.scores(Batch.from_data_list(new))
    torch.testing.assert_close(together, torch.cat([model.scores(graph) for graph in new]))


def test_isolated_nodes_loops_and_no_edges():
    graph = make_graph()
    graph.edge_index = torch.empty(2, 0, dtype=torch.long)
    plain = GCKM(8, (4,), 3, aggregation="none", gram="dense").initialize(graph)
    for kind in ("gcn", "mean", "sum"):
        model = GCKM(8, (4,), 3, aggregation=kind, gram="dense").initialize(graph)
        torch.testing.assert_close(model.solve(graph), plain.solve(graph))


def test_what_is_refused():
    graph = make_graph()
    for build, match in (
        (lambda: HeteroData(), "heterogeneous"),
        (lambda: Data(x=(graph.x, graph.x), edge_index=graph.edge_index), "bipartite"),
        (lambda: Data(edge_index=graph.edge_index, num_nodes=60), "no node features"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            graph_of(build())
    with pytest.raises(InvalidInputError, match="bipartite"):
        GCKMConv(8, 4)((graph.x, graph.x), graph.edge_index)
    adj_t = torch.sparse_coo_tensor(graph.edge_index, torch.ones(graph.num_edges), (60, 61), check_invariants=True)
    with pytest.raises(InvalidInputError, match="square"):
        GCKMConv(8, 4)(graph.x, adj_t)


def test_canonical_edges():
    edges, weight = canonical_edges(None, None, 5)
    assert edges.shape == (2, 0)
    assert edges.dtype == torch.long
    assert weight is None
    given = torch.tensor([[0, 1], [2, 0]])
    edges, weight = canonical_edges(given.int(), torch.tensor([[3], [4]]), 5)
    assert torch.equal(edges, given)
    assert weight.tolist() == [3.0, 4.0]
    assert weight.dtype == torch.get_default_dtype()
    uncoalesced = torch.sparse_coo_tensor([[2, 2], [0, 0]], [1.0, 2.0], (5, 5), check_invariants=True)
    edges, weight = canonical_edges(uncoalesced, None, 5)  # Rows of adj_t are targets.
    assert (edges.tolist(), weight.tolist()) == ([[0], [2]], [3.0])


@pytest.mark.filterwarnings("ignore:Sparse")  # PyG's own products.
def test_the_lines_that_the_error_names_convert_a_heterogeneous_graph():
    data = HeteroData()
    data["paper"].x, data["paper"].y = torch.rand(4, 3), torch.tensor([0, 1, -1, -1])
    data["author"].x = torch.rand(2, 5)
    data["paper", "by", "author"].edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
    data["author", "of", "paper"].edge_index = torch.tensor([[0, 0, 1], [0, 1, 2]])
    with pytest.raises(InvalidInputError, match="heterogeneous") as raised:
        graph_of(data)
    first, second = re.search(r"other types: data = (.*) and then (Data\(.*\))$", str(raised.value)).groups()
    data = eval(first, {"torch_geometric": torch_geometric, "data": data})
    joined = eval(second, {"Data": Data, "data": data})
    x, edges, _ = graph_of(joined)
    assert x.shape == (4, 3)
    assert {(0, 1), (1, 0)} <= set(map(tuple, edges.t().tolist()))
    assert torch.equal(joined.y, torch.tensor([0, 1, -1, -1]))
