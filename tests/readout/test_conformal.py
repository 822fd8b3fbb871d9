"""P-values against solving again for every node and class, and their coverage."""

import pytest
import torch

from tests.readout.conftest import ETA, LAMBDA1, LAMBDA2, solved
from torch_gckm import blocks
from torch_gckm.errors import InvalidInputError
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.nn import SemiSupRKMReadout
from torch_gckm.readout import Machine, p_values, sets_of

LABELLED = torch.tensor([0, 1, 2, 5, 9, 13, 14, 20, 22])
CODE = torch.tensor([[1.0, 1.0, -1.0, 1.0], [1.0, -1.0, 1.0, -1.0], [-1.0, 1.0, 1.0, 1.0]])


def own_scores(readout, scores, classes):
    """The score of every node's class, by hand: its column, or for other codes the mean agreement with its code."""
    if readout.code == "one_vs_all":
        return scores[torch.arange(len(scores)), classes]
    return (scores * readout.codes[classes]).mean(dim=1)


def brute_force(readout, h, data, per_class):
    result = torch.nn.functional.one_hot(data.y, 3).double()
    for node in set(range(30)) - set(LABELLED.tolist()):
        for number in range(3):
            y, mask = data.y.clone(), torch.zeros(30, dtype=torch.bool)
            y[node], mask[node], mask[LABELLED] = number, True, True
            other = SemiSupRKMReadout(8, 3, RBF(4.0), ETA, LAMBDA1, LAMBDA2, "dense", readout.code).double()
            other(h, y, mask)
            nodes, left_out = other.labelled, own_scores(other, other.leave_one_out(), y[other.labelled])
            if per_class:
                nodes, left_out = nodes[y[nodes] == number], left_out[y[nodes] == number]
            result[node, number] = (left_out <= left_out[nodes == node]).double().mean()
    return result


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("gram", ["dense", LowRank(max_rank=60, tol=1e-13)])
@pytest.mark.parametrize("code", ["one_vs_all", CODE])
def test_p_values_are_those_of_solving_again(gram, code, per_class):
    readout, _, h, data = solved(30, gram=gram, code=code)
    readout(h, data.y, LABELLED)
    expected = brute_force(readout, h, data, per_class)
    torch.testing.assert_close(readout.p_values(per_class=per_class), expected)
    assert len(expected.unique()) > 4  # Otherwise this would say little.
    assert torch.equal(readout.predict_set(0.75, per_class=per_class), expected > 0.25 + 1e-9)


def test_blocks_do_not_matter(monkeypatch):
    readout, *_ = solved()
    whole = readout.p_values()
    monkeypatch.setattr(blocks, "BLOCK_ENTRIES", 50)
    torch.testing.assert_close(readout.p_values(), whole)


def test_labelled_nodes_have_their_class_only():
    readout, _, _, data = solved()
    sets = readout.predict_set(0.99)
    assert torch.equal(sets[:6], torch.nn.functional.one_hot(data.y[:6], 3).bool())
    assert bool(sets[6:].all())  # Six labels exclude nothing at 99 %.


def test_a_class_without_a_label():
    readout, _, _, data = solved(30, seed=1)
    with pytest.warns(UserWarning, match="class \\[1\\]"):
        readout(data.x.double(), torch.where(data.y == 1, -1, data.y), torch.arange(24))
    unlabelled = readout.fit.label_class < 0
    assert bool((readout.p_values(per_class=True)[unlabelled, 1] == 1).all())  # There is nothing to compare with.
    assert bool((readout.p_values(per_class=True)[unlabelled][:, [0, 2]] < 1).any())


def test_randomised_p_values_lie_below_and_follow_the_seed():
    readout, *_ = solved()
    plain, drawn = readout.p_values()[6:], readout.p_values(randomize=True, seed=3)[6:]
    assert bool((drawn <= plain).all())
    assert bool((drawn >= plain - 1 / 7 - 1e-12).all())
    assert torch.equal(drawn, readout.p_values(randomize=True, seed=3)[6:])
    assert not torch.equal(drawn, readout.p_values(randomize=True, seed=4)[6:])


def test_the_mean_of_machines():
    readout, *_ = solved()
    machine = Machine(readout.fit.solution, readout.codes)
    classes = readout.fit.label_class
    other = Machine(readout.fit.solution, readout.codes, spread=5.0)
    torch.testing.assert_close(p_values([machine, other, machine], classes), readout.p_values())


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1, 90, float("nan")])
def test_bad_coverages(coverage):
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        sets_of(torch.ones(2, 2), coverage)


def test_a_share_of_the_labels_does_not_depend_on_rounding():
    assert not bool(sets_of(torch.tensor([[2 / 20]], dtype=torch.float64), 0.9))


def test_weights_that_forbid_exchange():
    readout, _, h, data = solved()
    weight = data.train_mask.double()
    weight[3] = 2.0
    readout(h, data.y, weight)
    with pytest.raises(InvalidInputError, match="different weights"):
        readout.predict_set()
    with pytest.raises(InvalidInputError, match="different weights"):
        readout.predict_set(per_class=True)
    readout(h, data.y, torch.where(data.y == 0, 2.0, 1.0) * data.train_mask)  # The same within a class.
    with pytest.raises(InvalidInputError, match="per_class=True"):
        readout.predict_set()
    assert readout.predict_set(per_class=True).shape == (40, 3)
    readout.class_weight = "balanced"
    with pytest.raises(InvalidInputError, match="class_weight=None"):
        readout.predict_set()


def drawn(graph, draw, labels, stratified):
    """A graph of three blurred clusters of different sizes, labels drawn at random, and whether sets hold the class."""
    generator = torch.Generator().manual_seed(graph)
    y = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), 240, replacement=True, generator=generator)
    centres = torch.randn(3, 4, generator=generator)
    h = (centres[y] + 1.2 * torch.randn(240, 4, generator=generator)).double()
    order = torch.randperm(240, generator=torch.Generator().manual_seed(100 * graph + draw))
    chosen = torch.cat([order[y[order] == number][:labels] for number in range(3)]) if stratified else order[:labels]
    weight = "balanced" if stratified else None
    readout = SemiSupRKMReadout(4, 3, RBF(8.0), gram=LowRank(max_rank=60), class_weight=weight).double()
    readout(h, y, chosen)
    p = readout.p_values(per_class=stratified, randomize=True, seed=10_000 + 100 * graph + draw)
    free = torch.ones(240, dtype=torch.bool).index_fill(0, chosen, False)
    return p[free], y[free]


def within_two_standard_errors(rates, nominal):
    rates = torch.stack(rates)
    return bool(((rates.mean(dim=0) - nominal).abs() < 2 * rates.std(dim=0) / len(rates) ** 0.5).all())


def test_coverage_on_random_graphs():
    """Labels drawn uniformly, a fixed setting: ten draws on each of 20 graphs."""
    nominal, rates, sizes = torch.tensor([0.8, 0.9, 0.95]), [], []
    for graph in range(20):
        for draw in range(10):
            p, y = drawn(graph, draw, 40, stratified=False)
            sets = torch.stack([sets_of(p, float(coverage)) for coverage in nominal])
            rates.append(sets[:, torch.arange(len(y)), y].double().mean(dim=1))
            sizes.append(sets.sum(dim=2).double().mean(dim=1))
    assert within_two_standard_errors(rates, nominal)
    assert bool((torch.stack(sizes).mean(dim=0) < 2.7).all())  # It is not reached by naming all classes.


def test_coverage_of_every_class_with_labels_drawn_per_class():
    rates = []
    for graph in range(20):
        for draw in range(10):
            p, y = drawn(graph, draw, 14, stratified=True)
            holds = sets_of(p, 0.8)[torch.arange(len(y)), y]
            rates.append(torch.stack([holds[y == number].double().mean() for number in range(3)]))
    assert within_two_standard_errors(rates, 0.8)
