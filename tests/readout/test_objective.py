"""The dual objective of the readout, with the dual variables fixed."""

import pytest
import torch

from tests.readout.conftest import ETA, LAMBDA2, labels, paper, solved
from torch_gckm.errors import InvalidInputError
from torch_gckm.gram import Dense, LowRank
from torch_gckm.kernels import RBF, as_rows
from torch_gckm.readout import dual_objective, solve


def test_value_and_gradient_with_the_duals_fixed():
    readout, _, h, data = solved(14)
    moved = (h + 0.1).requires_grad_()
    duals = readout.h.detach().clone()

    def formula(h):
        k, r, label, c, _, _ = paper(h, data)
        value = -torch.trace(duals.t() @ r @ k @ r @ duals) / (2 * ETA) + torch.trace(duals.t() @ r @ duals) / 2
        return value - torch.trace(duals.t() @ label @ c) / LAMBDA2

    torch.testing.assert_close(readout.loss(moved), formula(moved))
    (ours,) = torch.autograd.grad(readout.loss(moved), [moved])
    (theirs,) = torch.autograd.grad(formula(moved), [moved])
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("gram", [Dense(), LowRank(max_rank=15)], ids=["exact", "low_rank"])
def test_a_solution_saves_computing_what_it_knows(gram):
    _, _, h, _ = solved()
    problem, tracked = labels(40), h.clone().requires_grad_()
    matrix = gram.uncentred(RBF(4.0), as_rows(h))
    solution = solve(matrix, problem)
    duals = solution.alpha() / solution.r.unsqueeze(1)
    values, gradients = [], []
    for known in (solution, None):
        value = dual_objective(matrix, as_rows(tracked), problem, duals, known)
        values.append(value.detach())
        gradients.append(torch.autograd.grad(value, [tracked])[0])
    torch.testing.assert_close(values[0], values[1])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_duals_that_are_not_defined_are_named():
    _, _, h, _ = solved()
    duals = torch.ones(40, 3, dtype=torch.float64)
    duals[7] = torch.inf
    with pytest.raises(InvalidInputError, match="dual variables of node 7"):
        dual_objective(Dense().uncentred(RBF(4.0), as_rows(h)), as_rows(h), labels(40), duals)
