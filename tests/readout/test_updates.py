"""One more label against solving again with it."""

import pytest
import torch

from tests.readout.conftest import ETA, LAMBDA1, LAMBDA2, solved
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.nn import SemiSupRKMReadout
from torch_gckm.readout import AddedLabels, step_of

FULL_RANK = LowRank(max_rank=60, tol=1e-13)
CODE = torch.tensor([[1.0, 1.0, -1.0, 1.0], [1.0, -1.0, 1.0, -1.0], [-1.0, 1.0, 1.0, 1.0]])


def again(h, y, weight, code):
    options = {"kernel": RBF(4.0), "eta": ETA, "lambda1": LAMBDA1, "lambda2": LAMBDA2, "gram": "dense", "code": code}
    readout = SemiSupRKMReadout(8, 3, **options).double()
    return readout, readout(h, y, weight)


@pytest.mark.parametrize("gram", ["dense", FULL_RANK])
@pytest.mark.parametrize("code", ["one_vs_all", "binary", CODE])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_leave_out_scores_after_one_more_label(gram, code, weight):
    readout, scores, h, data = solved(30, gram=gram, code=code)
    given = torch.zeros(30, dtype=torch.float64)
    given[:6] = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.1, 1.0])
    scores = readout(h, data.y, given)
    nodes = torch.tensor([7, 20, 29])
    for column in range(scores.size(1)):
        directions = torch.eye(scores.size(1), dtype=torch.float64)[column].expand(6, -1)
        added = AddedLabels(readout.fit.solution, directions)
        for number in range(3):
            ours = added.withheld(added.candidates(nodes), readout.codes[number], weight)
            for place, node in enumerate(nodes.tolist()):
                y, more = data.y.clone(), given.clone()
                y[node], more[node] = number, weight
                left_out = again(h, y, more, code)[0].leave_one_out()[:, column]
                torch.testing.assert_close(ours[place], left_out[:6], atol=1e-8, rtol=0)
                torch.testing.assert_close(scores[node, column], left_out[6], atol=1e-8, rtol=0)


@pytest.mark.parametrize("gram", ["dense", FULL_RANK])
def test_scores_of_all_nodes_after_one_more_label(gram):
    readout, scores, h, data = solved(30, gram=gram)
    solution, node, everyone = readout.fit.solution, torch.tensor([20]), torch.arange(30)
    column = solution.columns(node)(everyone)
    step = step_of(solution.leverage(node), 0.7 / LAMBDA2)
    ours = scores + step * column * (readout.codes[2] - scores[20])
    y, weight = data.y.clone(), data.train_mask.double()
    y[20], weight[20] = 2, 0.7
    other, expected = again(h, y, weight, "one_vs_all")
    torch.testing.assert_close(ours, expected, atol=1e-8, rtol=0)
    theirs = other.fit.solution.leverage(everyone)
    torch.testing.assert_close(solution.leverage(everyone) - step * column.square()[:, 0], theirs, atol=1e-8, rtol=0)


@pytest.mark.parametrize("gram", ["dense", FULL_RANK])
def test_columns_are_taken_some_rows_at_a_time(gram):
    solution = solved(30, gram=gram)[0].fit.solution
    index, rows = torch.tensor([3, 0, 17]), torch.tensor([17, 4, 3, 29])
    whole = solution.response(torch.arange(30))
    torch.testing.assert_close(solution.columns(index)(rows), whole[rows][:, index])
