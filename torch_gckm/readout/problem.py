r"""The readout's linear system: its data, and what a solution knows."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import DegreeError


@dataclass(frozen=True)
class ReadoutProblem:
    r"""The data of the semi-supervised readout: label weights :math:`l`, class codes :math:`C` and hyperparameters.

    The weights, ``[n]``, are zero for unlabelled nodes, whose rows of the codes, ``[n, p]``, do not matter.
    """

    weight: Tensor
    codes: Tensor
    eta: float
    lambda1: float
    lambda2: float

    def r(self, degrees: Tensor) -> Tensor:
        r""":math:`r_i = v_i / \lambda_1 - l_i / \lambda_2` with :math:`v_i` the inverse degree, ``[n]``."""
        return 1.0 / (self.lambda1 * degrees) - self.weight.to(degrees) / self.lambda2

    def labels(self, dtype: torch.dtype) -> Tensor:
        r"""The label term :math:`S = L C / \lambda_2`, ``[n, p]``."""
        return self.weight.to(dtype).unsqueeze(1) * self.codes.to(dtype) / self.lambda2


class ReadoutSolution(ABC):
    """The solution of the readout's linear system, differentiable in the features."""

    problem: ReadoutProblem
    scores: Tensor  # E, [n, p].
    alpha: Tensor  # a = R H, [n, p].
    bias: Tensor  # b, [p].
    r: Tensor  # The diagonal of R, [n].
    degrees: Tensor  # The kernel degrees K 1, [n].

    def product(self) -> Tensor:
        r""":math:`K a`, ``[n, p]``, which the scores :math:`E = K a / \eta + 1 b'` contain."""
        return self.problem.eta * (self.scores - self.bias)

    @abstractmethod
    def response(self, index: Tensor) -> Tensor:
        r"""The block :math:`G_{BB}`, ``[b, b]``, of the symmetric map :math:`E = G S` from labels to scores.

        It reuses the factorisation of the solve: one right-hand side per node.
        """

    def leverage(self, index: Tensor) -> Tensor:
        r"""The diagonal of :meth:`response`, ``[b]``."""
        return self.response(index).diagonal()


def check_degrees(degrees: Tensor) -> None:
    """Refuse nodes whose kernel degree is not positive, naming the first."""
    bad = ~(degrees > 0)
    if panels.holds_somewhere(bad):
        node = panels.first(bad)
        raise DegreeError(
            f"node {node} has the kernel degree {float(degrees[node]):.3g} ({panels.count(bad)} nodes are not "
            "positive); the readout weighs nodes by 1/degree: use a kernel with positive values, such as RBF"
        )
