import copy
import subprocess
import sys

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from tests.conftest import make_graph, permute_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import GraphMismatchError, InvalidInputError, LowRankWarning, NotFittedError, ZeroRowWarning
from torch_gckm.gram import Dense
from torch_gckm.kernels import RBF, Laplacian, Linear, Precomputed


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
    assert torch.equal(model.embed(graph, layer=0), model.layers[0].h)
    assert float((model.predict() == graph.y)[graph.test_mask].float().mean()) > 0.8


def test_not_fitted(graph):
    model = GCKM(8, (6, 4), 3)
    for call in (lambda: model(graph.x, graph.edge_index), model.predict, model.embed, lambda: model.loss(graph),
                 lambda: model.solve(graph), lambda: model.transform(graph)):  # fmt: skip
        with pytest.raises(NotFittedError, match=r"Trainer\(model\)\.fit\(data\)"):
            call()


def test_another_graph_is_named_and_transformed(graph):
    model, other = fit(graph), make_graph(30, seed=9)
    with pytest.raises(GraphMismatchError, match="Use transform"):
        model(other.x, other.edge_index)
    scores = model.transform(other)
    assert scores.shape == (30, 3)
    assert torch.equal(model.predict(other), scores.argmax(dim=1))
    assert model.embed(other).shape == (30, 4)
    changed = graph.clone()
    changed.x = graph.x + 0.5  # The same edges, other features: not the fitted graph either.
    assert torch.equal(model.predict(changed), model.transform(changed).argmax(dim=1))


def test_transform_of_the_training_graph_equals_forward_at_kernel_pca(graph64):
    model = fit(graph64)
    torch.testing.assert_close(model.transform(graph64), model(graph64.x, graph64.edge_index), atol=1e-6, rtol=1e-6)


def test_known_nodes_keep_their_embeddings(graph64):
    model = fit(graph64, steps=3)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    place = torch.argsort(order)
    moved = permute_graph(graph64, order)
    torch.testing.assert_close(
        model.transform(moved, known=place)[place], model(graph64.x, graph64.edge_index), atol=1e-8, rtol=0
    )
    for bad in (place[:5], place.tolist(), place.double(), torch.ones(60, dtype=torch.bool)):
        with pytest.raises(InvalidInputError, match=r"'known' must be integers \[60\]"):
            model.transform(moved, known=bad)
    for bad in (place - 1, place + 1, torch.zeros_like(place)):
        with pytest.raises(InvalidInputError, match="60 different nodes of the 60"):
            model.transform(moved, known=bad)


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


def test_loss_is_unchanged_by_a_rotation_of_each_embedding(graph64):
    model = fit(graph64, loss_weights=[2.0, 0.5, 1.5])
    before = model.loss(graph64).detach()
    with torch.no_grad():
        for layer in model.layers:
            rotation = torch.linalg.qr(torch.randn(layer.h.size(1), layer.h.size(1), dtype=torch.float64))[0]
            layer.h.copy_(layer.h @ rotation)
    torch.testing.assert_close(model.loss(graph64).detach(), before)


def test_loss_is_the_weighted_sum_of_the_layers(graph64):
    model = fit(graph64, loss_weights=[2.0, 0.5, 1.5])
    first, second = model.layers
    expected = 2.0 * first.loss(graph64.x, graph64.edge_index) + 0.5 * second.loss(first.h, graph64.edge_index)
    expected = (expected + 1.5 * model.readout.loss(second.h)) / 60
    torch.testing.assert_close(model.loss(graph64), expected)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_any_depth(graph, depth):
    model = GCKM(8, (5,) * depth, 3, hops=[1] * depth)
    Trainer(model, steps=1, progress=False).fit(graph)
    assert len(model.layers) == depth
    assert bool(model.readout.scores.isfinite().all())


def test_second_view(graph64):
    model = fit(graph64, kernel=["rbf", "rbf", RBF(0.05) * Laplacian(10.0).on("x")])
    readout = model.readout
    k = RBF(0.05)(model.embed()) * Laplacian(10.0)(graph64.x)
    torch.testing.assert_close(readout.scores, k @ readout.alpha + readout.bias)
    torch.testing.assert_close(model.transform(graph64), readout.scores, atol=1e-6, rtol=1e-6)


def test_l2_normalisation_is_applied_to_new_data_too(graph64):
    model = fit(graph64, normalize="l2")
    scaled = graph64.clone()
    scaled.x = graph64.x * torch.linspace(1, 9, 60, dtype=torch.float64).unsqueeze(1)
    torch.testing.assert_close(model.transform(scaled), model.transform(graph64))
    scaled.x[3] = 0
    with pytest.warns(ZeroRowWarning, match=r"1 rows of x are zero .*row 3"):
        model.transform(scaled)


def test_columns_of_unit_spread(graph64):
    graph64.x[:, 0] = 7.0  # A constant column stays as it is.
    new = make_graph(20, seed=5)
    new.x = 3.0 * new.x.double()
    spread = graph64.x.std(dim=0, correction=0)
    spread[0] = 1.0
    model = fit(graph64, normalize="columns")
    expected = model.transform(new)
    scaled, scaled_new, sparse = (copy.copy(data) for data in (graph64, new, graph64))
    scaled.x, scaled_new.x, sparse.x = graph64.x / spread, new.x / spread, graph64.x.to_sparse_csr()
    plain = fit(scaled)
    torch.testing.assert_close(model.readout.scores, plain.readout.scores)
    torch.testing.assert_close(expected, plain.transform(scaled_new))  # New data are scaled by the fitted graph.
    torch.testing.assert_close(fit(sparse, normalize="columns").readout.scores, plain.readout.scores)
    new.x = new.x[:, :5]
    with pytest.raises(InvalidInputError, match="8 columns"):
        model.transform(new)


def test_columns_of_whole_numbers(graph):
    graph.x = (3 * graph.x).round()
    scores = []
    for x in (graph.x, graph.x.long(), graph.x.long().to_sparse()):
        graph.x = x
        scores.append(GCKM(8, (4,), 3, normalize="columns").initialize(graph).solve(graph))
    torch.testing.assert_close(scores[1], scores[0])
    torch.testing.assert_close(scores[2], scores[0])


def test_layers_that_aggregate_alike_share_one_matrix():
    model = GCKM(8, (6, 5, 4), 3, hops=[1, 1, 2])
    first, second, third = (layer.aggregation for layer in model.layers)
    assert first is second
    assert third is not first


def test_kernels_are_not_shared_between_layers():
    kernel = RBF()
    model = GCKM(8, (6, 4), 3, kernel=kernel)
    assert len({id(layer.kernel) for layer in (*model.layers, model.readout)} | {id(kernel)}) == 4


@pytest.mark.parametrize("arguments", [
    {},
    {"kernel": [RBF(3.0), 0.5 * RBF() + Linear(), RBF(0.1) * RBF(5.0).on("x")], "normalize": "l2"},
    {"normalize": "columns"},
    {"aggregation": ["sum", "mean"], "hops": [1, 2], "direction": "both", "code": "binary"},
    {"eta": [1.0, 2.0, 0.9], "lambda1": 1.1, "lambda2": 0.3, "gram": Dense(500), "loss_weights": [1, 2, 3]},
], ids=["default", "kernels", "columns", "aggregations", "numbers"])  # fmt: skip
def test_save_and_load(graph, arguments, tmp_path):
    model, new = fit(graph, steps=2, **arguments), make_graph(20, seed=4)
    model.save(tmp_path / "model.pt")
    loaded = GCKM.load(tmp_path / "model.pt")
    assert torch.equal(loaded(graph.x, graph.edge_index), model(graph.x, graph.edge_index))
    assert torch.equal(loaded.transform(new), model.transform(new))
    assert torch.equal(loaded.predict(graph), model.predict(graph))
    torch.testing.assert_close(loaded.loss(graph), model.loss(graph))
    assert repr(loaded) == repr(model)


def test_load_in_another_process(graph64, tmp_path):
    model = fit(graph64)
    model.save(tmp_path / "model.pt")
    new = make_graph(20, seed=4)
    torch.save({"x": new.x.double(), "edge_index": new.edge_index}, tmp_path / "new.pt")
    script = (
        "import sys, torch; from torch_geometric.data import Data; from torch_gckm import GCKM;"
        "folder = sys.argv[1]; data = Data(**torch.load(folder + '/new.pt'));"
        "torch.save(GCKM.load(folder + '/model.pt').transform(data), folder + '/scores.pt')"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    new.x = new.x.double()
    assert torch.equal(torch.load(tmp_path / "scores.pt"), model.transform(new))


def test_what_cannot_be_saved_says_so(graph, tmp_path):
    model = fit(graph, kernel=[lambda a, b: torch.exp(-torch.cdist(a, b)), "rbf", "rbf"])
    with pytest.raises(InvalidInputError, match="Python function"):
        model.save(tmp_path / "model.pt")
    model = GCKM(8, (6, 4), 3, aggregation=Same())
    with pytest.raises(InvalidInputError, match="its own aggregation"):
        model.save(tmp_path / "model.pt")
    assert not (tmp_path / "model.pt").exists()
    torch.save({"format": 99}, tmp_path / "other.pt")
    with pytest.raises(InvalidInputError, match="not a model file"):
        GCKM.load(tmp_path / "other.pt")


class Same(torch.nn.Module):
    def forward(self, x, edge_index, edge_weight=None):
        return x


def test_deficient_rank_carries_through_the_layers(graph, tmp_path):
    model = GCKM(8, (12, 4), 3, kernel=["linear", "rbf", "rbf"])
    with pytest.warns(LowRankWarning, match="rank 8"):
        Trainer(model, steps=1, progress=False).fit(graph)
    assert model.layers[0].h.shape == (60, 8)
    model.save(tmp_path / "model.pt")
    loaded = GCKM.load(tmp_path / "model.pt")
    new = make_graph(20, seed=4)
    assert torch.equal(loaded.transform(new), model.transform(new))


def test_deepcopy_and_types(graph):
    model = fit(graph, steps=1)
    clone = copy.deepcopy(model)
    assert torch.equal(clone.transform(graph), model.transform(graph))
    double = clone.double()
    assert double.transform(graph).dtype == torch.float64


def test_precomputed_readout_kernel_on_its_own_view(graph64):
    """A view may have any name, also one that a module uses itself."""
    readout = GCKM(8, (6, 4), 3).readout
    h = graph64.x[:, :4]
    matrix = RBF(3.0)(graph64.x)
    readout.kernel = RBF(1.0) * Precomputed(matrix).on("rows")
    readout = readout.double()
    scores = readout({"h": h, "rows": torch.arange(60).unsqueeze(1).double()}, graph64.y, graph64.train_mask)
    k = RBF(1.0)(h) * matrix
    torch.testing.assert_close(scores, k @ readout.alpha + readout.bias)


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
    assert torch.equal(model.predict(weighted), model.transform(weighted).argmax(dim=1))
    with pytest.raises(GraphMismatchError, match="other weights"):
        model(weighted.x, weighted.edge_index, weighted.edge_weight)


def test_directions_differ_between_layers_and_are_saved(graph, tmp_path):
    directed = graph.clone()
    directed.edge_index = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    model = fit(directed, direction=["in", "out"])
    model.save(tmp_path / "model.pt")
    assert torch.equal(GCKM.load(tmp_path / "model.pt").transform(directed), model.transform(directed))
    assert not torch.allclose(fit(directed).readout.scores, model.readout.scores)


def test_a_kernel_of_ones_own_is_refused_when_saving(graph, tmp_path):
    class Mine(RBF):
        pass

    with pytest.raises(InvalidInputError, match="'Mine' is not one of"):
        fit(graph, kernel=Mine(1.0)).save(tmp_path / "model.pt")


def test_input_channels_are_checked(graph):
    with pytest.raises(InvalidInputError, match=r"shape \[n, 99\], got \(60, 8\)"):
        GCKM(99, (6, 4), 3).initialize(graph)


def test_bad_input(graph):
    for arguments, match in (
        ({"kernel": ["rbf", "rbf"]}, "'kernel' needs 3 entries"),
        ({"hops": [1, 2, 3]}, "'hops' needs 2 entries"),
        ({"loss_weights": [1.0]}, "'loss_weights' needs 3 entries"),
        ({"hidden_channels": ()}, "at least one layer"),
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
