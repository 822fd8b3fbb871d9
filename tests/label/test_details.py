import pytest
import torch
from torch_geometric.data import Data

from torch_gckm.label.details import NodeDetails

X = torch.tensor([[0.0, 5.0, 1.0], [0.0, 5.0, 1.0], [0.0, 5.0, 1.0], [9.0, 5.0, 0.0]])


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_the_most_unusual_features_come_first(layout):
    x = X if layout == "dense" else X.to_sparse()
    details = NodeDetails(Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long)), ["a", "b", "c"])
    first, second = details.unusual(3)  # Column b is the same everywhere.
    assert {first.name, second.name} == {"a", "c"}
    by_name = {value.name: value for value in (first, second)}
    assert by_name["a"].value == 9.0
    assert by_name["a"].mean == pytest.approx(2.25)
    assert by_name["a"].deviations == pytest.approx(3**0.5)
    assert by_name["c"].deviations == pytest.approx(-(3**0.5))
    assert len(details.unusual(0, count=1)) == 1


def test_neighbours_in_either_direction_by_weight():
    edges = torch.tensor([[0, 2, 0, 0], [1, 0, 3, 0]])
    graph = Data(x=X, edge_index=edges, edge_weight=torch.tensor([1.0, 5.0, 2.0, 9.0]))
    details = NodeDetails(graph)
    assert details.neighbours(0) == [2, 3, 1]
    assert details.neighbours(2) == [0]
    assert NodeDetails(Data(x=X, edge_index=None)).neighbours(0) == []
    assert details.unusual(3)[0].name in ("column 1", "column 3")
