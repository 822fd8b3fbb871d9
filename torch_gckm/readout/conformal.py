r"""Full conformal prediction without a calibration set.

For a node :math:`j` and a class :math:`c` suppose that the label of :math:`j` were :math:`c`. How well every labelled
node, and :math:`j`, fits its class is measured by its score of that class, computed without its own label;
:mod:`torch_gckm.readout.updates` has these scores :math:`s` in closed form. If the labelled nodes and :math:`j` could
come in any order with the same probability, the rank of :math:`j` among them is uniform, which makes

.. math:: p_j(c) = \frac{1 + |\{i: s_i \le s_j\}|}{1 + b}

a p-value for :math:`b` labels: if :math:`c` is the class of :math:`j`, it is at most :math:`\epsilon` with a
probability of at most :math:`\epsilon`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import blocks
from torch_gckm.errors import InvalidInputError
from torch_gckm.readout.problem import ReadoutSolution
from torch_gckm.readout.updates import AddedLabels

_ARRAYS = 4  # Arrays of a block that are there at the same time.


@dataclass(frozen=True)
class Machine:
    """A solved readout; the scores of several ones, solved for the same labels, are averaged."""

    solution: ReadoutSolution
    codes: Tensor  # Of all classes, [num_classes, p].
    spread: float = 1.0  # What its class scores are divided by.

    @property
    def directions(self) -> Tensor:
        """What the scores ``[n, p]`` are multiplied by to get class scores, ``[num_classes, p]``."""
        codes = self.codes.double()
        positive = (codes > 0).double()
        is_one_vs_all = torch.equal(positive, torch.eye(*codes.shape, dtype=codes.dtype, device=codes.device))
        return (positive if is_one_vs_all else codes / codes.size(1)) / self.spread


@torch.no_grad()
def p_values(
    machines: Sequence[Machine], classes: Tensor, *, per_class: bool = False, randomize: bool = False, seed: int = 0
) -> Tensor:
    """The p-value of every class of every node, ``[n, num_classes]``; of labelled nodes 1 for their own, else 0.

    A further label has the weight that the labels of its class have. Beside the columns and the diagonal of :math:`G`,
    time is ``O(n b num_classes)`` for ``b`` labels; nodes are taken a block at a time.

    Args:
        machines: Readouts solved for the same labels, with features that do not depend on labels.
        classes: The class of every node, ``[n]``, -1 for unlabelled ones.
        per_class: Compare a node with the labels of the supposed class only.
        randomize: Replace the rank by a random number between it and the next smaller one, so that p-values are
            exactly uniform.
        seed: The seed of the random numbers, one per node.
    """
    count, labels = machines[0].codes.size(0), classes[classes >= 0]
    weights = [_exchangeable_weights(machine.solution, classes, count) for machine in machines]
    added = [AddedLabels(machine.solution, machine.directions[labels]) for machine in machines]
    chance = panels.random_order(classes.numel(), seed).double().to(classes.device)
    result = torch.nn.functional.one_hot(classes.clamp(min=0), count).double()
    free = panels.rows_where(classes < 0)
    for block in blocks(free.numel(), _ARRAYS * len(machines) * labels.numel()):
        nodes = free[block]
        at = [part.candidates(nodes) for part in added]
        own = panels.accumulate(
            part.scores @ machine.directions.t() / len(machines) for part, machine in zip(at, machines, strict=True)
        )
        for number in range(count):
            theirs = torch.zeros(nodes.numel(), labels.numel(), dtype=own.dtype, device=own.device)
            for part, where, machine, weight in zip(added, at, machines, weights, strict=True):
                theirs += part.withheld(where, machine.codes[number], float(weight[number])) / len(machines)
            if per_class:
                theirs = theirs[:, labels == number]
            ours = own[:, number : number + 1]
            below, equal = (theirs < ours).sum(dim=1), 1.0 + (theirs == ours).sum(dim=1).double()
            rank = below + (chance[nodes] * equal if randomize else equal)
            result[nodes, number] = rank / (1.0 + theirs.size(1))
    return result


def sets_of(p: Tensor, coverage: float) -> Tensor:
    """The classes with a p-value above ``1 - coverage``, boolean ``[n, num_classes]``."""
    if not 0.0 < coverage < 1.0:
        raise InvalidInputError(f"'coverage' must be between 0 and 1, got {coverage}")
    return p > 1.0 - coverage + 1e-9  # 1 - 0.9 is a little less than 0.1, which 2 of 20 ranks may be.


def label_weights(solution: ReadoutSolution, classes: Tensor, count: int) -> Tensor:
    """The mean weight of the labels of every class, ``[num_classes]``; the mean of all for classes without a label."""
    index = panels.rows_where(classes >= 0)
    sums = panels.sums_by(classes[index], solution.problem.weight[index].double(), count)
    each = sums / panels.counts(classes[index], count)
    return torch.where(each.isnan(), each.nanmean(), each)


def _exchangeable_weights(solution: ReadoutSolution, classes: Tensor, count: int) -> Tensor:
    """The weight of a label of every class, which all of its labels must have."""
    index, each = panels.rows_where(classes >= 0), label_weights(solution, classes, count)
    weight = solution.problem.weight[index].double()
    if not panels.holds_everywhere((weight - each[classes[index]]).abs() <= 1e-5 * weight):
        raise InvalidInputError(
            "prediction sets need labels that could be exchanged, but those of one class have different weights; "
            "use a boolean train_mask"
        )
    return each
