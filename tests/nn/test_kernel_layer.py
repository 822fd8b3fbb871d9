"""The layer against its formulas, kernel PCA of scikit-learn and finite differences."""

import pytest
import torch
from sklearn.decomposition import KernelPCA

from tests.conftest import make_graph, permute_graph, projector_distance
from torch_gckm.errors import (
    InvalidInputError,
    LowRankError,
    LowRankWarning,
)
from torch_gckm.kernels import RBF, Categorical, Laplacian, Linear, Polynomial, Precomputed
from torch_gckm.nn import GCKMConv, Propagation


@pytest.mark.parametrize("n", [60, 450], ids=["small", "lanczos"])
@pytest.mark.parametrize("aggregation", ["gcn", "sum", "none"])
@pytest.mark.parametrize(("kernel", "oracle"), [
    (RBF(2.0), {"kernel": "rbf", "gamma": 1 / 4}),
    (Polynomial(2, 1.5), {"kernel": "poly", "gamma": 1, "coef0": 1.5**2, "degree": 2}),
    (Linear(), {"kernel": "linear"}),
], ids=["rbf", "polynomial", "linear"])  # fmt: skip
def test_spans_sklearns_kernel_pca(n, aggregation, kernel, oracle):
    data = make_graph(n)
    x = data.x.double()
    conv = GCKMConv(8, 5, kernel=kernel, aggregation=aggregation).double().initialize(x, data.edge_index)
    aggregated = Propagation(aggregation)(x, data.edge_index)
    pca = KernelPCA(5, eigen_solver="dense", **oracle).fit(aggregated.numpy())
    assert projector_distance(conv.h.detach(), torch.from_numpy(pca.eigenvectors_)) < 1e-6
    torch.testing.assert_close(conv.eigenvalues, torch.from_numpy(pca.eigenvalues_), rtol=1e-8, atol=1e-8)


@pytest.fixture
def conv(graph64):
    return GCKMConv(8, 5, kernel=RBF(2.0), eta=1.7).double().initialize(graph64.x, graph64.edge_index)


def test_orthonormal_and_centred(conv):
    torch.testing.assert_close(conv.h.t() @ conv.h, torch.eye(5, dtype=torch.float64))
    assert float(conv.h.detach().sum(dim=0).abs().max()) < 1e-10


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_transform_of_the_training_graph_is_z(power, graph64):
    conv = GCKMConv(8, 5, kernel=RBF(2.0), eta=1.7, power=power).double().initialize(graph64.x, graph64.edge_index)
    found = conv.transform(graph64.x, graph64.edge_index)
    torch.testing.assert_close(found, conv(graph64.x, graph64.edge_index).detach(), atol=1e-9, rtol=0)
    if power == 0.0:
        assert torch.equal(conv.z, conv.h)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_transform_follows_the_formula_after_h_has_moved(power, graph64):
    """The paper's formula with H centred, on new nodes, for a point that is no eigenbasis; columns are weighted."""
    conv = GCKMConv(8, 5, kernel=RBF(2.0), eta=1.7, power=power).double().initialize(graph64.x, graph64.edge_index)
    with torch.no_grad():
        moved = torch.linalg.qr(conv.h + 0.05 * torch.randn(60, 5, dtype=torch.float64))[0]
        conv.h.copy_(moved)
    new = make_graph(40, seed=5)
    x_new = new.x.double()
    a, a_new = (Propagation("gcn")(x, e) for x, e in ((graph64.x, graph64.edge_index), (x_new, new.edge_index)))
    k, k_new, eta, n = RBF(2.0)(a), RBF(2.0)(a_new, a), 1.7, 60
    hc = moved - moved.mean(dim=0)
    centre = torch.eye(n, dtype=torch.float64) - 1 / n
    lam = moved.t() @ centre @ k @ centre @ moved / eta
    ones = torch.ones(40, n, dtype=torch.float64)
    expected = (k_new @ hc - ones @ k @ hc / n) @ torch.linalg.inv(lam) / eta
    if power:
        expected = expected * (conv.eigenvalues / conv.eigenvalues[0]) ** power * n**0.5
    torch.testing.assert_close(conv.transform(x_new, new.edge_index), expected)


def test_permuting_nodes_permutes_the_result(conv, graph64):
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    data = permute_graph(graph64, order)
    other = GCKMConv(8, 5, kernel=RBF(2.0)).double().initialize(data.x, data.edge_index)
    torch.testing.assert_close(other.h.detach(), conv.h.detach()[order], atol=1e-8, rtol=0)
    torch.testing.assert_close(
        conv.transform(data.x, data.edge_index), conv.transform(graph64.x, graph64.edge_index)[order]
    )


def test_sum_separates_what_one_wl_iteration_separates_and_mean_does_not():
    """Nodes 0 and 2 have the same colour; their neighbours are {b} and {a, b, b}: different multisets, same mean."""
    edges = torch.tensor([[0, 2, 2, 2], [1, 3, 4, 5]])
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    x = torch.nn.functional.one_hot(torch.tensor([0, 1, 0, 0, 1, 1])).double()
    embeddings = {}
    for aggregation in ("sum", "mean"):
        conv = GCKMConv(2, 1, kernel=RBF(1.0), aggregation=aggregation).double()
        embeddings[aggregation] = conv(x, edges).detach()
    assert float((embeddings["sum"][0] - embeddings["sum"][2]).norm()) > 0.1
    assert float((embeddings["mean"][0] - embeddings["mean"][2]).norm()) < 1e-10


def test_loss_is_the_dual_objective_and_kernel_pca_minimises_it(conv, graph64):
    value = conv.loss(graph64.x, graph64.edge_index)
    assert float(value.detach()) == pytest.approx(-float(conv.eigenvalues.sum()) / (2 * 1.7))
    rotation = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0]
    with torch.no_grad():
        conv.h.copy_(conv.h @ rotation)
    assert float(conv.loss(graph64.x, graph64.edge_index).detach()) == pytest.approx(float(value.detach()))
    with torch.no_grad():
        conv.h.copy_(torch.linalg.qr(torch.randn(60, 5, dtype=torch.float64))[0])
    assert float(conv.loss(graph64.x, graph64.edge_index).detach()) > float(value.detach())


def test_loss_has_gradients_to_h_and_x(graph64):
    data = make_graph(12)
    conv = GCKMConv(8, 3, kernel=RBF(2.0)).double().initialize(data.x.double(), data.edge_index)
    with torch.no_grad():
        conv.h.add_(0.1 * torch.randn_like(conv.h))
    x = data.x.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: conv.loss(x, data.edge_index), (x,))
    conv.loss(x, data.edge_index).backward()

    gradient = conv.h.grad.clone()
    direction = torch.randn_like(conv.h)
    step = 1e-6
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            conv.h.add_(sign * step * direction)
        values.append(float(conv.loss(x.detach(), data.edge_index).detach()))
        with torch.no_grad():
            conv.h.sub_(sign * step * direction)
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(float((gradient * direction).sum()), rel=1e-5)


def test_random_initialisation(graph):
    conv = GCKMConv(8, 4).initialize(graph.x, graph.edge_index, method="random", seed=1)
    torch.testing.assert_close(conv.h.t() @ conv.h, torch.eye(4))
    best = GCKMConv(8, 4).initialize(graph.x, graph.edge_index)
    loss = conv.loss(graph.x, graph.edge_index).detach()
    assert float(loss) > float(best.loss(graph.x, graph.edge_index).detach())
    with pytest.raises(InvalidInputError, match="method"):
        conv.initialize(graph.x, graph.edge_index, method="zeros")


def test_rank_below_out_channels(graph):
    conv = GCKMConv(8, 12, kernel=Linear())
    with pytest.warns(LowRankWarning, match="rank 8, below out_channels=12"):
        conv.initialize(graph.x, graph.edge_index)
    assert conv.h.shape == (60, 8)
    with pytest.raises(LowRankError, match="rank 8"):
        GCKMConv(8, 12, kernel=Linear(), rank_deficient="error").initialize(graph.x, graph.edge_index)
    with pytest.raises(LowRankError, match="rank 0"):
        GCKMConv(8, 2, kernel=RBF(1.0)).initialize(torch.ones(60, 8), None)


def test_features_far_from_the_origin(graph64):
    far = graph64.x.float() + 1e4
    near = far.double() - 1e4
    kernels = [GCKMConv(8, 4).initialize(far, graph64.edge_index).kernel, RBF().fit(
        Propagation("gcn")(far.double(), graph64.edge_index))]  # fmt: skip
    assert float(kernels[0].sigma2) == pytest.approx(float(kernels[1].sigma2), rel=1e-2)
    torch.testing.assert_close(RBF(2.0)(far).double(), RBF(2.0)(near), atol=1e-4, rtol=0)


def test_views_of_the_layers_own_input(graph64):
    kernel = RBF(2.0) * Laplacian(4.0).on("x")
    conv = GCKMConv(8, 4, kernel=kernel).double().initialize(graph64.x, graph64.edge_index)
    a = Propagation("gcn")(graph64.x, graph64.edge_index)
    matrix = RBF(2.0)(a) * Laplacian(4.0)(graph64.x)
    pca = KernelPCA(4, kernel="precomputed", eigen_solver="dense").fit(matrix.numpy())
    assert projector_distance(conv.h.detach(), torch.from_numpy(pca.eigenvectors_)) < 1e-6
    torch.testing.assert_close(conv.transform(graph64.x, graph64.edge_index), conv.z.detach(), atol=1e-8, rtol=0)


def test_precomputed_categorical_and_custom_kernels(graph64):
    matrix = RBF(2.0)(graph64.x)
    numbers = torch.arange(60).unsqueeze(1).double()
    ours = GCKMConv(1, 4, kernel=Precomputed(matrix), aggregation="none").double().initialize(numbers)
    plain = GCKMConv(8, 4, kernel=RBF(2.0), aggregation="none").double().initialize(graph64.x)
    assert projector_distance(ours.h.detach(), plain.h.detach()) < 1e-8
    custom = GCKMConv(8, 4, kernel=lambda a, b: torch.exp(-torch.cdist(a, b).square() / 4), aggregation="none")
    torch.testing.assert_close(custom.double()(graph64.x), plain.z, atol=1e-8, rtol=0.0)
    assert projector_distance(custom.h.detach(), plain.h.detach()) < 1e-8
    codes = (graph64.x > 0).double()
    GCKMConv(8, 4, kernel=Categorical(), aggregation="none").double().initialize(codes)


def test_learned_bandwidth_gets_a_gradient(graph):
    conv = GCKMConv(8, 4, kernel=RBF(2.0, learnable=True)).initialize(graph.x, graph.edge_index)
    conv.loss(graph.x, graph.edge_index).backward()
    assert float(conv.kernel.log_sigma2.grad) != 0.0


def test_custom_aggregation_module(graph):
    class Twice(torch.nn.Module):
        def forward(self, x, edge_index, edge_weight=None):
            return 2 * x

    conv = GCKMConv(8, 4, kernel=RBF(8.0), aggregation=Twice()).initialize(graph.x, graph.edge_index)
    plain = GCKMConv(8, 4, kernel=RBF(2.0), aggregation="none").initialize(graph.x, graph.edge_index)
    assert projector_distance(conv.h.detach().double(), plain.h.detach().double()) < 1e-4


def test_isolated_nodes_loops_and_duplicates_work():
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    x[3] = x[4]
    edges = torch.tensor([[0, 0, 1, 2, 2], [1, 1, 0, 2, 0]])
    h = GCKMConv(3, 2, kernel=RBF(1.0))(x, edges)
    assert bool(h.isfinite().all())
    torch.testing.assert_close(h[3], h[4])
