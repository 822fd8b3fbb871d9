"""What labels would settle, against solving again with them, and what follows from it."""

import pytest
import torch

from tests.conftest import make_graph
from tests.select.helpers import quick
from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.nn import SemiSupRKMReadout
from torch_gckm.select import GCKMEnsemble
from torch_gckm.select.look_ahead import look_ahead

LABELLED = torch.arange(6)
EVERYONE = torch.arange(30)
GRAMS = pytest.mark.parametrize("gram", ["dense", LowRank(max_rank=60, tol=1e-13)], ids=["exact", "low-rank"])


def solved(data, labelled, gram="dense", weight=1.0):
    """A readout of which the last labelled nodes, if there are more than six, have another weight."""
    readout = SemiSupRKMReadout(8, 3, RBF(4.0), eta=1.05, gram=gram).double()
    mask = torch.zeros(30, dtype=torch.float64)
    mask[labelled] = weight
    mask[LABELLED] = 1.0
    readout(data.x.double(), data.y, mask)
    return readout


def doubt_about(readout):
    return 1.0 - (2.0 * readout.scores).softmax(dim=1).amax(dim=1)


def still_open(data, doubt, labelled, weight):
    """What is open with further labels, by a solve with them."""
    return float(doubt @ solved(data, labelled, weight=weight).fit.solution.leverage(EVERYONE))


@GRAMS
@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_suggestions_are_those_of_solving_again(gram, weight):
    """The best node by a solve for each candidate; then the best beside it, and so on."""
    data = make_graph(30)
    readout = solved(data, LABELLED, gram)
    doubt, weights = doubt_about(readout), torch.full((30,), weight)
    found = look_ahead(readout.fit.solution, doubt, LABELLED, weights, 4)
    labelled, whole = LABELLED.tolist(), still_open(data, doubt, LABELLED, weight)
    for choice in found:
        before = still_open(data, doubt, labelled, weight)
        left = {node: still_open(data, doubt, [*labelled, node], weight) for node in range(30) if node not in labelled}
        assert choice.node == min(left, key=left.__getitem__)
        assert choice.settled == pytest.approx((before - left[choice.node]) / whole, abs=1e-7)
        labelled.append(choice.node)


@GRAMS
def test_answers_are_the_columns_of_the_map(gram):
    solution = solved(make_graph(30), LABELLED, gram).fit.solution
    nodes, labels = torch.tensor([3, 8, 29]), torch.rand(3, 2, dtype=torch.float64)
    torch.testing.assert_close(solution.answer(nodes, labels), solution.columns(nodes)(EVERYONE) @ labels)


def test_judging_by_some_nodes_ignores_the_others():
    readout = solved(make_graph(30), LABELLED)
    doubt, judged = doubt_about(readout), panels.lowest(panels.random_order(30, 3), 10)
    only = torch.zeros_like(doubt).index_copy(0, judged, doubt[judged])
    some = look_ahead(readout.fit.solution, doubt, LABELLED, torch.ones(30), 3, judges=10, seed=3)
    every = look_ahead(readout.fit.solution, only, LABELLED, torch.ones(30), 3)
    assert [choice.node for choice in some] == [choice.node for choice in every]
    assert [choice.settled for choice in some] == pytest.approx([choice.settled for choice in every])


@pytest.fixture(scope="module")
def ensemble():
    return quick(make_graph()).ensemble(3)


@pytest.mark.parametrize("count", [1, 10, 54])
def test_batches_hold_different_unlabelled_nodes(ensemble, count):
    nodes = ensemble.suggest(count)
    assert nodes.unique().numel() == count
    assert not set(nodes.tolist()) & set(range(6))
    assert torch.equal(nodes, ensemble.suggest(count))
    settled = [choice.settled for choice in ensemble.suggestions(count)]
    assert all(0 <= share <= 1 for share in settled)
    assert sum(settled) <= 1


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
    first, second = look_ahead(readout.fit.solution, doubt_about(readout), LABELLED, torch.ones(30), 2)
    assert abs(first.node - second.node) != 12
