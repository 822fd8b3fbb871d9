r"""Which label would tell most? What any label would change is known without a solve.

In a solved readout scores are :math:`E = G L C / \lambda_2`. As in the posterior covariance of a Gaussian process,
:math:`G_{qq}` says how much of the score of node :math:`q` is still open, and a label of node :math:`j` with the weight
:math:`w` takes some of it away, whatever the label is (:mod:`torch_gckm.readout.updates`):

.. math::
    G' = G - \kappa_j\, G_{:j} G_{:j}', \qquad \kappa_j = \frac{w / \lambda_2}{1 + G_{jj} w / \lambda_2}.

So the label of :math:`j` settles :math:`\kappa_j \sum_{q \in Q} u_q G_{qj}^2`, where
:math:`u_q = 1 - \max_c P(y_q = c)` is how unsure the model is about node :math:`q`, and :math:`Q` are random nodes. Of
several nodes to be labelled together, each next one is chosen by the :math:`G'` of those before, which needs no guess
of their labels: two nodes that would tell the same are not both chosen.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import blocks
from torch_gckm.readout import ReadoutSolution, step_of


@dataclass(frozen=True)
class Suggestion:
    """A node to label next, and what its label would settle."""

    node: int
    settled: float  # The share of all that is open, weighted by how unsure the model is.


@torch.no_grad()
def look_ahead(
    solution: ReadoutSolution,
    doubt: Tensor,
    labelled: Tensor,
    weight: Tensor,
    count: int,
    *,
    judges: int = 2000,
    seed: int = 0,
) -> list[Suggestion]:
    """The unlabelled nodes whose labels settle most, the best first; after each, all others are looked at again.

    With ``m`` landmarks and ``r`` judging nodes time is ``O(n m r)`` once, and ``O(n m)`` per suggestion.

    Args:
        solution: A solved readout.
        doubt: How unsure the model is about every node, ``[n]``.
        labelled: The labelled nodes.
        weight: The weight that a label of each node would have, ``[n]``.
        count: How many nodes.
        judges: By how many random nodes labels are judged.
        seed: Their seed.
    """
    size, doubt = doubt.size(0), doubt.double()
    judged = panels.lowest(panels.random_order(size, seed), judges).to(doubt.device)
    columns, unsure, everyone = solution.columns(judged), doubt[judged], torch.arange(size, device=doubt.device)
    settled, leverage = torch.empty_like(doubt), torch.empty_like(doubt)
    for block in blocks(size, judged.numel()):
        settled[block] = columns(everyone[block]).double().square() @ unsure
        leverage[block] = solution.leverage(everyone[block]).double()
    weight, whole = weight.double() / solution.problem.lambda2, float(unsure @ leverage[judged].clamp(min=0.0))
    chosen: list[Suggestion] = []
    removed: list[tuple[float, Tensor]] = []  # Steps, and columns of G at the time of each.
    for _ in range(count):
        gain = torch.where(leverage > 0.0, step_of(leverage, weight) * settled, 0.0)
        gain[labelled] = -torch.inf
        gain[[choice.node for choice in chosen]] = -torch.inf
        node = int(panels.place_of_largest(gain))
        chosen.append(Suggestion(node, float(gain[node]) / whole if whole > 0.0 else 0.0))
        step = float(step_of(leverage[node], weight[node]))
        column = solution.columns(everyone[node : node + 1])(everyone).double().squeeze(1)
        for known, other in removed:
            column -= known * other[node] * other
        own = unsure * column[judged]
        spread = solution.answer(judged, own.unsqueeze(1)).squeeze(1)  # G between all nodes and these, times `own`.
        for known, other in removed:
            spread -= known * (other[judged] @ own) * other
        settled -= step * column * (2.0 * spread - step * (column[judged] @ own) * column)
        leverage -= step * column.square()
        removed.append((step, column))
    return chosen
