"""A solve with other labels keeps the kernel matrix."""

import copy

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm.errors import NotFittedError
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF, as_rows
from torch_gckm.nn import GCKM, SemiSupRKMReadout
from torch_gckm.readout import Targets

FEW, MANY = torch.arange(80) < 9, torch.arange(80) < 20
GRAMS = {"exact": "dense", "low_rank": LowRank(max_rank=40)}


def features(dtype=torch.float32):
    return torch.randn(80, 4, generator=torch.Generator().manual_seed(0), dtype=dtype)


def targets(mask):
    return Targets.parse(torch.arange(80) % 3, mask, 80, 3)


def solved(gram, mask=FEW, **arguments):
    readout = SemiSupRKMReadout(4, 3, gram=GRAMS[gram], **arguments)
    with torch.no_grad():
        readout(features(), torch.arange(80) % 3, mask)
    return readout


@pytest.fixture
def evaluations(monkeypatch):
    """Every evaluation of a kernel."""
    calls, original = [], RBF.forward
    monkeypatch.setattr(RBF, "forward", lambda self, *a, **k: (calls.append(1), original(self, *a, **k))[1])
    return calls


def test_other_labels_with_the_same_matrix(evaluations):
    """The factor of the kernel matrix is evaluated once, and the scores are those of a fresh readout."""
    readout = solved("low_rank")
    before = len(evaluations)
    scores = readout.solve_again(targets(MANY))
    assert len(evaluations) == before
    torch.testing.assert_close(scores, solved("low_rank", MANY).scores)


@pytest.mark.parametrize("gram", GRAMS)
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_solve_again_is_a_fresh_solve(gram, class_weight):
    readout, fresh = solved(gram, class_weight=class_weight), solved(gram, MANY, class_weight=class_weight)
    scores = readout.solve_again(targets(MANY))
    torch.testing.assert_close(scores, fresh.scores)
    torch.testing.assert_close(readout.h, fresh.h)
    torch.testing.assert_close(readout.leave_one_out(), fresh.leave_one_out())
    torch.testing.assert_close(readout.loss(features()), fresh.loss(features()))
    torch.testing.assert_close(readout.transform(features() + 1), fresh.transform(features() + 1))
    assert torch.equal(readout.labelled, fresh.labelled)
    torch.testing.assert_close(readout.fit.label_weight, fresh.fit.label_weight)


@pytest.mark.parametrize("gram", GRAMS)
def test_solved_again_leaves_the_readout_alone(gram):
    readout, fresh = solved(gram), solved(gram, MANY)
    fit, h, scores = readout.fit, readout.h.clone(), readout.scores.clone()
    again = readout.solved_again(targets(MANY))
    torch.testing.assert_close(again.scores, fresh.scores)
    torch.testing.assert_close(again.leave_one_out(), fresh.leave_one_out())
    assert torch.equal(again.labelled, fresh.labelled)
    assert readout.fit is fit
    assert torch.equal(readout.h, h)
    assert torch.equal(readout.scores, scores)
    assert readout.leave_one_out().size(0) == 9


@pytest.mark.parametrize("gram", GRAMS)
def test_copies_make_the_matrix_again(gram):
    readout = solved(gram)
    expected = readout.solved_again(targets(MANY)).scores
    twin = copy.deepcopy(readout)
    assert twin.fit.gram is None
    torch.testing.assert_close(twin.solve_again(targets(MANY)), expected, rtol=1e-3, atol=1e-3)
    assert torch.equal(twin.fit.landmarks, readout.fit.landmarks)


def test_it_needs_a_solve():
    with pytest.raises(NotFittedError):
        SemiSupRKMReadout(4, 3).solve_again(targets(FEW))
    with pytest.raises(NotFittedError):
        SemiSupRKMReadout(4, 3).solved_again(targets(FEW))


def test_written_features_do_not_change_the_fit():
    x, y = features(), torch.arange(80) % 3
    readout = SemiSupRKMReadout(4, 3, gram=LowRank(max_rank=80, tol=0.0))
    with torch.no_grad():
        readout(x, y, FEW)
        x.mul_(torch.linspace(0.5, 2.0, 80).unsqueeze(1))
        of_the_fit = readout.solved_again(targets(FEW)).scores
        torch.testing.assert_close(of_the_fit, readout.scores)
        scores = readout(x, y, FEW)  # Other features are another matrix.
        fresh = SemiSupRKMReadout(4, 3, gram=LowRank(max_rank=80, tol=0.0))(x, y, FEW)
    assert not torch.allclose(scores, of_the_fit, atol=1e-2)
    torch.testing.assert_close(scores, fresh, rtol=1e-3, atol=1e-3)


def test_kept_landmarks_and_gradients():
    x = features(torch.float64).requires_grad_()
    readout = SemiSupRKMReadout(4, 3, RBF(4.0), gram=LowRank(max_rank=40)).double()
    gradients, landmarks = [], None
    for _ in range(3):  # The landmarks of the second are those of the first.
        scores = readout.solve_on(as_rows(x), targets(FEW), landmarks)
        landmarks = readout.fit.landmarks
        gradients.append(torch.autograd.grad(scores.square().sum(), x)[0])
    assert bool(gradients[0].any())
    torch.testing.assert_close(gradients[1], gradients[2])


def test_a_model_uses_the_landmarks_of_its_last_solve():
    graph = make_graph()
    model = GCKM(8, (4,), 3, gram=LowRank(max_rank=20)).initialize(graph)
    model.solve(graph)
    marks = model.readout.fit.landmarks
    with torch.no_grad():
        model.layers[0].h.add_(0.01)
    model.solve(graph)
    assert torch.equal(model.readout.fit.landmarks, marks)
