"""Peers with few labels against dense formulas, and the report."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from baselines import grand, linear, poisson
from baselines.sparse import adjacency
from experiments import comparison, few_labels
from experiments.common import Options
from store import read, run_tasks
from torch_geometric.utils import to_dense_adj

QUICK = grand.GrandRecipe(3, 2, 0.5, 0.5, (0.2, 0.2), lr=0.05, epochs=40, warm_up=10)


def dense(graph):
    matrix = to_dense_adj(graph.edge_index, max_num_nodes=graph.num_nodes)[0].double()
    with_loops = matrix + torch.eye(graph.num_nodes)
    inverse = with_loops.sum(dim=1).pow(-0.5)
    return matrix, inverse[:, None] * with_loops * inverse


class TestLinear:
    def test_smoothings(self, graph):
        s, x = dense(graph)[1].float(), linear.unit_length(graph).plain.to_dense()
        assert torch.allclose(torch.linalg.vector_norm(x, dim=1), torch.ones(60))
        matrix = adjacency(graph, "gcn")
        powers = [torch.matrix_power(s, k) @ x for k in range(1, 17)]
        expected = sum(0.95 * power + 0.05 * x for power in powers) / 16
        assert torch.allclose(linear.ssgc(lambda part: matrix @ part, x), expected, atol=1e-5)
        assert torch.allclose(linear.sgc(lambda part: matrix @ part, x), s @ s @ x, atol=1e-5)

    @pytest.mark.parametrize("name", linear.SMOOTHINGS)
    def test_it_is_a_regression_on_smoothed_rows(self, graph, name):
        s, x = dense(graph)[1].float(), linear.unit_length(graph).plain.to_dense()
        rows = torch.nn.functional.normalize(linear.SMOOTHINGS[name](lambda part: s @ part, x)).numpy()
        train = graph.train_mask.numpy()
        expected = linear.fit(rows[train], graph.y.numpy()[train], 10.0).predict(rows)
        assert np.array_equal(linear.train_linear(name, graph, 10.0).numpy(), expected)

    def test_two_classes(self, graph):
        graph.train_mask &= graph.y != 1
        assert linear.train_linear("sgc", graph).unique().tolist() == [0, 2]

    def test_the_strength_needs_two_labels_of_a_class(self):
        x, y = np.random.default_rng(0).normal(size=(9, 4)), np.arange(9) % 3
        assert linear.choose(x[:3], y[:3]) == linear.FIXED
        assert linear.choose(x, y) in linear.GRID


class TestPoisson:
    def test_solution_is_that_of_the_pseudo_inverse(self, graph):
        matrix = dense(graph)[0].numpy()
        degrees = matrix.sum(axis=1)
        source = np.zeros((60, 3))
        source[[1, 21, 41]] = np.eye(3) - 1 / 3
        expected = np.linalg.pinv(np.diag(degrees) - matrix) @ source
        inside = degrees > 0
        expected[inside] -= (degrees @ expected) / degrees.sum()
        found = poisson.solve(poisson.edges(graph), source)
        assert np.allclose(found, expected, atol=1e-4)

    def test_components_have_their_own_classes(self, graph):
        """Isolated nodes have the class that is predicted most; a component with one class has that one."""
        inside = graph.y[graph.edge_index]
        graph.edge_index = graph.edge_index[:, (inside[0] == inside[1]) & (inside[0] != 1)]
        graph.train_mask &= graph.y != 1
        predicted = poisson.train_poisson(graph)
        assert predicted[1:20].eq(0).float().mean() > 0.9
        assert predicted[40:59].eq(2).float().mean() > 0.9
        assert predicted[[0, 59]].unique().numel() == 1

    def test_shares_of_classes_weigh(self, graph):
        shares, nodes = np.array([0.2, 0.2, 0.6]), graph.train_mask.nonzero().view(-1)
        source = np.zeros((60, 3))
        source[nodes] = np.eye(3)[graph.y[nodes]] - 1 / 3
        expected = (poisson.solve(poisson.edges(graph), source) * shares).argmax(axis=1)
        assert np.array_equal(poisson.train_poisson(graph, shares=shares)[1:59], expected[1:59])

    def test_weights_of_neighbours(self, graph):
        graph.x[7] = 0.0
        found = poisson.neighbour_graph(graph, 4).toarray()
        x = torch.nn.functional.normalize(graph.x, dim=1)
        squares = 2.0 - 2.0 * (x @ x.t()).double().fill_diagonal_(-1.0)  # Cosines, which are zero for a row of zeros.
        reach = squares.kthvalue(4, dim=1).values
        assert np.allclose(found, found.T)
        assert (found > 0).sum(axis=1).min() >= 4
        place = int(squares[1].argmin())
        both = [float(torch.exp(-4 * squares[1, place] / reach[i])) for i in (1, place)]
        assert both[0] / 2 - 1e-6 <= found[1, place] <= sum(both) / 2 + 1e-6


class TestGrand:
    def test_average(self, graph):
        s, z = dense(graph)[1].float(), torch.randn(60, 2)
        expected = sum(torch.matrix_power(s, k) @ z for k in range(4)) / 4
        assert torch.allclose(grand.average(adjacency(graph, "gcn"), z, 3), expected, atol=1e-5)

    def test_consistency(self):
        scores = [torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]])]
        chances = torch.cat(scores).softmax(dim=1)
        sharp = chances.mean(dim=0) ** 2
        expected = (chances - sharp / sharp.sum()).square().sum() / 2
        assert torch.allclose(grand.consistency_loss(scores, 0.5), expected)

    @pytest.mark.parametrize("batch_norm", [False, True])
    def test_it_learns(self, graph, batch_norm):
        predicted = grand.train_grand(graph, 0, replace(QUICK, batch_norm=batch_norm))
        assert float((predicted == graph.y)[graph.test_mask].double().mean()) > 0.7
        assert torch.equal(predicted, grand.train_grand(graph, 0, replace(QUICK, batch_norm=batch_norm)))


PEERS = [name for name in few_labels.METHODS if not name.startswith("gckm")]


@pytest.fixture
def tiny(graph, monkeypatch):
    monkeypatch.setattr(few_labels, "load", lambda name, root: graph.clone())
    monkeypatch.setattr("baselines.gnn.EPOCHS", 30)
    few_labels.graph_of.cache_clear()
    few_labels.near.cache_clear()
    monkeypatch.setattr(few_labels, "FEW", QUICK)
    monkeypatch.setattr(few_labels, "GRAND_RECIPES", {"cora": replace(QUICK, unit_length=True)})
    yield
    few_labels.graph_of.cache_clear()
    few_labels.near.cache_clear()


def test_peers_are_better_than_chance(tiny, tmp_path):
    options = Options(["tiny"], PEERS, labels=[5, 20], seeds=1, first_seed=1000)
    experiment = few_labels.FewLabels(options)
    tasks = experiment.tasks()
    assert len(tasks) == len(PEERS)  # A class of 20 has no other nodes once 20 are labelled.
    path = tmp_path / "rows.jsonl"
    rows = run_tasks(tasks, experiment.run, path, experiment.describe)
    for row in rows:
        assert row["accuracy"] > 45.0, row
        assert row["balanced_accuracy"] == pytest.approx(row["accuracy"], abs=1e-6)  # All classes are as large.
    assert "| Tiny | **" in comparison.summary_table(read(path), "ssgc") or "| Tiny | " in experiment.table(read(path))


@pytest.mark.parametrize("method", ["gckm_none", "ssgc", "poisson", "appnp_example"])
def test_other_labels_are_not_seen(tiny, graph, method):
    """A method's graph has no labels but those of the split."""
    seen = few_labels.seen_by(graph, graph.train_mask)
    assert seen.y[~graph.train_mask].eq(-1).all()
    assert few_labels.METHODS[method](seen, 0).shape == (60,)


def row(method, split, accuracy, labels=1, dataset="cora"):
    measures = {"accuracy": accuracy, "balanced_accuracy": accuracy - 1.0, "seconds": 0.5}
    return {"method": method, "dataset": dataset, "labels": labels, "split": split, **measures}


class TestComparison:
    def test_verdicts_are_on_shared_splits(self):
        rows = [row("gckm", split, value) for split, value in enumerate((50.0, 60.0, 70.0))]
        rows += [row("ssgc", split, value) for split, value in enumerate((52.0, 59.0, 71.0))]
        rows += [row("gckm_2s", 0, 99.0), row("grand", 2, 70.0)]
        (values,) = comparison.cells(rows).values()
        found = comparison.compare(("cora", 1), values, "gckm")
        assert (found.peer, found.verdict) == ("ssgc", "even")
        assert found.gap == pytest.approx(-2 / 3)
        assert found.error == pytest.approx(np.std([-2, 1, -1], ddof=1) / 3**0.5)
        assert found.splits == (0, 1, 2)
        assert comparison.compare(("cora", 1), values, "gckm", ("grand",)).gap == 0.0

    def test_table_and_facts(self):
        rows = [row("gckm", split, 80.0 + split) for split in range(2)]
        rows += [row("ssgc", split, 70.0 + split) for split in range(2)]
        rows += [row(*pair, labels=5) for pair in (("gckm", 0, 50.0), ("ssgc", 0, 60.0), ("sgc", 0, 55.0))]
        assert "| Cora | **80.5** / 70.5 | 50.0 / **60.0** |" in few_labels.FewLabels.page_table(rows)
        facts = few_labels.FewLabels.facts(rows)
        assert (facts["best"], facts["good"], facts["cells"], facts["far"]) == (1, 1, 2, 1)
        assert facts["worst"] == "Cora with 5 (-10.0, ssgc)"
        assert facts["leads"] == "10.0, -10.0"
        assert "| Cora |" in few_labels.FewLabels.times(rows)

    def test_far_behind_is_two_points_and_two_errors(self):
        for gap, error, far in ((-1.9, 0.1, False), (-2.5, 1.0, True), (-2.5, 1.5, False)):
            assert comparison.Comparison(("cora", 1), "ssgc", 50.0, gap, error).is_far_behind == far

    def test_picture(self, tmp_path):
        rows = [row(*part) for part in (("gckm", 0, 80.0), ("ssgc", 0, 70.0), ("gckm", 0, 85.0, 5))]
        comparison.draw(rows, tmp_path / "curves.png")
        assert (tmp_path / "curves.png").stat().st_size > 1000

    def test_without_the_method(self):
        assert comparison.compared([row("ssgc", 0, 60.0)], "gckm") == []
