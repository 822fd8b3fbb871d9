import pytest
import torch

from torch_gckm.errors import InvalidInputError
from torch_gckm.select.suggestions import explain

PROBABILITIES = torch.tensor([[0.9, 0.06, 0.04], [0.3, 0.45, 0.25], [0.34, 0.33, 0.33], [0.05, 0.5, 0.45]])


def test_reasons():
    found = explain(PROBABILITIES, torch.tensor([3, 0, 1]), ["ant", "bee", "cat"])
    assert [one.node for one in found] == [3, 0, 1]
    assert [one.guess for one in found] == ["bee", "ant", "bee"]
    assert [one.second for one in found] == ["cat", "bee", "ant"]
    assert found[0].probability == pytest.approx(0.5)
    assert found[0].second_probability == pytest.approx(0.45)
    assert found[0].words == "unsure between bee and cat"
    assert found[1].words == "probably ant; nodes like it depend on its label"
    assert found[2].between == ("bee", "ant", "cat")
    assert found[2].words == "unsure between bee, ant and cat"


def test_two_classes_of_any_kind():
    (found,) = explain(torch.tensor([[0.6, 0.4]]), [0], [10, 20])
    assert (found.guess, found.second, found.between) == (10, 20, (10, 20))
    assert explain(torch.tensor([[0.6, 0.4]]), [], [10, 20]) == []


@pytest.mark.parametrize("nodes", [[4], [-1], [0.5]])
def test_nodes_that_there_are_not(nodes):
    with pytest.raises(InvalidInputError, match="from 0 to 3"):
        explain(PROBABILITIES, nodes, ["ant", "bee", "cat"])
