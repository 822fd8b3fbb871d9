import pytest
import torch

from torch_gckm.errors import InvalidInputError
from torch_gckm.select.unlabelled import suggest

# Three pairs of nodes, each pair in a direction of its own; the model knows the first pair.
EMBEDDING = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 1.0], [-1.0, 1.1], [-1.0, -1.0], [-1.0, -1.1]])
PROBABILITIES = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.5, 0.5], [0.55, 0.45], [0.6, 0.4], [0.65, 0.35]])


def test_doubted_nodes_that_differ():
    assert suggest(PROBABILITIES, [EMBEDDING], torch.tensor([0]), 2).tolist() == [2, 4]


def test_labelled_nodes_are_never_suggested():
    nodes = suggest(PROBABILITIES, [EMBEDDING, EMBEDDING], torch.tensor([2, 4]), 4)
    assert sorted(nodes.tolist()) == [0, 1, 3, 5]


def test_scale_of_an_embedding_does_not_matter():
    ours = suggest(PROBABILITIES, [EMBEDDING], torch.tensor([0]), 5)
    assert torch.equal(suggest(PROBABILITIES, [100 * EMBEDDING], torch.tensor([0]), 5), ours)


@pytest.mark.parametrize("count", [0, 6])
def test_bad_counts(count):
    with pytest.raises(InvalidInputError, match="1 to 5"):
        suggest(PROBABILITIES, [EMBEDDING], torch.tensor([0]), count)
