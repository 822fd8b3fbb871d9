"""Solve the readout's linear system with a kernel matrix of any kind."""

from torch_gckm.gram import Gram
from torch_gckm.readout.exact import ExactSolution
from torch_gckm.readout.low_rank import LowRankSolution
from torch_gckm.readout.problem import ReadoutProblem, ReadoutSolution


def solve(gram: Gram, problem: ReadoutProblem) -> ReadoutSolution:
    """Solve, differentiably: by the factor of a low-rank matrix, or with every entry of an exact one."""
    panel = gram.panel()
    return ExactSolution(gram.matrix(), problem) if panel is None else LowRankSolution(panel, problem)
