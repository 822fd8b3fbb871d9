"""Every baseline against its paper's formula, or against PyG's layer."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from baselines import dmon, ssgc_clusters, svm
from baselines.filters import PolynomialFilter, bernstein, interpolation, pagerank_weights
from baselines.networks import NETWORKS, GraphSAGE, SparseGCNConv
from baselines.sparse import SparseMatrix, adjacency, features
from baselines.training import GRID, NetworkTrainer, Recipe
from baselines.tuning import BASELINES, cross_validate, validate
from scipy.linalg import expm
from sklearn.metrics.pairwise import rbf_kernel
from torch_geometric.nn import APPNP, DMoNPooling, GCNConv, SAGEConv
from torch_geometric.utils import to_dense_adj


def dense_adjacency(graph):
    return to_dense_adj(graph.edge_index, max_num_nodes=graph.num_nodes)[0]


def symmetric(graph):
    """The normalised adjacency matrix without self-loops."""
    matrix = dense_adjacency(graph).double()
    inverse = matrix.sum(dim=1).pow(-0.5)
    inverse[inverse.isinf()] = 0.0
    return inverse[:, None] * matrix * inverse


class TestSparseMatrix:
    def test_products_and_gradients(self):
        torch.manual_seed(0)
        dense = torch.randn(7, 5) * (torch.rand(7, 5) < 0.5)
        right = torch.randn(5, 3, requires_grad=True)
        weight = torch.randn(7, 3)
        (grad,) = torch.autograd.grad(((SparseMatrix(dense) @ right) * weight).sum(), right)
        assert torch.allclose(SparseMatrix(dense) @ right, dense @ right)
        assert torch.allclose(grad, dense.t() @ weight)

    def test_dropout_keeps_the_mean(self):
        torch.manual_seed(0)
        matrix = SparseMatrix(torch.ones(100, 100))
        dropped = matrix.drop(0.5, training=True) @ torch.ones(100, 1)
        assert float(dropped.mean()) == pytest.approx(100.0, rel=0.05)
        assert matrix.drop(0.5, training=False) is matrix

    def test_normalisations(self, graph):
        eye = torch.eye(graph.num_nodes)
        assert torch.allclose(adjacency(graph, "symmetric") @ eye, symmetric(graph).float(), atol=1e-6)
        assert torch.allclose((adjacency(graph, "mean") @ eye).sum(dim=1)[1:59], torch.ones(58))


class TestLayers:
    def test_gcn_is_that_of_pyg(self, graph):
        ours, theirs = SparseGCNConv(adjacency(graph, "gcn"), 12, 4), GCNConv(12, 4)
        theirs.load_state_dict(ours.state_dict())
        assert torch.allclose(ours(features(graph, False)), theirs(graph.x, graph.edge_index), atol=1e-6)

    def test_sage_is_that_of_pyg(self, graph):
        ours, theirs = GraphSAGE(adjacency(graph, "mean"), (12, 8, 3), (0.0, 0.0)), SAGEConv(12, 8)
        theirs.lin_l.load_state_dict(ours.neighbours[0].state_dict())
        theirs.lin_r.load_state_dict(ours.own[0].state_dict())
        expected = theirs(graph.x, graph.edge_index)
        assert torch.allclose(ours._convolve(0, features(graph, False)), expected, atol=1e-6)

    def test_appnp_is_that_of_pyg(self, graph):
        z = torch.randn(graph.num_nodes, 3)
        ours = PolynomialFilter(adjacency(graph, "gcn"), pagerank_weights(10, 0.1), learned=False)
        assert torch.allclose(ours(z), APPNP(10, 0.1)(z, graph.edge_index), atol=1e-5)

    def test_gpr_is_a_polynomial_of_the_adjacency_matrix(self, graph):
        weights, z = torch.randn(4), torch.randn(graph.num_nodes, 3)
        matrix = adjacency(graph, "gcn") @ torch.eye(graph.num_nodes)
        expected = sum(w * torch.matrix_power(matrix, k) @ z for k, w in enumerate(weights))
        assert torch.allclose(PolynomialFilter(adjacency(graph, "gcn"), weights)(z), expected, atol=1e-5)

    def test_bernnet_formula(self, graph):
        order, z = 10, torch.randn(graph.num_nodes, 3, dtype=torch.float64)
        theta = torch.randn(order + 1)
        laplacian = torch.eye(graph.num_nodes, dtype=torch.float64) - symmetric(graph)
        other = 2 * torch.eye(graph.num_nodes, dtype=torch.float64) - laplacian
        expected = sum(
            float(theta[k].relu()) * math.comb(order, k) / 2**order
            * torch.matrix_power(other, order - k) @ torch.matrix_power(laplacian, k) @ z
            for k in range(order + 1)
        )  # fmt: skip
        found = PolynomialFilter(adjacency(graph, "symmetric"), theta, bernstein(order))(z.float())
        assert torch.allclose(found.double(), expected, atol=1e-4)

    def test_chebnet_formula(self, graph):
        order, z = 10, torch.randn(graph.num_nodes, 3, dtype=torch.float64)
        theta = torch.randn(order + 1)
        shifted = -symmetric(graph)
        nodes = [math.cos((j + 0.5) * math.pi / (order + 1)) for j in range(order + 1)]
        expected = torch.zeros_like(z)
        before, now = torch.eye(graph.num_nodes, dtype=torch.float64), shifted
        for k in range(order + 1):
            values = [float(theta[j].relu()) * math.cos(k * math.acos(nodes[j])) for j in range(order + 1)]
            expected += (1 if k == 0 else 2) / (order + 1) * sum(values) * before @ z
            before, now = now, 2 * shifted @ now - before
        found = PolynomialFilter(adjacency(graph, "symmetric"), theta, interpolation(order))(z.float())
        assert torch.allclose(found.double(), expected, atol=1e-4)

    def test_interpolation_passes_through_the_values(self):
        coefficients = interpolation(6).double().numpy() @ np.arange(7.0)
        nodes = np.cos((np.arange(7) + 0.5) * math.pi / 7)
        assert np.allclose(np.polynomial.chebyshev.chebval(nodes, coefficients), np.arange(7.0), atol=1e-5)

    def test_dmon_loss_is_that_of_pyg(self, graph):
        torch.manual_seed(0)
        pooling = DMoNPooling(12, 4)
        matrix = dense_adjacency(graph)
        assignment, _, _, spectral, _, collapse = pooling(graph.x, matrix)
        ours = dmon.modularity_loss(SparseMatrix(matrix), assignment[0])
        assert ours.item() == pytest.approx((spectral + collapse).item(), abs=1e-5)


class TestSVM:
    nodes = torch.tensor([1, 5, 30])

    def test_rbf(self, graph):
        setting, columns = next(svm.rbf_columns(graph, self.nodes))
        x = graph.x.double().numpy()
        assert np.allclose(columns, rbf_kernel(x, x[self.nodes], setting["gamma"]))

    def test_diffusion(self, graph):
        laplacian = np.diag((dense_adjacency(graph).sum(dim=1) > 0).double().numpy()) - symmetric(graph).numpy()
        for setting, columns in svm.diffusion_columns(graph, self.nodes):
            assert np.allclose(columns, expm(-setting["beta"] * laplacian)[:, self.nodes], atol=1e-5)

    def test_wwl(self, graph):
        x = graph.x.double()
        f = (x - x.mean(dim=0)) / x.std(dim=0).clamp(min=1e-12)
        degrees = dense_adjacency(graph).double().sum(dim=1, keepdim=True).clamp(min=1)
        parts = [f]
        for _ in range(2):
            parts.append((parts[-1] + dense_adjacency(graph).double() @ parts[-1] / degrees) / 2)
        joint = torch.cat(parts, dim=1)
        expected = torch.exp(-0.1 * torch.cdist(joint, joint[self.nodes])).numpy()
        found = [c for s, c in svm.wwl_columns(graph, self.nodes) if s == {"steps": 2, "gamma": 0.1}]
        assert np.allclose(found[0], expected)

    def test_walks_one_by_one(self, graph):
        x = torch.nn.functional.normalize(graph.x.double(), dim=1)
        cosine = (x @ x.t()).tolist()
        neighbours = [graph.edge_index[1][graph.edge_index[0] == node].tolist() for node in range(graph.num_nodes)]

        def walks(start, steps):
            if steps == 0:
                return [[start]]
            return [[start, *rest] for to in neighbours[start] for rest in walks(to, steps - 1)]

        def expected(u, v, alpha, length):
            total = 0.0
            for steps in range(length + 1):
                # A walk's chance is that of its steps: all neighbours are equally likely.
                for a in walks(u, steps):
                    for b in walks(v, steps):
                        chance = math.prod(1 / len(neighbours[node]) for node in (*a[:-1], *b[:-1]))
                        distance = sum(1.0 - cosine[i][j] for i, j in zip(a, b, strict=True))
                        total += chance * math.exp(-alpha * distance)
            return total

        for setting, columns in svm.walk_columns(graph, self.nodes):
            for row in (0, 7, 59):
                values = [expected(row, int(node), setting["alpha"], setting["length"]) for node in self.nodes]
                assert np.allclose(columns[row], values, rtol=1e-4)


def folds_of(graph):
    labelled = graph.train_mask.nonzero().view(-1)
    folds = []
    for part in range(3):
        val = torch.zeros_like(graph.train_mask).index_fill(0, labelled[part::3], True)
        folds.append((graph.train_mask & ~val, val))
    return folds


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr("baselines.svm.POWERS", (-1, 0, 1))
    monkeypatch.setattr("baselines.training.MAX_EPOCHS", 40)


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_learns(short, graph, name):
    outcome = cross_validate(name, graph, folds_of(graph), seeds=(0,), grid=[Recipe(lr=0.05, hidden=16)])
    assert len(outcome.by_fold) == 3
    found = (outcome.retrained[0] == graph.y)[graph.test_mask].double().mean()
    assert float(found) > 0.6, name


@pytest.mark.parametrize("name", BASELINES)
def test_test_labels_are_not_looked_at(short, graph, name):
    folds, grid = folds_of(graph), [Recipe(lr=0.05, hidden=8)]
    seen = cross_validate(name, graph, folds, (0,), grid).retrained[0]
    hidden = graph.clone()
    hidden.y = torch.where(graph.train_mask, graph.y, 2)
    assert torch.equal(cross_validate(name, hidden, folds, (0,), grid).retrained[0], seen)


def test_unknown_baselines(graph):
    with pytest.raises(ValueError, match="unknown baseline 'GIN'"):
        cross_validate("GIN", graph, folds_of(graph), (0,))


def test_validation_nodes_stop_training(graph):
    graph.val_mask = torch.zeros_like(graph.train_mask)
    graph.val_mask[torch.tensor([6, 26, 46])] = True
    outcome = validate("GCN", graph, (0, 1), [Recipe(lr=0.05, hidden=8)])
    assert len(outcome.by_fold) == 2
    run = NetworkTrainer(graph, "GCN").train(GRID[0], 0, graph.train_mask, graph.val_mask)
    assert 1 <= run.epoch <= 200
    assert run.probabilities.shape == (60, 3)


def test_the_last_layer_may_be_left_to_grow(graph):
    decayed, free = (
        NetworkTrainer(graph, "GCN").train(Recipe(weight_decay=1.0, decay_last=last), 0, graph.train_mask, epochs=30)
        for last in (True, False)
    )
    assert float(free.probabilities.max()) > float(decayed.probabilities.max())


@pytest.mark.parametrize("find", [partial(dmon.cluster, epochs=300), ssgc_clusters.cluster])
def test_clusterings_find_groups(graph, find):
    from sklearn.metrics import normalized_mutual_info_score

    assert normalized_mutual_info_score(graph.y, find(graph, 3, seed=0)) > 0.3


def test_all_networks_are_baselines():
    assert set(NETWORKS) < set(BASELINES)
