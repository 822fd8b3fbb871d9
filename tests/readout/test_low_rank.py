"""The readout's linear system with a low-rank kernel matrix."""

import pytest
import torch

from tests.gram.test_low_rank import FULL, features
from tests.readout.conftest import labels
from torch_gckm.errors import DegreeError, GCKMWarning, SingularReadoutError
from torch_gckm.gram import Dense, LowRank
from torch_gckm.kernels import RBF, Laplacian, Linear, Precomputed, as_rows
from torch_gckm.nn import SemiSupRKMReadout
from torch_gckm.readout import ExactSolution, LowRankSolution, solve


class TestFullRankEqualsExact:
    def test_solution_and_its_response(self):
        x, problem = features(), labels()
        ours = solve(FULL.uncentred(RBF(3.0), as_rows(x)), problem)
        theirs = solve(Dense().uncentred(RBF(3.0), as_rows(x)), problem)
        assert isinstance(ours, LowRankSolution)
        assert isinstance(theirs, ExactSolution)
        torch.testing.assert_close(ours.alpha(), theirs.alpha(), rtol=1e-6, atol=1e-6)
        for name in ("scores", "bias", "r", "degrees"):
            torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(ours.product(), theirs.product(), rtol=1e-6, atol=1e-6)
        index = torch.arange(9)
        torch.testing.assert_close(ours.response(index), theirs.response(index), rtol=1e-6, atol=1e-6)

    def test_gradient_of_scores(self):
        x = features(30, 3).requires_grad_()
        gradients = []
        for gram in (LowRank(max_rank=30, tol=0.0), Dense()):
            scores = solve(gram.uncentred(RBF(3.0), as_rows(x)), labels(30)).scores
            gradients.append(torch.autograd.grad(scores.square().sum(), [x])[0])
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-6)

    def test_views_are_multiplied(self, graph64):
        kernel = RBF(0.5) * Laplacian(10.0).on("x")
        views = {"h": graph64.x[:, :3], "x": graph64.x}
        ours = SemiSupRKMReadout(3, 3, kernel=kernel, gram=FULL).double()(views, graph64.y, graph64.train_mask)
        theirs = SemiSupRKMReadout(3, 3, kernel=kernel, gram="dense").double()(views, graph64.y, graph64.train_mask)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_exact_for_the_corrected_matrix():
    """The exact readout of F F' + diag(delta) has the same solution."""
    x, problem = features(), labels()
    gram = LowRank(max_rank=15, tol=0.0).uncentred(RBF(1.0), as_rows(x))
    panel = gram.factor()
    matrix = panel.values @ panel.values.t() + torch.diag(panel.residual)
    torch.testing.assert_close(matrix.diagonal(), torch.ones(80, dtype=torch.float64))
    numbers = torch.arange(80, dtype=torch.float64).unsqueeze(1)
    ours, theirs = solve(gram, problem), solve(Dense().uncentred(Precomputed(matrix), as_rows(numbers)), problem)
    index = torch.tensor([0, 4, 7])
    torch.testing.assert_close(ours.scores, theirs.scores)
    torch.testing.assert_close(ours.alpha(), theirs.alpha())
    torch.testing.assert_close(ours.response(index), theirs.response(index))
    torch.testing.assert_close(LowRankSolution(panel, problem).scores, ours.scores)


def test_converges_as_the_tolerance_falls():
    x, problem = features(300, 3), labels(300)
    exact = solve(Dense().uncentred(RBF(2.0), as_rows(x)), problem).scores
    errors = []
    for tol in (0.1, 1e-2, 1e-4, 1e-7):
        gram = LowRank(max_rank=300, tol=tol).uncentred(RBF(2.0), as_rows(x))
        errors.append(float((solve(gram, problem).scores - exact).abs().max()))
    assert errors[-1] < 1e-4 < errors[0]


def test_leverage_is_the_diagonal_of_the_response(monkeypatch):
    solution = solve(LowRank(max_rank=20).uncentred(RBF(3.0), as_rows(features())), labels())
    index = torch.tensor([0, 5, 8])
    torch.testing.assert_close(solution.leverage(index), solution.response(index).diagonal())
    monkeypatch.setattr("torch_gckm.readout.solutions._ROWS", 2)  # Parts of the labelled nodes at a time.
    torch.testing.assert_close(solution.leverage(index), solution.response(index).diagonal())
    again = solve(LowRank(max_rank=20).uncentred(RBF(3.0), as_rows(features())), labels())
    torch.testing.assert_close(again.scores, solution.scores)


def test_gradcheck_of_scores():
    x = features(16, 3).requires_grad_()
    marks = torch.tensor([3, 11, 7, 0])

    def scores(x):
        return solve(LowRank().uncentred(RBF(3.0), as_rows(x), landmarks=marks), labels(16)).scores

    assert torch.autograd.gradcheck(scores, (x,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_nodes_that_no_landmark_reaches_stay_finite_and_are_named(dtype):
    """A narrow kernel: the rows of F are zero for five nodes, and eta lambda1 = 1 would divide by them."""
    x = torch.cat([0.1 * features(30, 1), 1e3 * torch.arange(1, 6).unsqueeze(1)]).to(dtype)
    problem = labels(35, eta=1.0, lambda1=1.0, lambda2=0.1)
    gram = LowRank().uncentred(RBF(1.0), as_rows(x), landmarks=torch.tensor([0, 4, 9, 20]))
    with pytest.warns(GCKMWarning, match="5 nodes to no other .first: node 30"):
        solution = solve(gram, problem)
    assert bool(solution.scores.isfinite().all())


def test_rank_is_raised_where_it_makes_degrees_negative():
    """Exactly, node 1 is similar to the others; seen through the first coordinate alone it is not."""
    x = torch.ones(40, 2, dtype=torch.float64)
    x[0], x[1] = torch.tensor([1.0, 0.0]), torch.tensor([-0.1, 1.0])
    gram = LowRank().uncentred(Linear(), as_rows(x), landmarks=torch.tensor([0]))
    exact = solve(Dense().uncentred(Linear(), as_rows(x)), labels(40))
    torch.testing.assert_close(solve(gram, labels(40)).scores, exact.scores)
    assert gram.landmarks.numel() == 2


def test_degrees_that_are_zero_up_to_rounding_end_in_an_error():
    """The rank cannot be raised: the matrix has no more directions."""
    for seed in range(4):
        x = torch.randn(200, 4, generator=torch.Generator().manual_seed(seed))
        with pytest.raises(DegreeError):
            solve(LowRank().uncentred(Linear(), as_rows(x - x.mean(dim=0))), labels(200))


def test_degrees_that_are_negative_exactly_are_refused():
    x = torch.tensor([[-1.0]] + [[1.0]] * 9, dtype=torch.float64)
    with pytest.raises(DegreeError, match="node 0"):
        solve(LowRank().uncentred(Linear(), as_rows(x)), labels(10))


def test_unlabelled_components_at_full_rank_are_singular():
    x = torch.cat([0.1 * features(9, 1), 1e3 * torch.arange(1, 4, dtype=torch.float64).unsqueeze(1)])
    y = torch.full((12,), -1)
    y[:4] = torch.tensor([0, 1, 0, 1])
    with pytest.raises(SingularReadoutError, match="singular"):
        SemiSupRKMReadout(1, 2, kernel=RBF(1.0), gram=FULL).double()(x, y)
