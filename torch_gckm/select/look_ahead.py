r"""Which label would tell most? Every unlabelled node is tried, with every class that it may have.

A further label changes the scores of a solved readout in closed form, see :mod:`torch_gckm.readout.updates`. So the
error that a model expects to make once the label of node :math:`j` is known,

.. math::
    \sum_c P(y_j = c) \, \frac{1}{|Q|} \sum_{q \in Q} \bigl(1 - \max_s P_{j, c}(y_q = s)\bigr),

needs no solve: :math:`P_{j, c}` are the probabilities after :math:`j` got the label :math:`c`, :math:`Q` random nodes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import blocks
from torch_gckm.readout import Machine, step_of

_SHORTLIST = 100  # Nodes that are tried again after each choice, or four times as many as are asked for.


@dataclass(frozen=True)
class Asked:
    """What a label would be like: its code and weight, and how scores become probabilities."""

    codes: Tensor  # As class scores, [num_classes, num_classes].
    weight: Tensor  # Of a label of every class, divided by lambda2, [num_classes].
    temperature: float  # What class scores are multiplied by before a softmax.


@dataclass
class Situation:
    """Candidates, nodes to judge by, and what the labels of the former do to the scores of the latter."""

    chances: Tensor  # Probabilities of the candidates' classes, [r, num_classes].
    scores: Tensor  # Class scores of the candidates, [r, num_classes].
    leverage: Tensor  # Their diagonal of G, [r].
    judged: Tensor  # Class scores of the nodes to judge by, [q, num_classes].
    columns: Tensor  # G between the candidates and these, [r, q].

    def expected_error(self, asked: Asked) -> Tensor:
        """The expected error on the nodes to judge by after the label of each candidate is known, ``[r]``."""
        result = torch.zeros_like(self.leverage)
        for number, code in enumerate(asked.codes):
            gain = step_of(self.leverage, float(asked.weight[number])).unsqueeze(1) * self.columns
            moved = self.judged + gain.unsqueeze(2) * (code - self.scores).unsqueeze(1)
            # The largest probability is 1 / sum exp(score - largest score).
            moved = moved.sub_(moved.amax(dim=2, keepdim=True)).mul_(asked.temperature).exp_()
            result += self.chances[:, number] * (1.0 - moved.sum(dim=2).reciprocal_().mean(dim=1))
        return result

    def answered(self, place: int, between: Tensor, asked: Asked) -> None:
        """Give a candidate its most likely label; probabilities, and G ``between`` all candidates, change with it."""
        number = int(self.chances[place : place + 1].argmax(dim=1))
        step = step_of(self.leverage[place], float(asked.weight[number]))
        own, theirs = between[:, place].clone(), self.columns[place].clone()
        change = step * (asked.codes[number] - self.scores[place]).unsqueeze(0)
        moved = own.unsqueeze(1) * change
        self.chances = (self.chances.log() + asked.temperature * moved).softmax(dim=1)
        self.scores = self.scores + moved
        self.judged = self.judged + theirs.unsqueeze(1) * change
        self.columns = self.columns - step * own.unsqueeze(1) * theirs
        self.leverage = self.leverage - step * own.square()
        between -= step * own.unsqueeze(1) * own


@torch.no_grad()
def look_ahead(
    machine: Machine,
    probabilities: Tensor,
    labelled: Tensor,
    weight: Tensor,
    count: int,
    temperature: float,
    *,
    judges: int = 2000,
    seed: int = 0,
) -> Tensor:
    """The unlabelled nodes whose labels leave the least expected error, ``[count]``, the best first.

    All of them are tried once. The best are tried again after each choice, as if the chosen node had its most likely
    label: so the next one tells something else.

    Args:
        machine: A solved readout.
        probabilities: Calibrated probabilities of all nodes, ``[n, num_classes]``.
        labelled: The labelled nodes.
        weight: The weight of a label of every class, ``[num_classes]``.
        count: How many nodes.
        temperature: What the readout's class scores are multiplied by before a softmax.
        judges: By how many random nodes the error is judged.
        seed: Their seed.
    """
    solution, directions = machine.solution, machine.directions
    scores, chances = (solution.scores.double() @ directions.t()).float(), probabilities.float()
    codes = (machine.codes.double() @ directions.t()).float()
    asked = Asked(codes, (weight / solution.problem.lambda2).float(), temperature)
    judged = panels.lowest(panels.random_order(scores.size(0), seed), judges).to(scores.device)
    columns, free = solution.columns(judged), torch.ones_like(scores[:, 0], dtype=torch.bool)
    candidates = panels.rows_where(free.index_fill(0, labelled, False))

    def situation(nodes: Tensor) -> Situation:
        leverage, part = solution.leverage(nodes).float(), columns(nodes).float()
        return Situation(chances[nodes], scores[nodes], leverage, scores[judged], part)

    errors = scores.new_empty(candidates.numel())
    for block in blocks(candidates.numel(), judged.numel() * codes.size(0)):
        errors[block] = situation(candidates[block]).expected_error(asked)
    best = candidates[panels.lowest(errors, max(_SHORTLIST, 4 * count))]
    left, between, chosen = situation(best), solution.response(best).float(), list[int]()
    for _ in range(count):
        remaining = left.expected_error(asked).index_fill(0, torch.tensor(chosen, dtype=torch.long), torch.inf)
        chosen.append(int(panels.lowest(remaining, 1)))
        left.answered(chosen[-1], between, asked)
    return best[chosen]
