"""The layer as a PyG module: graphs that it knows, state, types and refused input."""

import copy

import pytest
import torch
from torch_geometric.nn import GCNConv, Sequential

from tests.conftest import make_graph
from torch_gckm.errors import (
    DetachedInputWarning,
    GraphMismatchError,
    InvalidInputError,
    LowRankError,
    ManifoldWarning,
    NotFittedError,
    OtherFeaturesWarning,
)
from torch_gckm.gram import LowRank
from torch_gckm.graph import Topology
from torch_gckm.kernels import RBF
from torch_gckm.manifold import random_stiefel
from torch_gckm.nn import GCKMConv, Propagation, layer_function


@pytest.fixture
def conv(graph64):
    return GCKMConv(8, 5, kernel=RBF(2.0), eta=1.7).double().initialize(graph64.x, graph64.edge_index)


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_forward_initialises_lazily_and_checks_the_graph(graph, power):
    conv = GCKMConv(8, 4, power=power)
    assert not conv.is_initialized
    with pytest.raises(NotFittedError, match="initialize"):
        conv.transform(graph.x, graph.edge_index)
    h = conv(graph.x, graph.edge_index)
    torch.testing.assert_close(h, conv.z)
    assert (conv.z is conv.h) == (power == 0.0)
    assert h.shape == (60, 4)
    with pytest.raises(NotFittedError):
        GCKMConv(8, 4)(graph.x, graph.edge_index, n_id=torch.tensor([0]))
    assert torch.equal(conv(graph.x[:7], graph.edge_index[:, :0], n_id=torch.tensor([3, 9])), h[[3, 9]])
    with pytest.raises(GraphMismatchError, match=r"59 nodes .*Use transform"):
        conv(graph.x[:59], graph.edge_index[:, graph.edge_index.max(dim=0).values < 59])
    other = graph.edge_index.clone()
    other[:, 0] = torch.tensor([0, 59])
    with pytest.raises(GraphMismatchError, match="other ones or with other weights"):
        conv(graph.x, other)
    conv.reset_parameters()
    assert not conv.is_initialized
    assert conv.h.shape == (0, 4)


def test_known_num_nodes_gives_a_parameter_to_optimise_at_once(graph):
    conv = GCKMConv(8, 4, num_nodes=60)
    parameter = conv.h
    torch.testing.assert_close(parameter.t() @ parameter, torch.eye(4))
    conv(graph.x, graph.edge_index)
    assert conv.h is parameter


def test_warns_when_a_gradient_would_be_lost(graph):
    conv = GCKMConv(8, 4).initialize(graph.x, graph.edge_index)
    with pytest.warns(DetachedInputWarning, match=r"conv\.loss"):
        conv(graph.x.requires_grad_(), graph.edge_index)


def test_state_dict_is_complete(graph64, conv):
    new = make_graph(20, seed=3)
    twin = GCKMConv(8, 5, kernel=RBF("auto"), eta=1.7).double()
    twin.kernel = RBF(1.0)
    twin.load_state_dict(conv.state_dict())
    torch.testing.assert_close(twin(graph64.x, graph64.edge_index), conv(graph64.x, graph64.edge_index))
    assert torch.equal(twin.h, conv.h)
    assert torch.equal(twin.transform(new.x.double(), new.edge_index), conv.transform(new.x.double(), new.edge_index))
    assert torch.equal(twin.eigenvalues, conv.eigenvalues)
    clone = copy.deepcopy(conv)
    assert torch.equal(clone.transform(graph64.x, graph64.edge_index), conv.transform(graph64.x, graph64.edge_index))


def test_changes_type(graph, conv):
    single = copy.deepcopy(conv).float()
    assert single.transform(graph.x, graph.edge_index).dtype == torch.float32
    assert single.eigenvalues.dtype == torch.float32


def test_loaded_bandwidth_replaces_a_kept_kernel_matrix(graph):
    conv = GCKMConv(8, 4, kernel=RBF(2.0)).initialize(graph.x, graph.edge_index)
    conv.loss(graph.x, graph.edge_index)
    other = GCKMConv(8, 4, kernel=RBF(5.0)).initialize(graph.x, graph.edge_index)
    expected = other.loss(graph.x, graph.edge_index).detach()
    conv.load_state_dict(other.state_dict())
    torch.testing.assert_close(conv.loss(graph.x, graph.edge_index).detach(), expected)


def test_a_changed_bandwidth_or_type_is_noticed(graph):
    conv = GCKMConv(8, 4, kernel=RBF(2.0)).initialize(graph.x, graph.edge_index)
    first = conv.loss(graph.x, graph.edge_index).detach()
    conv.kernel.sigma2.fill_(50.0)
    assert abs(float(conv.loss(graph.x, graph.edge_index).detach() / first)) < 0.2
    conv.double()
    assert conv.loss(graph.x, graph.edge_index).dtype == torch.float64


def test_editing_the_input_does_not_change_the_fitted_layer(graph):
    x = graph.x.clone()
    conv = GCKMConv(8, 4, kernel=RBF(2.0), aggregation="none").initialize(x)
    before = conv.transform(graph.x)
    x *= 5
    assert torch.equal(conv.transform(graph.x), before)


def test_inference_mode_does_not_spoil_later_training(graph):
    conv = GCKMConv(8, 4)
    with torch.inference_mode():
        conv(graph.x, graph.edge_index)
        conv.loss(graph.x, graph.edge_index)
    conv.loss(graph.x, graph.edge_index).backward()
    assert conv.h.grad is not None


@pytest.mark.parametrize("aggregation", ["gcn", "none"])
def test_other_types_of_features(graph, aggregation):
    for x in (graph.x.half(), (10 * graph.x).long(), graph.x > 0):
        conv = GCKMConv(8, 4, aggregation=aggregation)
        conv.initialize(x, graph.edge_index)
        assert conv.loss(x, graph.edge_index).dtype == torch.float32
        assert conv.transform(x, graph.edge_index).shape == (60, 4)


def test_a_failed_fit_leaves_the_old_one(graph):
    conv = GCKMConv(8, 4, kernel=RBF(2.0)).initialize(graph.x, graph.edge_index)
    before = conv.transform(graph.x, graph.edge_index)
    with pytest.raises(LowRankError):
        conv.initialize(torch.ones(30, 8), None)
    assert torch.equal(conv.transform(graph.x, graph.edge_index), before)
    fresh = GCKMConv(8, 4, kernel=RBF(2.0))
    with pytest.raises(LowRankError):
        fresh.initialize(torch.ones(30, 8), None)
    assert not fresh.is_initialized
    with pytest.raises(InvalidInputError, match="num_nodes=10, got 60"):
        GCKMConv(8, 4, num_nodes=10).initialize(graph.x, graph.edge_index)


def test_drops_into_pygs_sequential(graph):
    model = Sequential("x, edge_index", [
        (GCKMConv(8, 4), "x, edge_index -> h"),
        (GCNConv(4, 3), "h, edge_index -> out"),
    ])  # fmt: skip
    model(graph.x, graph.edge_index).sum().backward()
    assert model[0].h.grad.shape == (60, 4)


def test_bad_input(graph):
    bad = graph.x.clone()
    bad[4, 2] = float("nan")
    for method in ("initialize", "__call__"):
        with pytest.raises(InvalidInputError, match="1 entries that are NaN or infinite, first in row 4"):
            getattr(GCKMConv(8, 4), method)(bad, graph.edge_index)
    conv = GCKMConv(8, 4).initialize(graph.x, graph.edge_index)
    with pytest.raises(InvalidInputError, match="first in row 4"):
        conv.transform(bad, graph.edge_index)
    with pytest.raises(InvalidInputError, match=r"shape \[n, 8\], got \(60, 3\)"):
        conv.transform(graph.x[:, :3], graph.edge_index)
    nan = float("nan")
    for arguments in ({"eta": 0.0}, {"out_channels": 0}, {"rank_deficient": "x"}, {"power": -1.0}, {"power": nan}):
        with pytest.raises(InvalidInputError):
            GCKMConv(**{"in_channels": 8, "out_channels": 4, **arguments})


def test_repr(conv):
    assert repr(conv) == (
        "GCKMConv(8, 5, kernel=RBF(sigma2=2), aggregation=Propagation('gcn', hops=1, direction='in'), "
        "power=0.5, eta=1.7, gram=Auto())"
    )


def counted_evaluations(monkeypatch):
    calls, real = [], RBF.evaluate
    monkeypatch.setattr(RBF, "evaluate", lambda self, a, b: calls.append(1) or real(self, a, b))
    return calls


@pytest.mark.parametrize("aggregation", ["gcn", "none"])
@pytest.mark.parametrize("kernel", [RBF(2.0), RBF(2.0) * RBF(3.0).on("x")], ids=["one view", "two views"])
def test_the_matrix_of_the_fit_serves_the_loss(graph, monkeypatch, aggregation, kernel):
    gram = LowRank(max_rank=20)
    conv = GCKMConv(8, 4, kernel=kernel, aggregation=aggregation, gram=gram).initialize(graph.x, graph.edge_index)
    kept, calls = conv.fit.gram, counted_evaluations(monkeypatch)
    for _ in range(2):
        conv.loss(graph.x, graph.edge_index).backward()
    assert conv.fit.gram is kept
    assert calls == []
    conv.loss(graph.x.clone(), graph.edge_index)
    assert conv.fit.gram is not kept


def test_without_gradients_the_factor_is_freed(graph, monkeypatch):
    trained, frozen = (GCKMConv(8, 4, kernel=RBF(2.0), gram=LowRank(max_rank=20)) for _ in range(2))
    trained.initialize(graph.x, graph.edge_index)
    with torch.no_grad():
        frozen.initialize(graph.x, graph.edge_index)
    calls = counted_evaluations(monkeypatch)
    expected = trained.loss(graph.x, graph.edge_index)
    assert calls == []
    torch.testing.assert_close(frozen.loss(graph.x, graph.edge_index), expected)
    assert calls


def test_a_matrix_with_tracked_weights_can_be_used_again(graph):
    conv = GCKMConv(8, 4, kernel=RBF(2.0)).initialize(graph.x, graph.edge_index)
    values = torch.ones(graph.num_edges, requires_grad=True)
    adj_t = torch.sparse_coo_tensor(graph.edge_index.flip(0), values, (60, 60), check_invariants=True)
    gradients = []
    for _ in range(2):
        (gradient,) = torch.autograd.grad(conv.loss(graph.x, adj_t), values, retain_graph=True)
        gradients.append(gradient)
    assert bool(gradients[0].any())
    torch.testing.assert_close(gradients[0], gradients[1])


def test_what_a_fit_knows(graph64, conv):
    fit = conv.fit
    assert fit is conv.fitted
    assert fit.eigenvalues is conv.eigenvalues
    assert fit.landmarks.numel() == 0
    assert fit.description == "exact, 60 x 60"
    assert float(fit.error) == 0.0
    assert fit.edges == Topology(graph64.edge_index, None, 60).identity
    torch.testing.assert_close(fit.rows().view("h").dense(), Propagation()(graph64.x, graph64.edge_index))
    assert set(fit.views) == {"h"}
    low = GCKMConv(8, 4, gram=LowRank(max_rank=20)).initialize(graph64.x, graph64.edge_index)
    assert low.fit.description.startswith("rank 20 of 60, error 0.")
    with pytest.raises(NotFittedError, match="initialize"):
        _ = GCKMConv(8, 4).fit
    assert conv.in_channels == 8


def test_settings_build_the_same_layer(graph64, conv):
    twin = GCKMConv.from_settings(8, conv.settings()).double().initialize(graph64.x, graph64.edge_index)
    assert repr(twin) == repr(conv)
    assert torch.equal(twin.h, conv.h)
    assert conv.settings(2.5).loss_weight == 2.5


@pytest.mark.parametrize("gram", ["dense", LowRank(max_rank=30), LowRank(max_rank=30, panel="recomputed")], ids=str)
def test_the_output_is_a_function_of_the_features(graph64, gram):
    """K_c H / lambda, its columns scaled; differentiable in H, also where the matrix was dropped."""
    conv = GCKMConv(8, 4, kernel=RBF(2.0), gram=gram).initialize(graph64.x, graph64.edge_index)
    torch.testing.assert_close(conv(graph64.x, graph64.edge_index), conv.z)  # At kernel PCA.
    with torch.no_grad():
        conv.h.copy_(random_stiefel(60, 4, seed=5))
    matrix = conv.fit.gram.matmul(torch.eye(60, dtype=torch.float64))
    centring = torch.eye(60, dtype=torch.float64) - 1 / 60
    weight = torch.randn(60, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scale = conv.fit.scale / conv.eigenvalues
    for layer in (conv, copy.deepcopy(conv)):
        output = layer(graph64.x, graph64.edge_index)
        torch.testing.assert_close(output, centring @ matrix @ centring @ conv.h * scale)
        (gradient,) = torch.autograd.grad((output * weight).sum(), layer.h)
        torch.testing.assert_close(gradient, centring @ matrix @ centring @ (weight * scale))
        with torch.no_grad():
            assert torch.equal(layer(graph64.x, graph64.edge_index), output)


def test_one_step_moves_similar_nodes_along(graph):
    """Without the product with the kernel matrix, a label moves the embedding of a few nodes and of no others."""
    conv = GCKMConv(8, 4, kernel=RBF(2.0)).initialize(graph.x, graph.edge_index)
    conv(graph.x, graph.edge_index)[0].sum().backward()
    assert int((conv.h.grad.abs().sum(dim=1) > 1e-4 * conv.h.grad.abs().max()).sum()) > 50


def test_other_features_warn_once_and_other_tensors_do_not(graph):
    conv = GCKMConv(8, 4).initialize(graph.x, graph.edge_index)
    expected = conv(graph.x, graph.edge_index)
    for same in (graph.x.clone(), graph.x.double(), graph.x.to_sparse()):
        assert torch.equal(conv(same, graph.edge_index), expected)
    assert torch.equal(copy.deepcopy(conv)(graph.x, graph.edge_index), expected)
    for other in (torch.zeros_like(graph.x), graph.x[:, torch.arange(8).flip(0)], 2 * graph.x):
        conv.initialize(graph.x, graph.edge_index)
        with pytest.warns(OtherFeaturesWarning, match=r"conv\.transform"):
            assert torch.equal(conv(other, graph.edge_index), expected)
        conv(other.clone(), graph.edge_index)  # Once per fit.
    twin = GCKMConv(8, 4)
    twin.load_state_dict(conv.state_dict())
    with pytest.warns(OtherFeaturesWarning):
        twin(torch.zeros_like(graph.x), graph.edge_index)
    conv(graph.x[:7], graph.edge_index[:, :0], n_id=torch.tensor([3, 9]))  # A part of the graph has other features.


def test_dropout_below_the_layer_warns(graph):
    torch.manual_seed(0)
    conv = GCKMConv(8, 4)
    conv(torch.nn.functional.dropout(graph.x), graph.edge_index)
    with pytest.warns(OtherFeaturesWarning, match="dropout above the layer"):
        conv(torch.nn.functional.dropout(graph.x), graph.edge_index)


def test_features_that_are_trained_through_the_loss_are_expected_to_change(graph):
    below, conv = GCNConv(8, 8), GCKMConv(8, 4)
    conv.initialize(below(graph.x, graph.edge_index).detach(), graph.edge_index)
    conv.loss(below(graph.x, graph.edge_index), graph.edge_index).backward()
    with torch.no_grad():
        below.lin.weight += 0.1
        conv(below(graph.x, graph.edge_index), graph.edge_index)


def test_a_lost_manifold_warns_once(graph):
    conv = GCKMConv(8, 4)
    optimizer = torch.optim.Adam(conv.parameters(), lr=0.01)
    conv(graph.x, graph.edge_index).sum().backward()
    conv(graph.x, graph.edge_index)
    optimizer.step()
    with pytest.warns(ManifoldWarning, match=r"use CayleyAdam\(model\.parameters\(\)\)"):
        conv(graph.x, graph.edge_index)
    optimizer.step()
    conv(graph.x, graph.edge_index)
    conv.initialize(graph.x, graph.edge_index)
    conv(graph.x, graph.edge_index)
    optimizer.step()
    with pytest.warns(ManifoldWarning):
        conv(graph.x, graph.edge_index)


def test_the_manifold_is_looked_at_only_where_the_embedding_was_written_to(graph, monkeypatch):
    calls, real = [], layer_function.orthogonality_error
    monkeypatch.setattr(layer_function, "orthogonality_error", lambda *args: calls.append(1) or real(*args))
    conv = GCKMConv(8, 4)
    for _ in range(3):
        conv(graph.x, graph.edge_index)
    assert len(calls) == 1
    with torch.no_grad():
        conv.h.mul_(1.0)
    conv(graph.x, graph.edge_index)
    assert len(calls) == 2


def test_channels_from_the_first_graph(graph):
    conv = GCKMConv(-1, 4)
    assert repr(conv).startswith("GCKMConv(-1, 4, ")
    blank = GCKMConv(-1, 4)
    blank.load_state_dict(conv.state_dict())
    assert conv.in_channels == blank.in_channels == -1
    output = conv(graph.x, graph.edge_index)
    assert repr(conv).startswith("GCKMConv(8, 4, ")
    blank.load_state_dict(conv.state_dict())
    assert blank.in_channels == 8
    torch.testing.assert_close(blank(graph.x, graph.edge_index), output)
    conv.reset_parameters()
    with pytest.raises(InvalidInputError, match=r"shape \[n, 8\], got \(60, 3\)"):
        conv(graph.x[:, :3], graph.edge_index)


def test_double_in_double_out(graph):
    conv = GCKMConv(8, 4)
    assert conv(graph.x.double(), graph.edge_index).dtype == torch.float64
    exact = GCKMConv(8, 4).double().initialize(graph.x.double(), graph.edge_index)
    assert torch.equal(conv.h, exact.h)
    assert all(tensor.dtype != torch.float32 for tensor in conv.state_dict().values())
    single = GCKMConv(8, 4)
    assert single(graph.x, graph.edge_index).dtype == torch.float32
    assert single(graph.x.double(), graph.edge_index).dtype == torch.float32  # The precision of the fit.


def test_bipartite_graphs_are_refused_before_and_after_a_fit(graph):
    conv = GCKMConv(8, 4)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="to_hetero"):
            conv((graph.x, graph.x), graph.edge_index)
        conv(graph.x, graph.edge_index)
