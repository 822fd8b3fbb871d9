import pytest
import torch
from torch_geometric.utils import to_undirected

from tests.conftest import make_graph
from tests.select.helpers import quick
from torch_gckm import SemiSupRKMReadout
from torch_gckm.errors import InvalidInputError, SingularReadoutError
from torch_gckm.readout import Targets
from torch_gckm.select import GCKMEnsemble
from torch_gckm.select.calibration import agreement_of, calibrate, certainty_of, expected_accuracy
from torch_gckm.select.unlabelled import is_better_than_chance, sureness, with_sure_nodes
from torch_gckm.select.withheld import groups_to_withhold


def found(data, count=16, **options):
    return quick(data, count, **options)


def targets_of(*classes, num_classes=2):
    classes = torch.tensor(classes)
    return Targets((classes >= 0).float(), classes, num_classes)


class TestSureNodes:
    labels = targets_of(0, 1, -1, -1, -1, -1, -1)
    # Nodes 2, 3 and 4 are surely of class 0, node 5 is surely of class 1, node 6 is in doubt.
    probabilities = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])

    def test_weights_of_classes_are_as_expected_among_unlabelled_nodes(self):
        more = with_sure_nodes(self.labels, self.probabilities, confidence=0.7, strength=0.6)
        assert more.classes.tolist() == [0, 1, 0, 0, 0, 1, -1]
        assert more.weight[:2].tolist() == [1.0, 1.0]
        assert float(more.weight[6]) == 0.0
        expected = self.probabilities[2:].sum(dim=0)
        masses = torch.stack([more.weight[2:5].sum(), more.weight[5]])
        torch.testing.assert_close(masses / masses.sum(), expected / expected.sum())
        assert float(masses.sum()) == pytest.approx(2 * 0.6)

    def test_no_further_label_weighs_more_than_a_given_one(self):
        more = with_sure_nodes(self.labels, self.probabilities, confidence=0.7, strength=100.0)
        assert float(more.weight[2:].max()) == pytest.approx(1.0)

    def test_a_class_without_sure_nodes_is_not_drowned(self):
        assert with_sure_nodes(self.labels, self.probabilities, confidence=0.85, strength=0.6) is self.labels

    def test_classes_without_labels_are_not_made_up(self):
        three = torch.cat([self.probabilities, torch.zeros(7, 1)], dim=1)
        three[6] = torch.tensor([0.0, 0.1, 0.9])
        labels = targets_of(0, 1, -1, -1, -1, -1, -1, num_classes=3)
        more = with_sure_nodes(labels, three, confidence=0.7, strength=0.6)
        assert more.classes.tolist() == [0, 1, 0, 0, 0, 1, -1]

    def test_without_unlabelled_nodes_nothing_is_added(self):
        labels = targets_of(0, 1)
        assert with_sure_nodes(labels, self.probabilities[:2], confidence=0.3, strength=0.6) is labels


class TestEnsemble:
    def test_is_what_solving_for_further_labels_gives(self, graph):
        plain = found(graph).ensemble(3, self_training=False)
        labels = Targets.of(graph, 3)
        withheld = plain._withheld(plain._fits_to(labels))
        sure = (sureness(plain.scores(), plain._votes(), *withheld, over=plain.partition) * plain.scores()).softmax(
            dim=1
        )
        more = with_sure_nodes(labels, sure, 0.6, 4.0)
        assert int((more.classes >= 0).sum()) > 6
        trained = found(graph).ensemble(3, self_training=False)
        trained.self_train(graph, confidence=0.6, strength=4.0, rounds=1)
        other = graph.clone()
        other.y, other.train_mask = more.classes, more.weight
        for ours, theirs in zip(trained.members, plain.members, strict=True):
            theirs.solve(other)
            torch.testing.assert_close(ours.readout.scores, theirs.readout.scores)

    def test_keeps_certainty_and_the_given_labels(self, graph):
        result = found(graph)
        plain, trained = result.ensemble(3, self_training=False), result.ensemble(3)
        assert not torch.equal(plain.scores(), trained.scores())
        rest = ~graph.train_mask
        certainties = [float(e.predict_proba()[rest].amax(dim=1).mean()) for e in (plain, trained)]
        assert certainties[0] == pytest.approx(certainties[1], abs=1e-3)
        assert torch.equal(trained.labelled, graph.train_mask.nonzero().squeeze(1))
        assert not bool(graph.train_mask[trained.suggest(5)].any())

    def test_helps_where_classes_are_clusters(self):
        accuracies = []
        for seed in range(4):
            data = make_graph(150, seed=seed)
            generator = torch.Generator().manual_seed(seed)
            data.x += torch.randn(data.x.shape, generator=generator)
            data.edge_index = data.edge_index[:, torch.rand(data.num_edges, generator=generator) < 0.1]
            data.edge_index = to_undirected(data.edge_index)
            result = found(data, 12)
            for self_training in (False, True):
                predicted = result.ensemble(5, self_training=self_training).predict()
                accuracies.append(float((predicted == data.y)[data.test_mask].double().mean()))
        assert sum(accuracies[1::2]) > sum(accuracies[::2])

    def test_only_where_withheld_labels_are_predicted(self, graph):
        """Labels that have nothing to do with the graph."""
        graph.y = graph.y[torch.randperm(60, generator=torch.Generator().manual_seed(0))]
        graph.train_mask = torch.arange(60) < 30
        ensemble = found(graph).ensemble(3, self_training=False)
        before = ensemble.scores()
        ensemble.self_train(graph, confidence=0.4)
        assert torch.equal(ensemble.scores(), before)

    def test_of_an_ensemble_from_a_file(self, graph, tmp_path):
        plain = found(graph).ensemble(3, self_training=False)
        plain.save(tmp_path / "ensemble.pt")
        loaded = GCKMEnsemble.load(tmp_path / "ensemble.pt").self_train(graph)
        torch.testing.assert_close(loaded.scores(), plain.self_train(graph).scores(), atol=1e-4, rtol=1e-4)

    def test_again_and_with_more_labels(self, graph):
        """What withheld labels say concerns the labels that are given now, not those of the last round."""
        ensemble = found(graph).ensemble(3)
        once = ensemble.scores()
        more = graph.clone()
        more.train_mask = torch.arange(60) < 12
        for data in (graph, more):
            targets = Targets.of(data, 3)
            fits = [model.readout.solved_again(targets) for model in ensemble.members]
            scores, classes = ensemble._withheld(fits)
            assert set(classes.tolist()) == {0, 1, 2}
            assert is_better_than_chance(scores, classes, targets)
            ensemble.self_train(data)
            assert torch.equal(ensemble.labelled, data.train_mask.nonzero().squeeze(1))
        assert not torch.equal(ensemble.scores(), once)

    def test_a_member_that_cannot_be_solved_again_stays_as_it_is(self, graph, monkeypatch):
        ensemble = found(graph).ensemble(3, self_training=False)
        stubborn, original = ensemble.members[0], SemiSupRKMReadout.solve_again
        before = stubborn.readout.scores.clone()

        def solve_again(self, targets):
            if self is stubborn.readout and targets.labelled.numel() > 6:
                raise SingularReadoutError("too many labels")
            return original(self, targets)

        monkeypatch.setattr(SemiSupRKMReadout, "solve_again", solve_again)
        scores = ensemble.self_train(graph, confidence=0.6).scores()
        assert bool(scores.isfinite().all())
        torch.testing.assert_close(stubborn.readout.scores, before)

    def test_with_one_label_per_class_agreement_calibrates(self, graph):
        graph.train_mask = torch.arange(60) < 3
        ensemble = found(graph).ensemble(4, self_training=False)
        rest = ~graph.train_mask
        votes = torch.stack([model.predict()[rest] for model in ensemble.members])
        agreement = (agreement_of(votes) - 1 / 3) * 3 / 2
        certainty = certainty_of(ensemble.scores()[rest], float(ensemble.temperature))
        assert certainty == pytest.approx(1 / 3 + 2 / 3 * agreement**2, abs=1e-3)
        assert float(found(graph).ensemble(1, self_training=False).temperature) == 1.0
        # Self-training tells sure nodes by the share of members that agree with the ensemble.
        nothing = ensemble.scores()[:0], torch.empty(0, dtype=torch.long)
        factor = sureness(ensemble.scores()[rest], votes, *nothing, ensemble.partition)
        agreed = float((votes == ensemble.predict()[rest]).double().mean())
        assert certainty_of(ensemble.scores()[rest], factor) == pytest.approx((4 * agreed + 1 / 3) / 5, abs=1e-3)

    def test_few_labels_are_calibrated_by_withholding_one_of_every_class(self, graph):
        result = found(graph)
        ensemble = result.ensemble(4, self_training=False)
        labelled, rest = ensemble.labelled, ~graph.train_mask
        groups = groups_to_withhold(graph.y[labelled])
        total = 0.0
        for model, spread in zip(ensemble.members, ensemble.spread, strict=True):
            total = total + torch.cat(list(model.readout.leave_out(labelled[groups]))) / spread / 4
        withheld = torch.stack([total[groups.flatten() == place].mean(dim=0) for place in range(6)])
        votes = torch.stack([model.predict()[rest] for model in ensemble.members])
        scores, gain = ensemble.scores()[rest], result.unseen(4).gain
        expected = expected_accuracy(scores, votes, withheld, graph.y[labelled], 3, gain)
        assert certainty_of(scores, float(ensemble.temperature)) == pytest.approx(expected, abs=1e-3)
        factor = sureness(scores, votes, total, graph.y[labelled][groups].flatten(), ensemble.partition)
        assert factor == pytest.approx(calibrate(total, graph.y[labelled][groups].flatten())[0], rel=1e-6)

    def test_another_graph_is_refused(self, graph):
        ensemble = found(graph).ensemble(2, self_training=False)
        with pytest.raises(InvalidInputError, match="fitted on"):
            ensemble.self_train(make_graph(seed=3))

    def test_is_saved(self, graph, tmp_path):
        trained = found(graph).ensemble(2)
        trained.save(tmp_path / "ensemble.pt")
        loaded = GCKMEnsemble.load(tmp_path / "ensemble.pt")
        assert torch.equal(loaded.predict_proba(), trained.predict_proba())
        assert torch.equal(loaded.labelled, trained.labelled)
        assert torch.equal(loaded.suggest(4), trained.suggest(4))
