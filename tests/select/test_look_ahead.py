"""Expected errors against solving again with every label, and what follows from them."""

import pytest
import torch

from tests.conftest import make_graph
from tests.select.helpers import quick
from torch_gckm.errors import InvalidInputError
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.nn import SemiSupRKMReadout
from torch_gckm.readout import Machine
from torch_gckm.select import GCKMEnsemble
from torch_gckm.select.look_ahead import Asked, Situation, look_ahead

TEMPERATURE = 2.0
LABELLED = torch.arange(6)


def solved(data, mask, gram="dense"):
    readout = SemiSupRKMReadout(8, 3, RBF(4.0), eta=1.05, gram=gram).double()
    readout(data.x.double(), data.y, mask)
    return readout


def chances_of(readout):
    return (TEMPERATURE * readout.scores).softmax(dim=1)


def error_after(data, labels):
    """The error that is expected with further labels: pairs of a node and its class."""
    y, mask = data.y.clone(), torch.zeros(30, dtype=torch.bool).index_fill(0, LABELLED, True)
    for node, number in labels:
        y[node], mask[node] = number, True
    changed = data.clone()
    changed.y = y
    return float((1 - chances_of(solved(changed, mask)).amax(dim=1)).mean())


@pytest.mark.parametrize("gram", ["dense", LowRank(max_rank=60, tol=1e-13)])
def test_expected_error_is_that_of_solving_again(gram):
    data = make_graph(30)
    readout = solved(data, data.train_mask, gram)
    solution, nodes, everyone = readout.fit.solution, torch.tensor([8, 14, 29]), torch.arange(30)
    chances = chances_of(readout)
    parts = (chances[nodes], readout.scores[nodes], solution.leverage(nodes), readout.scores)
    situation = Situation(*parts, solution.columns(everyone)(nodes))
    asked = Asked(readout.codes.double(), torch.full((3,), 1 / readout.lambda2), TEMPERATURE)
    for place, node in enumerate(nodes.tolist()):
        expected = sum(float(chances[node, number]) * error_after(data, [(node, number)]) for number in range(3))
        assert float(situation.expected_error(asked)[place]) == pytest.approx(expected, abs=1e-8)


def test_the_first_choice_is_the_best_of_all():
    data = make_graph(30)
    readout = solved(data, data.train_mask)
    chances = chances_of(readout)
    expected = {
        node: sum(float(chances[node, number]) * error_after(data, [(node, number)]) for number in range(3))
        for node in range(6, 30)
    }
    machine = Machine(readout.fit.solution, readout.codes)
    chosen = look_ahead(machine, chances, LABELLED, torch.ones(3), 5, TEMPERATURE)
    assert int(chosen[0]) == min(expected, key=expected.__getitem__)


def test_an_answer_is_a_solve_with_the_label():
    """Scores and G after an answer that is certain are those of a readout that has it."""
    data = make_graph(30)
    readout = solved(data, data.train_mask)
    solution, nodes = readout.fit.solution, torch.tensor([8, 14, 29])
    sure = torch.eye(3, dtype=torch.float64)[[2, 0, 1]]
    judged, everyone = readout.scores, torch.arange(30)
    situation = Situation(sure, judged[nodes], solution.leverage(nodes), judged, solution.columns(everyone)(nodes))
    between = solution.response(nodes)
    weight = torch.full((3,), 1 / readout.lambda2, dtype=torch.float64)
    situation.answered(0, between, Asked(readout.codes.double(), weight, TEMPERATURE))
    data.y[8], data.train_mask[8] = 2, True
    other = solved(data, data.train_mask)
    torch.testing.assert_close(situation.judged, other.scores)
    torch.testing.assert_close(situation.scores, other.scores[nodes])
    torch.testing.assert_close(situation.leverage, other.fit.solution.leverage(nodes))
    torch.testing.assert_close(situation.columns, other.fit.solution.columns(everyone)(nodes))
    torch.testing.assert_close(between, other.fit.solution.response(nodes))


@pytest.fixture(scope="module")
def ensemble():
    return quick(make_graph()).ensemble(3)


@pytest.mark.parametrize("count", [1, 10, 54])
def test_batches_hold_different_unlabelled_nodes(ensemble, count):
    nodes = ensemble.suggest(count)
    assert nodes.unique().numel() == count
    assert not set(nodes.tolist()) & set(range(6))
    assert torch.equal(nodes, ensemble.suggest(count))


def test_of_a_file_are_the_same(ensemble, tmp_path):
    ensemble.save(tmp_path / "ensemble.pt")
    assert torch.equal(GCKMEnsemble.load(tmp_path / "ensemble.pt").suggest(5), ensemble.suggest(5))


@pytest.mark.parametrize("count", [0, 55])
def test_bad_counts(ensemble, count):
    with pytest.raises(InvalidInputError, match="1 to 54"):
        ensemble.suggest(count)


def test_a_node_that_equals_a_chosen_one_is_not_asked_about_next():
    data = make_graph(30)
    data.x = torch.cat([data.x[:18], data.x[6:18]])  # Nodes 18 to 29 equal nodes 6 to 17.
    readout = solved(data, LABELLED)
    machine = Machine(readout.fit.solution, readout.codes)
    chosen = look_ahead(machine, chances_of(readout), LABELLED, torch.ones(3), 2, TEMPERATURE)
    assert abs(int(chosen[0] - chosen[1])) != 12
