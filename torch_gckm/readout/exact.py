r"""The readout's linear system with an exact kernel matrix."""

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from torch_gckm.errors import SingularReadoutError
from torch_gckm.readout.lu import lu_unless_singular, solve_with_factors
from torch_gckm.readout.problem import ReadoutProblem, ReadoutSolution, check_degrees

_SMALLEST_RCOND = 1e-13


class ExactSolution(ReadoutSolution):
    r"""LU of the bordered system in the unknowns :math:`a / \eta` and :math:`b`, where :math:`a = R H`.

    .. math::
        \begin{bmatrix} \eta I - R K & -r \\ 1' & 0 \end{bmatrix}
        \begin{bmatrix} a / \eta \\ b' \end{bmatrix} =
        \begin{bmatrix} S \\ 0 \end{bmatrix}, \qquad
        E = \begin{bmatrix} K & 1 \end{bmatrix}
        \begin{bmatrix} a / \eta \\ b' \end{bmatrix}, \qquad S = L C / \lambda_2

    It is the paper's bordered system with its rows scaled by :math:`-R`, so that
    :math:`r_i = 0` is no exception. The factors serve the scores, the
    leave-out blocks and the backward pass.
    """

    def __init__(self, matrix: Tensor, problem: ReadoutProblem) -> None:
        self.degrees = matrix.sum(dim=1)
        check_degrees(self.degrees)
        self.problem = problem
        self.r = problem.r(self.degrees)
        self._bordered = torch.nn.functional.pad(matrix, (0, 1, 0, 1), value=1.0)
        del matrix  # The bordered copy replaces it: n x n arrays are what memory goes to.
        system = torch.cat([-self.r, self.r.new_ones(1)]).unsqueeze(1) * self._bordered
        system.diagonal()[:-1].add_(problem.eta)
        system[-1, -1] = 0.0
        self._factors = self._factorise(system.detach())
        # Without gradients the factors are all that is needed: an n x n array less to keep.
        self._system = system if system.requires_grad else self._factors[0]
        self.alpha, self.bias, self.scores = self._apply(problem.labels(system.dtype))

    def response(self, index: Tensor) -> Tensor:
        unit = torch.zeros(self.r.size(0), index.size(0), dtype=self.r.dtype, device=self.r.device)
        unit[index, torch.arange(index.size(0), device=index.device)] = 1.0
        return self._apply(unit)[2][index]

    def _apply(self, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        right = torch.nn.functional.pad(labels, (0, 0, 0, 1))
        solution: Tensor = solve_with_factors(self._system, self._factors, right)
        return solution[:-1] * self.problem.eta, solution[-1], (self._bordered @ solution)[:-1]

    def _factorise(self, system: Tensor) -> tuple[Tensor, Tensor]:
        factors = lu_unless_singular(system, _SMALLEST_RCOND)
        if factors is None:
            raise SingularReadoutError(_describe_singularity(self._bordered.detach()[:-1, :-1], self.problem))
        return factors


def _describe_singularity(matrix: Tensor, problem: ReadoutProblem) -> str:
    scale = matrix.diagonal().abs().sqrt()
    linked = matrix.abs() > 1e-12 * scale.unsqueeze(1) * scale
    _, component = connected_components(csr_matrix(linked.cpu().numpy()), directed=False)
    labelled = set(component[(problem.weight > 0).cpu().numpy()].tolist())
    lonely, nodes = np.unique(component, return_index=True)
    unlabelled = [int(node) for group, node in zip(lonely, nodes, strict=True) if group not in labelled]
    advice = "widen the kernel's bandwidth, label one of these nodes, or move eta * lambda1 away from 1"
    if len(unlabelled) >= 2:
        return (
            f"the readout has no unique solution: {len(unlabelled)} groups of nodes are joined to no labelled node by "
            f"the kernel (for example nodes {unlabelled[0]} and {unlabelled[1]}); {advice}"
        )
    return (
        f"the readout's linear system is singular at eta = {problem.eta:g}, lambda1 = {problem.lambda1:g}, "
        f"lambda2 = {problem.lambda2:g}; change one of them, or the kernel's bandwidth"
    )
