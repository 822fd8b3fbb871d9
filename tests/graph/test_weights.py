"""How propagations read edge weights."""

import pytest
import torch

from torch_gckm import GCKM, Trainer
from torch_gckm.errors import GCKMWarning, InvalidInputError
from torch_gckm.graph import Propagation, has_weights, typical_weight, warn_of_heavy_tail, warn_of_unusable
from torch_gckm.graph.weights import Weighting

EDGES = torch.tensor([[0, 1, 2, 3, 1, 2], [1, 0, 3, 2, 2, 1]])
WEIGHT = torch.tensor([0.6, 0.6, 7000.0, 7000.0, 12.0, 12.0], dtype=torch.float64)
X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("kind", ["gcn", "sum", "mean", "ssgc", "ppr"])
@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_as_if_other_weights_were_given(kind, direction):
    def propagated(weight, **options):
        return Propagation(kind, 2, direction, **options)(X, EDGES, weight)

    torch.testing.assert_close(propagated(WEIGHT, weights="none"), propagated(None))
    torch.testing.assert_close(propagated(WEIGHT, weights="log", unit=12.0), propagated((1.0 + WEIGHT / 12.0).log()))
    torch.testing.assert_close(propagated(WEIGHT, weights="given"), propagated(WEIGHT))
    torch.testing.assert_close(propagated(None, weights="log"), propagated(None))
    assert not torch.allclose(propagated(WEIGHT, weights="none"), propagated(WEIGHT))


def test_logarithms_do_not_depend_on_the_scale():
    for scale in (1e-3, 1e4):
        unit = typical_weight(scale * WEIGHT)
        assert unit == pytest.approx(scale * typical_weight(WEIGHT))
        given = Weighting("log", typical_weight(WEIGHT))(WEIGHT)
        torch.testing.assert_close(Weighting("log", unit)(scale * WEIGHT), given)
        assert bool((given > 0).all())
        assert float(given.max() / given.min()) < 400 < float(WEIGHT.max() / WEIGHT.min())


def test_zero_and_negative_weights():
    weight = torch.tensor([-3.0, 0.0, 3.0])
    assert Weighting("none")(weight).tolist() == [1.0, 0.0, 1.0]
    assert Weighting("log", 3.0)(weight).tolist() == pytest.approx([-0.693147, 0.0, 0.693147])
    assert typical_weight(torch.tensor([0.0, 2.0, 8.0, 0.0])) == pytest.approx(4.0)
    assert typical_weight(torch.zeros(3)) == typical_weight(torch.empty(0)) == 1.0


def test_which_graphs_have_weights():
    assert has_weights(WEIGHT)
    assert not has_weights(None)
    assert not has_weights(torch.ones(3))


def test_gradients_flow_through_logarithms():
    weight = WEIGHT.clone().requires_grad_()
    propagation = Propagation("sum", weights="log", unit=12.0)
    propagation(X, EDGES, weight).sum().backward()
    expected = X.sum(dim=1)[EDGES[0]] / (12.0 + weight.detach())
    torch.testing.assert_close(weight.grad, expected)


def test_a_heavy_tail_is_told_with_quantiles():
    weight = torch.cat([torch.full((95,), 2.0), torch.full((5,), 7000.0)])
    with pytest.warns(GCKMWarning, match=r"at most 2, one in a hundred is above 7e\+03, the largest 7e\+03; do so"):
        warn_of_heavy_tail(weight, "do so")
    warn_of_heavy_tail(torch.linspace(0.5, 1.5, 100), "")  # Nothing is said.
    warn_of_heavy_tail(torch.distributions.Exponential(1.0).icdf(torch.linspace(0.0, 0.999, 1000)), "")
    warn_of_heavy_tail(None, "")


@pytest.mark.parametrize("bad", [{"weights": "root"}, {"weights": "log", "unit": 0.0}, {"weights": "log", "unit": -1}])
def test_bad_arguments(bad):
    with pytest.raises(InvalidInputError, match=r"'weights' must be|'unit' must be"):
        Propagation("gcn", **bad)


def test_models_keep_it(graph, tmp_path):
    generator = torch.Generator().manual_seed(0)
    graph.edge_weight = torch.rand(graph.num_edges, generator=generator).mul(8.0).exp()
    scores = {}
    for options in ({}, {"weights": "log", "unit": 55.0}, {"weights": "none"}):
        model = GCKM(8, (4,), 3, aggregation=Propagation("gcn", **options))
        Trainer(model, steps=0, progress=False).fit(graph)
        model.save(tmp_path / "model.pt")
        model.save(tmp_path / "small.pt", inductive=True)
        loaded, small = GCKM.load(tmp_path / "model.pt"), GCKM.load(tmp_path / "small.pt")
        assert loaded.settings == small.settings == model.settings
        new = graph.subgraph(torch.arange(40))
        assert torch.equal(loaded.scores(new), model.scores(new))
        torch.testing.assert_close(small.scores(new), model.scores(new))
        scores[str(model.settings.layers[0].propagation)] = model.readout.scores
    assert list(scores) == ["gcn", "gcn log(1 + w/55)", "gcn unweighted"]
    plain = GCKM(8, (4,), 3)
    del graph.edge_weight
    Trainer(plain, steps=0, progress=False).fit(graph)
    torch.testing.assert_close(scores["gcn unweighted"], plain.readout.scores)
    assert not torch.allclose(scores["gcn"], scores["gcn log(1 + w/55)"])


def test_weights_that_are_all_zero_are_told():
    with pytest.warns(GCKMWarning, match="all edge weights are zero"):
        warn_of_unusable(torch.zeros(3))
    warn_of_unusable(torch.tensor([0.0, 1.0]))  # Nothing is said.
    warn_of_unusable(torch.zeros(0))
    warn_of_unusable(None)
