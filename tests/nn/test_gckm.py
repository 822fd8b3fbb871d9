"""The deep model: scores, embeddings, new graphs and the objective."""

import copy

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from tests.conftest import make_graph, permute_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import GraphMismatchError, InvalidInputError, NotFittedError
from torch_gckm.kernels import RBF, Laplacian, Precomputed
from torch_gckm.nn import ModelSettings, Propagation, SemiSupRKMReadout
from torch_gckm.readout import Targets


def fit(data, steps=0, **arguments):
    model = GCKM(data.num_features, (6, 4), 3, **arguments).to(data.x.dtype)
    Trainer(model, steps=steps, progress=False).fit(data)
    return model


def test_scores_predictions_and_embeddings(graph):
    model = fit(graph)
    scores = model(graph.x, graph.edge_index)
    assert scores.shape == (60, 3)
    assert torch.equal(model.predict(), scores.argmax(dim=1))
    assert torch.equal(model.predict(graph), model.predict())
    probabilities = model.predict_proba()
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(60))
    assert torch.equal(probabilities.argmax(dim=1), model.predict())
    assert model.embed().shape == (60, 4)
    assert torch.equal(model.embed(graph, layer=0), model.layers[0].z)
    assert torch.equal(model.embed(), model.layers[1].z)
    assert float((model.predict() == graph.y)[graph.test_mask].float().mean()) > 0.8


def test_not_fitted(graph):
    model = GCKM(8, (6, 4), 3)
    for call in (lambda: model(graph.x, graph.edge_index), model.predict, model.embed, lambda: model.loss(graph),
                 lambda: model.solve(graph), lambda: model.transform(graph), lambda: model.scores(graph),
                 model.summary, model.inductive):  # fmt: skip
        with pytest.raises(NotFittedError, match=r"Trainer\(model\)\.fit\(data\)"):
            call()


def test_another_graph_is_named_and_transformed(graph):
    model, other = fit(graph), make_graph(30, seed=9)
    with pytest.raises(GraphMismatchError, match="Use transform"):
        model(other.x, other.edge_index)
    scores = model.scores(other)
    assert scores.shape == (30, 3)
    assert torch.equal(model.transform(other), model.embed(other))
    assert torch.equal(model.predict(other), scores.argmax(dim=1))
    assert model.embed(other).shape == (30, 4)
    changed = graph.clone()
    changed.x = graph.x + 0.5  # The same edges, other features: not the fitted graph either.
    assert torch.equal(model.predict(changed), model.inductive().scores(changed).argmax(dim=1))
    assert not torch.allclose(model.scores(changed), model.readout.scores)


def test_transform_of_the_training_graph_equals_forward_at_kernel_pca(graph64):
    model = fit(graph64)
    extended = model.inductive().scores(graph64)
    torch.testing.assert_close(extended, model(graph64.x, graph64.edge_index), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(model.transform(graph64), model.embed(), atol=1e-6, rtol=1e-6)


def test_known_nodes_keep_their_embeddings(graph64):
    model = fit(graph64, steps=3)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    place = torch.argsort(order)
    moved = permute_graph(graph64, order)
    torch.testing.assert_close(
        model.scores(moved, known=place)[place], model(graph64.x, graph64.edge_index), atol=1e-8, rtol=0
    )
    for bad in (place[:5], place.tolist(), place.double(), torch.ones(60, dtype=torch.bool)):
        with pytest.raises(InvalidInputError, match=r"'known' must be integers \[60\]"):
            model.scores(moved, known=bad)
    for bad in (place - 1, place + 1, torch.zeros_like(place)):
        with pytest.raises(InvalidInputError, match="60 different nodes of the 60"):
            model.scores(moved, known=bad)
    torch.testing.assert_close(model.transform(moved, known=place)[place], model.embed())
    with pytest.raises(InvalidInputError, match="pass the graph, too"):
        model.scores(known=place)


def test_permuting_nodes_permutes_the_scores(graph64):
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    a, b = fit(graph64), fit(permute_graph(graph64, order))
    torch.testing.assert_close(a.readout.scores[order], b.readout.scores, atol=1e-6, rtol=1e-6)


def test_permuting_nodes_permutes_fine_tuning(graph64):
    losses = []
    for seed in range(3):
        order = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
        data = permute_graph(graph64, order)
        model = GCKM(8, (6, 4), 3).double()
        losses.append([record.loss for record in Trainer(model, steps=4, progress=False).fit(data)])
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), atol=1e-8, rtol=0)
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[2]), atol=1e-8, rtol=0)


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_loss_is_unchanged_by_a_rotation_or_by_signs_of_each_embedding(graph64, power):
    """Rotations mix columns, which are alike for power 0 only; signs are arbitrary for any."""
    model = fit(graph64, loss_weights=[2.0, 0.5, 1.5], power=power)
    before = model.loss(graph64).detach()
    with torch.no_grad():
        for layer in model.layers:
            rotation = torch.linalg.qr(torch.randn(layer.h.size(1), layer.h.size(1), dtype=torch.float64))[0]
            signs = torch.diag(rotation[0].sign())
            layer.h.copy_(layer.h @ (signs if power else rotation))
    torch.testing.assert_close(model.loss(graph64).detach(), before)


def test_loss_is_the_weighted_sum_of_the_layers(graph64):
    model = fit(graph64, loss_weights=[2.0, 0.5, 1.5])
    first, second = model.layers
    expected = 2.0 * first.loss(graph64.x, graph64.edge_index) + 0.5 * second.loss(first.z, graph64.edge_index)
    expected = (expected + 1.5 * model.readout.loss(second.z)) / 60
    torch.testing.assert_close(model.loss(graph64), expected)


@pytest.mark.parametrize("depth", [0, 1, 2, 4])
def test_any_depth(graph, depth):
    model = GCKM(8, (5,) * depth, 3, hops=[1] * max(1, depth))
    Trainer(model, steps=1, progress=False).fit(graph)
    assert len(model.layers) == depth
    assert bool(model.readout.scores.isfinite().all())


def test_second_view(graph64):
    model = fit(graph64, kernel=["rbf", "rbf", RBF(0.05) * Laplacian(10.0).on("x")])
    readout = model.readout
    k = RBF(0.05)(model.embed()) * Laplacian(10.0)(graph64.x)
    torch.testing.assert_close(readout.scores, k @ readout.fit.alpha + readout.bias)
    torch.testing.assert_close(model.inductive().scores(graph64), readout.scores, atol=1e-6, rtol=1e-6)


def test_kernels_are_not_shared_between_layers():
    kernel = RBF()
    model = GCKM(8, (6, 4), 3, kernel=kernel)
    assert len({id(layer.kernel) for layer in (*model.layers, model.readout)} | {id(kernel)}) == 4


def test_deepcopy_and_types(graph):
    model = fit(graph, steps=1)
    clone = copy.deepcopy(model)
    assert torch.equal(clone.scores(graph), model.scores(graph))
    assert torch.equal(clone.inductive().scores(graph), model.inductive().scores(graph))
    double = clone.double()
    assert double.scores(graph).dtype == torch.float64
    assert double.inductive().scores(graph).dtype == torch.float64


def test_precomputed_readout_kernel_on_its_own_view(graph64):
    """A view may have any name, also one that a module uses itself."""
    readout = GCKM(8, (6, 4), 3).readout
    h = graph64.x[:, :4]
    matrix = RBF(3.0)(graph64.x)
    readout.kernel = RBF(1.0) * Precomputed(matrix).on("rows")
    readout = readout.double()
    scores = readout({"h": h, "rows": torch.arange(60).unsqueeze(1).double()}, graph64.y, graph64.train_mask)
    k = RBF(1.0)(h) * matrix
    torch.testing.assert_close(scores, k @ readout.fit.alpha + readout.bias)


def test_weighted_edges_reach_every_layer(graph64):
    plain = fit(graph64)
    weighted = graph64.clone()
    weighted.edge_weight = torch.rand(graph64.num_edges, generator=torch.Generator().manual_seed(0)).double()
    assert not torch.allclose(fit(weighted).readout.scores, plain.readout.scores)
    weighted.edge_weight = torch.ones(graph64.num_edges).double()
    torch.testing.assert_close(fit(weighted).readout.scores, plain.readout.scores)


def test_other_edge_weights_are_another_graph(graph64):
    model = fit(graph64)
    weighted = graph64.clone()
    generator = torch.Generator().manual_seed(0)
    weighted.edge_weight = 1.0 + 9.0 * torch.rand(graph64.num_edges, generator=generator).double()
    assert torch.equal(model.predict(weighted), model.inductive().scores(weighted).argmax(dim=1))
    assert not torch.allclose(model.scores(weighted), model.readout.scores)
    with pytest.raises(GraphMismatchError, match="other weights"):
        model(weighted.x, weighted.edge_index, weighted.edge_weight)


def test_input_channels_are_checked(graph):
    with pytest.raises(InvalidInputError, match=r"shape \[n, 99\], got \(60, 8\)"):
        GCKM(99, (6, 4), 3).initialize(graph)


def test_bad_input(graph):
    for arguments, match in (
        ({"kernel": ["rbf", "rbf"]}, "'kernel' needs 3 entries"),
        ({"hops": [1, 2, 3]}, "'hops' needs 2 entries"),
        ({"loss_weights": [1.0]}, "'loss_weights' needs 3 entries"),
        ({"hidden_channels": (), "hops": [1, 2]}, "'hops' needs 1 entries"),
        ({"hidden_channels": (6, 0)}, "'out_channels' must be positive"),
        ({"power": [0.5]}, "'power' needs 2 entries"),
        ({"power": -0.1}, "'power' must not be negative"),
        ({"normalize": "l1"}, "'normalize' must be None, 'l2' or 'columns'"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            GCKM(**{"in_channels": 8, "hidden_channels": (6, 4), "out_channels": 3, **arguments})
    model = GCKM(8, (6, 4), 3)
    with pytest.raises(InvalidInputError, match="no node features"):
        model.initialize(Data(edge_index=graph.edge_index, num_nodes=60))
    with pytest.raises(InvalidInputError, match="to_homogeneous"):
        model.initialize(HeteroData())
    with pytest.raises(InvalidInputError, match="no labels"):
        model.initialize(graph).solve(Data(x=graph.x, edge_index=graph.edge_index))


def test_a_prepared_graph_is_taken_wherever_data_are(graph):
    model, other = fit(graph, normalize="columns"), make_graph(30, seed=9)
    prepared, new = model.prepare(graph), model.prepare(other)
    assert model.prepare(prepared) is prepared
    assert model.is_fitted_on(prepared)
    assert not model.is_fitted_on(new)
    torch.testing.assert_close(model.loss(prepared), model.loss(graph))
    for ask in (model.scores, model.predict, model.predict_proba, model.embed, model.transform):
        assert torch.equal(ask(prepared), ask(graph))
        assert torch.equal(ask(new), ask(other))
    fresh = GCKM(8, (6, 4), 3, normalize="columns").initialize(prepared)
    assert torch.equal(fresh.solve_on(prepared, Targets.of(graph, 3)), model.readout.scores)


def test_layers_fitted_before_make_a_model(graph):
    model = fit(graph, normalize="columns")
    readout = SemiSupRKMReadout(4, 3)
    joined = GCKM.with_readout(model.layers, model.prepare(graph), Propagation("none"), readout)
    assert joined.is_fitted_on(graph)
    assert not joined.is_fitted
    assert joined.normalize == "columns"
    assert torch.equal(joined.solve(graph), model.readout.scores)
    new = make_graph(20, seed=4)
    assert torch.equal(joined.scores(new), model.scores(new))


def test_settings_build_the_same_model(graph):
    kernels = [RBF(3.0), "laplacian", RBF(0.1) * RBF(5.0).on("x")]
    model = fit(graph, kernel=kernels, hops=[1, 2], eta=[1.0, 2.0, 0.9], lambda2=0.3, loss_weights=[1, 2, 3])
    settings = ModelSettings.from_dict(model.settings.to_dict())
    assert settings == model.settings
    twin = GCKM.from_settings(settings, 8, 3)
    assert repr(twin) == repr(GCKM.from_settings(model.settings, 8, 3))
    assert twin.loss_weights == model.loss_weights == (1.0, 2.0, 3.0)
    Trainer(twin, steps=0, progress=False).fit(graph)
    assert torch.equal(twin.readout.scores, model.readout.scores)
    assert settings.layers[1].channels == 4
    assert settings.readout.lambda2 == 0.3


def test_a_call_with_other_features_is_refused(graph):
    model = GCKM(8, (4,), 3).initialize(graph)
    model.solve(graph)
    assert torch.equal(model(graph.x.clone(), graph.edge_index), model.readout.scores)
    with pytest.raises(GraphMismatchError, match=r"model\.scores\(data\)"):
        model(torch.zeros_like(graph.x), graph.edge_index)
