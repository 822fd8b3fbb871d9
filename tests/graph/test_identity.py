"""What tells one graph from another."""

import pytest
import torch
from torch_geometric.data import Data

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.graph import Topology
from torch_gckm.graph.topology import edge_identity, matrix_identity

EDGES = torch.tensor([[0, 1, 1, 2, 4, 3], [1, 0, 2, 3, 1, 2]])
WEIGHT = torch.tensor([1.0, 0.5, 2.0, 1.5, 0.3, 1.0], dtype=torch.float64)


def fit(data, **arguments):
    model = GCKM(data.num_features, (6, 4), 3, **arguments).to(data.x.dtype)
    Trainer(model, steps=0, progress=False).fit(data)
    return model


class TestEdges:
    def test_their_order_does_not_matter(self):
        shuffled = EDGES[:, torch.tensor([3, 1, 0, 5, 4, 2])]
        assert edge_identity(EDGES, None, 6) == edge_identity(shuffled, None, 6)

    def test_direction_size_and_weights_matter(self):
        identity = edge_identity(EDGES, None, 6)
        assert identity[:2] == (identity.num_nodes, identity.num_edges) == (6, 6)
        assert identity != edge_identity(EDGES.flip(0), None, 6)
        assert identity != edge_identity(EDGES, None, 7)
        assert identity != edge_identity(EDGES, WEIGHT, 6)
        assert identity == edge_identity(EDGES, torch.ones(6, dtype=torch.float64), 6)

    def test_weights_of_any_precision(self):
        assert edge_identity(EDGES, WEIGHT.float(), 6) == edge_identity(EDGES, WEIGHT.float().double(), 6)
        assert edge_identity(EDGES, WEIGHT, 6) != edge_identity(EDGES, WEIGHT * (1 + 1e-12), 6)

    def test_any_default_precision(self):
        before = torch.get_default_dtype()
        graph = make_graph()
        try:
            torch.set_default_dtype(torch.float64)
            wide = Topology(graph.edge_index, None, 60).identity
        finally:
            torch.set_default_dtype(before)
        assert wide == Topology(graph.edge_index, None, 60).identity


@pytest.mark.filterwarnings("ignore:.*Sparse CSR tensor support is in beta")
class TestFeatures:
    @pytest.mark.parametrize("share", [0.005, 0.1, 0.9])
    def test_the_layout_does_not_matter(self, share):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(60, 40, generator=generator) * (torch.rand(60, 40, generator=generator) < share)
        assert matrix_identity(x) == matrix_identity(x.to_sparse_csr()) == matrix_identity(x.to_sparse())
        assert matrix_identity(x) != matrix_identity(x.flip(0))
        narrow = x.to_sparse_csr()
        parts = narrow.crow_indices().int(), narrow.col_indices().int(), narrow.values()
        assert matrix_identity(x) == matrix_identity(
            torch.sparse_csr_tensor(*parts, size=x.shape, check_invariants=False)
        )

    def test_explicit_zeros_and_signs_of_zero_do_not_matter(self):
        x = torch.zeros(30, 50)
        x[3, 4] = 2.0
        stored = x.to_sparse_csr()
        index = torch.tensor([[3, 7], [4, 1]])
        padded = torch.sparse_coo_tensor(index, torch.tensor([2.0, 0.0]), (30, 50), check_invariants=True)
        assert matrix_identity(x) == matrix_identity(stored) == matrix_identity(padded)
        dense = torch.ones(3, 2)
        dense[0, 0] = 0.0
        assert matrix_identity(dense) == matrix_identity(torch.where(dense == 0, -0.0, dense))

    def test_the_place_of_every_entry_matters(self):
        x = torch.arange(12.0).view(4, 3)
        for other in (x.t(), x.view(3, 4), x.view(2, 6), x[:, [1, 0, 2]], x[[1, 0, 2, 3]], -x, x + 1e-6):
            assert matrix_identity(x) != matrix_identity(other)
        assert matrix_identity(x) == matrix_identity(x.t().contiguous().t())

    def test_equal_numbers_of_another_type_are_the_same(self):
        x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
        assert matrix_identity(x) == matrix_identity(x.double())
        assert matrix_identity(x.double()) != matrix_identity(x.double() * (1 + 1e-12))

    def test_blocks_do_not_matter(self, monkeypatch):
        x = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
        whole = matrix_identity(x), matrix_identity(x.to_sparse())
        monkeypatch.setattr("torch_gckm.blocks.BLOCK_ENTRIES", 50)
        assert (matrix_identity(x), matrix_identity(x.to_sparse())) == whole


class TestModels:
    def test_features_of_the_other_sign_are_another_graph(self, graph):
        """An even number of columns: sums and products of signs would not show it."""
        model = fit(graph)
        mirrored = Data(x=-graph.x, edge_index=graph.edge_index)
        assert graph.num_features % 2 == 0
        assert not model.is_fitted_on(mirrored)
        assert torch.equal(model.predict(mirrored), model.inductive().predict(mirrored))
        assert not torch.allclose(model.scores(mirrored), model.readout.scores, atol=1e-2)

    def test_a_double_model_sees_more_digits_than_single_precision_has(self, graph64):
        model = fit(graph64)
        near = graph64.clone()
        near.x = graph64.x.clone()
        near.x[3, 2] *= 1 + 1e-12
        assert torch.equal(near.x.float(), graph64.x.float())
        assert model.is_fitted_on(graph64)
        assert not model.is_fitted_on(near)

    def test_a_single_model_does_not(self, graph):
        model, near = fit(graph), graph.clone()
        near.x = graph.x.double() * (1 + 1e-12)
        assert model.is_fitted_on(near)

    def test_a_cast_model_knows_its_graph(self, graph):
        model = fit(graph)
        scores = model.readout.scores
        assert model.double().is_fitted_on(graph)
        assert torch.equal(model.scores(graph), scores.double())

    def test_other_weights_are_another_graph(self, graph64):
        model, weighted = fit(graph64), graph64.clone()
        weighted.edge_weight = torch.ones(graph64.num_edges)
        assert model.is_fitted_on(weighted)
        weighted.edge_weight[0] = 1.1
        assert not model.is_fitted_on(weighted)

    def test_nothing_is_the_graph_of_an_unfitted_model(self, graph):
        assert not GCKM(8, (6, 4), 3).is_fitted_on(graph)
