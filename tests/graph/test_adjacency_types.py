"""The same numbers from edges in every form. What needs torch-sparse runs in ``make test-sparse``."""

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric import EdgeIndex
from torch_geometric.loader import NeighborLoader
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer

needs_torch_sparse = pytest.mark.skipif(not WITH_TORCH_SPARSE, reason="torch-sparse is not installed")
quiet = pytest.mark.filterwarnings(
    "ignore:.*Sparse CS. tensor support is in beta",
    "ignore:Sparse invariant checks",
    "ignore:.*torch.jit",
    "ignore:Sparse CSR tensor",
    "ignore:Using 'NeighborSampler' without a 'pyg-lib'",
)


def as_sparse_tensor(edges, weight):
    return SparseTensor(row=edges[1], col=edges[0], value=weight, sparse_sizes=(60, 60))


FORMS = {
    "edge_index": lambda edges, weight: edges,
    "EdgeIndex": lambda edges, weight: EdgeIndex(edges, sparse_size=(60, 60)),
    "coo": lambda edges, weight: to_torch_coo_tensor(edges.flip(0), weight, size=60),
    "csr": lambda edges, weight: to_torch_csr_tensor(edges.flip(0), weight, size=60),
    "csc": lambda edges, weight: to_torch_csc_tensor(edges.flip(0), weight, size=60),
    "SparseTensor": as_sparse_tensor,
}
HOLDS_WEIGHTS = ("coo", "csr", "csc", "SparseTensor")


def in_form(graph, form, weight):
    """The graph with its edges in a form; matrices as ``adj_t``."""
    edges, data = FORMS[form](graph.edge_index, weight), graph.clone()
    if form in HOLDS_WEIGHTS:
        del data.edge_index
        data.adj_t = edges
    else:
        data.edge_index, data.edge_weight = edges, weight
    return data


@quiet
@pytest.mark.parametrize("form", [pytest.param(f, marks=needs_torch_sparse) if "T" in f else f for f in FORMS])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["gcn", "sum"])
def test_same_numbers(form, weighted, kind):
    graph = make_graph()
    weight = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0)) if weighted else None
    found = []
    for name in ("edge_index", form):
        data = in_form(graph, name, weight)
        model = GCKM(8, (4, 4), 3, aggregation=kind, hops=2)
        Trainer(model, steps=1, progress=False).fit(data)
        assert model.is_fitted_on(data)
        other = in_form(make_graph(seed=1), name, None)
        found.append((model.readout.scores, model.scores(other)))
    torch.testing.assert_close(found[0], found[1])


@quiet
@needs_torch_sparse
def test_pygs_transform():
    graph = make_graph()
    sparse = T.ToSparseTensor()(graph.clone())
    found = []
    for data in (graph, sparse):
        model = GCKM(8, (4,), 3)
        Trainer(model, steps=0, progress=False).fit(data)
        found.append(model.readout.scores)
    assert isinstance(sparse.adj_t, SparseTensor)
    torch.testing.assert_close(found[0], found[1])


@quiet
@needs_torch_sparse
def test_batches_of_a_neighbour_loader():
    """A node whose whole neighbourhood is in the batch gets the scores that it has in the whole graph."""
    graph = make_graph()
    model = GCKM(8, (4, 4), 3, aggregation="mean", gram="dense")
    Trainer(model, steps=0, progress=False).fit(graph)
    new = make_graph(50, seed=4)
    expected = model.scores(new)
    for batch in NeighborLoader(new, num_neighbors=[-1, -1], batch_size=16):
        seeds = slice(0, batch.batch_size)
        torch.testing.assert_close(model.scores(batch)[seeds], expected[batch.n_id[seeds]])
