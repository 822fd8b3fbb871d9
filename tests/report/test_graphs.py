import copy

import pytest
import torch
from torch_geometric.data import Data

from tests.conftest import make_graph
from torch_gckm.report.graphs import GraphView


def facts_of(graph):
    return dict(GraphView.of(graph).facts())


def test_facts():
    data = make_graph()
    facts, edges = facts_of(data), data.edge_index.size(1)
    assert facts["nodes"] == "60"
    assert facts["edges"] == f"{edges // 2} undirected"
    assert facts["mean degree"] == f"{edges / 60:.2f}"
    assert int(facts["isolated nodes"]) >= 2
    same = float((data.y[data.edge_index[0]] == data.y[data.edge_index[1]]).double().mean())
    assert GraphView.of(data).alike(data.y) == pytest.approx(same)
    directed = copy.copy(data)
    directed.edge_index = torch.tensor([[0, 1, 2], [1, 2, 2]])
    facts = facts_of(directed)
    assert facts["edges"] == "2 directed, 1 self-loops"
    assert facts["isolated nodes"] == "57"
    assert facts["components"].startswith("58;")
    directed.edge_index = torch.tensor([[0, 1, 2], [3, 3, 3]])
    assert facts_of(directed)["largest degree"] == "3 in, 1 out"
    directed.edge_index = torch.empty(2, 0, dtype=torch.long)
    assert facts_of(directed)["edges"] == "0 undirected"


def test_neighbours():
    edges = torch.tensor([[0, 0, 2, 3, 4, 5, 5, 6, 1], [1, 2, 0, 0, 0, 0, 5, 0, 0]])
    graph = GraphView.of(Data(x=torch.ones(9, 1), edge_index=edges))
    predicted = torch.tensor([0, 2, 1, 1, 1, 0, 3, 0, 0])
    nodes = torch.tensor([0, 5, 7])
    names = ["ant", "bee", "cat", "dog"]
    assert graph.neighbour_classes(nodes, predicted, names) == [
        "3 x bee, 1 x ant, 1 x cat, 1 others",
        "1 x ant",
        "none",
    ]
    values = torch.tensor([10.0, 1, 2, 3, 4, 5, 6, 0, 0])
    assert graph.neighbour_means(nodes, values) == ["6, mean 3.5", "1, mean 10", "none"]
    labels = torch.stack([predicted == 1, predicted != 0], dim=1)
    assert graph.neighbour_labels(nodes, labels, ["even", "odd"]) == ["5 x odd, 3 x even", "none", "none"]
