import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data
from torch_geometric.utils import is_undirected

from torch_gckm import GCKMClassifier
from torch_gckm.errors import InvalidInputError
from torch_gckm.estimators.inputs import (
    NumberedLabels,
    is_labelled,
    join,
    neighbour_graph,
    places_among,
    to_matrix,
    to_tensor,
)

LINE = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0], [30.0], [31.0]], dtype=np.float32)


def test_nearest_rows_are_joined_both_ways():
    edges = neighbour_graph(LINE, 1)
    assert is_undirected(edges)
    pairs = set(map(tuple, edges.t().tolist()))
    assert {(0, 1), (1, 0), (6, 7), (7, 6)} <= pairs
    assert not any(abs(a - b) > 1 for a, b in pairs)


def test_at_most_a_quarter_of_the_rows_are_neighbours():
    near = neighbour_graph(LINE, 100)
    assert torch.equal(near, neighbour_graph(LINE, 2))
    assert near.size(1) > neighbour_graph(LINE, 1).size(1)
    assert neighbour_graph(LINE[:2], 5).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("sparse", [False, True])
def test_new_nodes_listen_and_are_not_heard(sparse):
    rows = scipy.sparse.csr_matrix(LINE) if sparse else LINE
    graph = Data(x=to_tensor(rows), edge_index=neighbour_graph(LINE, 1))
    new = np.array([[1.2], [31.5]], dtype=np.float32)
    joined = join(graph, scipy.sparse.csr_matrix(new) if sparse else new, 2)
    more = joined.edge_index[:, graph.edge_index.size(1) :]
    assert set(map(tuple, more.t().tolist())) == {(1, 8), (2, 8), (7, 9), (6, 9)}
    assert torch.equal(joined.edge_index[:, : graph.edge_index.size(1)], graph.edge_index)
    assert joined.x.is_sparse_csr == sparse
    np.testing.assert_array_equal(joined.x.to_dense().numpy(), np.vstack([LINE, new]))


def test_new_edges_have_a_usual_weight():
    graph = Data(
        x=torch.from_numpy(LINE), edge_index=torch.tensor([[0, 1], [1, 0]]), edge_weight=torch.tensor([1.0, 9])
    )
    assert join(graph, LINE[:1] + 0.1, 2).edge_weight.tolist() == [1.0, 9.0, 3.0, 3.0]  # The geometric mean.
    graph.edge_index, graph.edge_weight = torch.empty(2, 0, dtype=torch.long), torch.empty(0)
    assert join(graph, LINE[:1] + 0.1, 1).edge_weight.tolist() == [1.0]


@pytest.mark.parametrize("as_kind", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_rows_are_found_again(as_kind):
    known = np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    asked = np.array([[2.0, -0.0], [0.0, 1.0], [1.0, 0.0]], dtype=np.float32)
    assert places_among(as_kind(asked), as_kind(known)).tolist() == [1, 0, -1]
    assert places_among(as_kind(known), as_kind(known)).tolist() == [0, 1, 0]
    assert places_among(as_kind(known), as_kind(known), are_nodes=True).tolist() == [0, 1, 2]


@pytest.mark.parametrize("matrix", [LINE, scipy.sparse.csr_matrix(LINE)])
def test_tensors_and_back(matrix):
    tensor = to_tensor(matrix)
    back = to_matrix(tensor)
    assert type(back) is type(matrix)
    np.testing.assert_array_equal(tensor.to_dense().numpy(), LINE)
    assert (back != matrix).sum() == 0
    if isinstance(matrix, np.ndarray):
        tensor[0, 0] = 5.0
        assert matrix[0, 0] == 0.0  # It is a copy.


@pytest.mark.parametrize(("y", "classes", "numbers"), [
    (np.array([5, -1, 3, 5]), [3, 5], [1, -1, 0, 1]),
    (np.array([1.0, -1.0, 0.0]), [0.0, 1.0], [1, -1, 0]),
    (np.array(["b", "a", -1]), ["a", "b"], [1, 0, -1]),  # NumPy makes "-1" of it.
    (np.array(["b", -1, "a"], dtype=object), ["a", "b"], [1, -1, 0]),
    (np.array([True, False]), [False, True], [1, 0]),
])  # fmt: skip
def test_classes_of_any_kind(y, classes, numbers):
    found = NumberedLabels.of_rows(y)
    assert found.classes.tolist() == classes
    assert found.places.tolist() == numbers
    assert is_labelled(y).tolist() == [number >= 0 for number in numbers]


@pytest.mark.parametrize("y", [np.array([1, 1, -1]), np.array([-1, -1]), np.array(["a", "-1"])])
def test_two_classes_are_needed(y):
    with pytest.raises(InvalidInputError, match="at least two classes"):
        NumberedLabels.of_rows(y)


def test_numbers_that_are_no_classes():
    with pytest.raises(ValueError, match="Unknown label type"):
        NumberedLabels.of_rows(np.array([0.5, 1.7, 2.2]))


def test_labels_of_a_table_have_its_index():
    pd = pytest.importorskip("pandas")
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.normal(size=(40, 2)), columns=["a", "b"], index=[f"n{row}" for row in range(40)])
    y = pd.Series(np.where(table["a"] > 0, "up", "down"), index=table.index)
    y.iloc[10:] = None
    classifier = GCKMClassifier(search=None, members=1, progress=False)
    with pytest.raises(InvalidInputError, match=r"index of X in another order; pass y\.loc\[X\.index\]"):
        classifier.fit(table, y.iloc[::-1])
    by_series = classifier.fit(table, y).predict()
    np.testing.assert_array_equal(classifier.fit(table, y.to_frame()).predict(), by_series)
