"""Layers upon layers, without labels."""

import copy

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import CayleyAdam
from torch_gckm.errors import GraphMismatchError, InvalidInputError, NotFittedError
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.manifold import orthogonality_error
from torch_gckm.nn import GCKM, GCKMConv, KernelLayers
from torch_gckm.optim import param_groups


def layers(**arguments):
    return KernelLayers(8, (6, 4), **{"kernel": [RBF(3.0), RBF(0.1)], **arguments})


def test_initialize_fits_one_after_the_other(graph):
    stacked = layers()
    assert stacked.initialize(graph) is stacked
    first = GCKMConv(8, 6, kernel=RBF(3.0)).initialize(graph.x, graph.edge_index)
    second = GCKMConv(6, 4, kernel=RBF(0.1)).initialize(first.z.detach(), graph.edge_index)
    assert torch.equal(stacked.layers[0].h, first.h)
    torch.testing.assert_close(stacked.layers[1].h, second.h)
    assert stacked.is_fitted_on(graph)
    assert (stacked.in_channels, stacked.hidden_channels, stacked.dtype) == (8, (6, 4), torch.float32)


def test_the_layers_of_a_model_are_the_same(graph):
    model = GCKM(8, (6, 4), 3, kernel=[RBF(3.0), RBF(0.1), "rbf"]).initialize(graph)
    for ours, theirs in zip(layers().initialize(graph).layers, model.layers, strict=True):
        assert torch.equal(ours.h, theirs.h)
    assert isinstance(model, KernelLayers)


def test_embed_and_transform(graph):
    stacked, other = layers(normalize="columns").initialize(graph), make_graph(25, seed=3)
    assert torch.equal(stacked.embed(), stacked.layers[1].z)
    assert torch.equal(stacked.embed(graph, layer=0), stacked.layers[0].z)
    assert not stacked.embed().requires_grad
    torch.testing.assert_close(stacked.transform(graph), stacked.embed(), rtol=1e-3, atol=1e-4)
    assert stacked.transform(other).shape == (25, 4)
    assert torch.equal(stacked.embed(other), stacked.transform(other))
    assert stacked.embed(other, layer=0).shape == (25, 6)
    known = torch.arange(60)
    assert torch.equal(stacked.transform(graph, known=known), stacked.embed())
    with pytest.raises(InvalidInputError, match=r"'known' must be integers \[60\]"):
        stacked.transform(other, known=torch.arange(25))


def test_loss_is_the_weighted_sum_of_the_layers(graph):
    stacked = layers(loss_weights=[2.0, 0.5]).initialize(graph)
    first, second = stacked.layers
    expected = 2.0 * first.loss(graph.x, graph.edge_index) + 0.5 * second.loss(first.z, graph.edge_index)
    torch.testing.assert_close(stacked.loss(graph), expected / 60)
    with pytest.raises(GraphMismatchError, match="Use transform"):
        stacked.loss(make_graph(25, seed=3))


@pytest.mark.parametrize("gram", ["dense", LowRank(max_rank=30)], ids=["dense", "low_rank"])
def test_steps_on_the_manifold_lower_the_loss(graph, gram):
    stacked = layers(gram=gram).initialize(graph, method="random")
    prepared = stacked.prepare(graph)
    optimizer, losses = CayleyAdam(param_groups(stacked, lr=0.1)), []
    for _ in range(10):
        optimizer.zero_grad()
        loss = stacked.loss(prepared)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert all(float(orthogonality_error(conv.h)) < 1e-4 for conv in stacked.layers)


@pytest.mark.parametrize("gram", ["dense", LowRank(max_rank=30)], ids=["dense", "low_rank"])
@pytest.mark.parametrize("normalize", [None, "columns"])
def test_state_dict_is_complete(graph, tmp_path, gram, normalize):
    stacked, other = layers(gram=gram, normalize=normalize).initialize(graph), make_graph(25, seed=3)
    torch.save(stacked.state_dict(), tmp_path / "state.pt")
    twin = layers(gram=gram, normalize=normalize, kernel="rbf")
    twin.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert twin.is_fitted_on(graph)
    for found in (twin, copy.deepcopy(stacked)):
        assert torch.equal(found.embed(), stacked.embed())
        assert torch.equal(found.transform(other), stacked.transform(other))
        torch.testing.assert_close(found.loss(graph), stacked.loss(graph))
    keys = set(stacked.state_dict())
    assert {"convs.0.h", "convs.0.fitted.scale", "convs.1.fitted.view_h", "scaling.scale", "data_id"} <= keys
    assert stacked.state_dict()["data_id"].shape == (5,)


def test_fitted_layers_are_joined(graph):
    stacked = layers(normalize="columns").initialize(graph)
    joined = KernelLayers.of(stacked.layers, stacked.prepare(graph))
    other = make_graph(25, seed=3)
    assert joined.is_fitted_on(graph)
    assert torch.equal(joined.transform(other), stacked.transform(other))
    assert joined.layers[0] is stacked.layers[0]


def test_not_fitted(graph):
    stacked = layers()
    for ask in (stacked.embed, lambda: stacked.transform(graph), lambda: stacked.loss(graph)):
        with pytest.raises(NotFittedError, match=r"layers\.initialize\(data\)"):
            ask()
    assert not stacked.is_fitted_on(graph)
    stacked.initialize(graph)
    stacked.reset_parameters()
    assert not stacked.is_fitted_on(graph)
    with pytest.raises(NotFittedError):
        stacked.embed()


def test_a_failed_fit_leaves_no_half_of_an_old_one(graph):
    stacked = layers().initialize(graph)
    constant = graph.clone()
    constant.x = torch.ones(60, 8)
    constant.edge_index = None
    with pytest.raises(ValueError, match="rank 0"):
        stacked.initialize(constant)
    assert not any(conv.is_initialized for conv in stacked.layers)
    assert not stacked.is_fitted_on(graph)


def test_bad_input(graph):
    for arguments, match in (
        ({"hidden_channels": ()}, "at least one layer"),
        ({"kernel": ["rbf"] * 3}, "'kernel' needs 2 entries, one per layer, got 3"),
        ({"loss_weights": [1.0]}, "'loss_weights' needs 2 entries"),
        ({"power": [0.5] * 3}, "'power' needs 2 entries"),
        ({"normalize": "l1"}, "'normalize' must be"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            KernelLayers(**{"in_channels": 8, "hidden_channels": (6, 4), **arguments})
    with pytest.raises(InvalidInputError, match=r"shape \[n, 9\], got \(60, 8\)"):
        KernelLayers(9, (6, 4)).initialize(graph)
