r"""What one more label changes: the solution of a readout is linear in the labels, so the answer has a closed form.

Scores are :math:`E = G L C / \lambda_2` with a symmetric :math:`G`. Let node :math:`j` get a label with the code
:math:`c` and the weight :math:`w`. With :math:`g_j = w G_{jj} / \lambda_2` and
:math:`\kappa = (w / \lambda_2) / (1 + g_j)`, a new solve would find

.. math::
    E' = E + \kappa\, G_{:j} (c - E_j)', \qquad G' = G - \kappa\, G_{:j} G_{:j}'.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import row_dots
from torch_gckm.readout.problem import ReadoutSolution


def step_of(leverage: Tensor, weight: float | Tensor) -> Tensor:
    r""":math:`\kappa` of nodes with the diagonal entries :math:`G_{jj}`; ``weight`` is :math:`w / \lambda_2`."""
    return weight / (1.0 + weight * leverage)


@dataclass(frozen=True)
class Candidates:
    """Nodes without a label, and what is known about them before one of them gets it."""

    scores: Tensor  # E, [r, p].
    leverage: Tensor  # The diagonal of G, [r].
    columns: Tensor  # G between them and the labelled nodes, [r, b].
    looked_at: Tensor  # Their scores along the directions of the labelled nodes, [r, b].


class AddedLabels:
    r"""Scores of labelled nodes, each without its own label, after one more node got a label.

    Of the scores of labelled node :math:`i` only their inner product with a direction :math:`d_i` is computed.

    Args:
        solution: A solved readout; all that does not depend on the added label is computed once.
        directions: The directions of the labelled nodes, ``[b, p]``, in increasing order of the nodes.
    """

    @torch.no_grad()
    def __init__(self, solution: ReadoutSolution, directions: Tensor) -> None:
        problem = solution.problem
        index = panels.rows_where(problem.weight > 0)
        self._solution, self._directions = solution, directions.double()
        self._scores = row_dots(solution.scores[index].double(), self._directions)
        self._codes = row_dots(problem.codes[index].double(), self._directions)
        self._weight = problem.weight[index].double() / problem.lambda2
        self._leverage = solution.leverage(index).double()
        self._columns = solution.columns(index)

    @torch.no_grad()
    def candidates(self, nodes: Tensor) -> Candidates:
        """Some nodes without a label, ``[r]``."""
        scores, leverage = self._solution.scores[nodes].double(), self._solution.leverage(nodes).double()
        return Candidates(scores, leverage, self._columns(nodes).double(), scores @ self._directions.t())

    @torch.no_grad()
    def withheld(self, at: Candidates, code: Tensor, weight: float) -> Tensor:
        r"""Scores of labelled nodes without their own labels, had one of the candidates a label, ``[r, b]``.

        With :math:`g'_i = l_i G'_{ii} / \lambda_2` they are :math:`d_i' (E'_i - g'_i c_i) / (1 - g'_i)`. The
        candidate itself has the scores :math:`E_j` without its own label.

        Args:
            at: The nodes that get the label, one at a time.
            code: The code :math:`c` of the label, ``[p]``.
            weight: Its weight :math:`w`.
        """
        gain = step_of(at.leverage, weight / self._solution.problem.lambda2).unsqueeze(1) * at.columns
        leverage = (self._leverage - gain * at.columns) * self._weight
        moved = self._scores + gain * (self._directions @ code.double() - at.looked_at)
        return (moved - leverage * self._codes) / (1.0 - leverage)
