"""Panels that are recomputed by blocks of rows, against stored ones."""

import pytest
import torch
import torch.distributed as dist
from torch_geometric.data import Data

from tests.conftest import projector_distance
from tests.gram.test_low_rank import features
from tests.several.run import run
from torch_gckm import GCKM, Trainer
from torch_gckm import memory as memory_module
from torch_gckm.errors import InvalidInputError, OutOfMemoryError
from torch_gckm.gram import LowRank, factor, gram_from_config
from torch_gckm.gram.factor import RecomputedFactor, is_stored
from torch_gckm.kernels import RBF, Linear, SparseFeatures, as_rows
from torch_gckm.layouts import to_csr
from torch_gckm.panels import moments
from torch_gckm.partition import Partition
from torch_gckm.processes import Processes
from torch_gckm.readout import ReadoutProblem, solve

KERNELS = [RBF(3.0), RBF(500.0), RBF(2.0) + 0.1 * Linear()]
FORMS = ("stored", "recomputed")
double = torch.float64


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("torch_gckm.blocks.BLOCK_ENTRIES", 600)


def both(form, kernel, rows, rank=25, **options):
    return [getattr(LowRank(max_rank=rank, tol=0.0, panel=p, **options), form)(kernel, rows) for p in FORMS]


def whole(panel):
    return panel.values if isinstance(panel.values, torch.Tensor) else panel.values[0 : panel.values.size(0)]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("form", ["centred", "uncentred"])
def test_the_same_matrix(form, kernel):
    stored, again = both(form, kernel, as_rows(features(200)))
    a, b = stored.factor(), again.factor()
    assert torch.equal(a.landmarks, b.landmarks)
    assert isinstance(b.values, RecomputedFactor)
    torch.testing.assert_close(whole(b), a.values, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(b.residual, a.residual, rtol=1e-6, atol=1e-9)
    assert b.error == pytest.approx(a.error, rel=1e-6, abs=1e-9)
    index, v = torch.tensor([3, 77, 199, 3]), features(200, 2, seed=1)
    torch.testing.assert_close(b.pick(index), a.pick(index), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(b.values[index], a.values[index], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(again.matmul(v), stored.matmul(v), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(again.centred_quadratic(v), stored.centred_quadratic(v), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(again.representer(v)[1], stored.representer(v)[1], rtol=1e-3, atol=1e-4)
    weight = torch.linspace(-1.0, 2.0, 200, dtype=double)
    for x, y in zip(moments(b.values, weight), moments(a.values, weight), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)
    (values, vectors), (expected_values, expected) = again.eigenvectors(4), stored.eigenvectors(4)
    torch.testing.assert_close(values, expected_values, rtol=1e-6, atol=1e-9)
    assert projector_distance(vectors, expected) < 1e-6
    if form == "uncentred":
        torch.testing.assert_close(b.row_sums, a.row_sums, rtol=1e-7, atol=1e-7)
    released = whole(b)
    again.release()
    torch.testing.assert_close(whole(again.factor()), released, rtol=1e-5, atol=1e-7)


def test_wide_kernels_keep_their_digits_in_single_precision():
    x, kernel = features(400, 4, torch.float32), RBF(1e5)
    exact = LowRank(max_rank=60, tol=0.0).centred(kernel, as_rows(x.double()))
    _, expected = exact.eigenvectors(3)
    for landmarks in (None, exact.landmarks[:30]):
        gram = LowRank(max_rank=60, tol=1e-4, panel="recomputed").centred(kernel, as_rows(x), landmarks=landmarks)
        panel = gram.factor().values
        assert panel.is_wide
        assert panel[0:9].dtype == torch.float32
        assert float(whole(gram.factor()).mean(dim=0).abs().max()) < 1e-6 * float(whole(gram.factor()).abs().max())
        assert projector_distance(gram.eigenvectors(3)[1].double(), expected) < 1e-2


def test_sparse_features_and_views():
    x = features(150, 6) * (features(150, 6, seed=4) > 0.3)
    stored, again = both("uncentred", RBF(3.0), SparseFeatures(to_csr(x)))
    assert torch.equal(stored.landmarks, again.landmarks)
    torch.testing.assert_close(whole(again.factor()), stored.factor().values, rtol=1e-6, atol=1e-8)
    stored, again = both("centred", RBF(3.0) * RBF(2.0).on("x"), as_rows({"h": x, "x": features(150, 2)}))
    torch.testing.assert_close(whole(again.factor()), stored.factor().values, rtol=1e-6, atol=1e-8)


def test_the_readout_and_what_it_leaves_out():
    rows, n = as_rows(features(200)), 200
    weight, codes = torch.zeros(n), torch.where(torch.arange(n) % 2 == 0, 1.0, -1.0).unsqueeze(1).expand(n, 2)
    index = torch.tensor([0, 5, 60, 61, 150, 199])
    weight[index] = torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0, 3.0])
    a, b = (solve(gram, ReadoutProblem(weight, codes, 1.0, 1.0, 0.1)) for gram in both("uncentred", RBF(3.0), rows))
    torch.testing.assert_close(b.alpha(), a.alpha(), rtol=1e-6, atol=1e-8)
    for name in ("scores", "bias", "degrees"):
        torch.testing.assert_close(getattr(b, name), getattr(a, name), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(b.response(index), a.response(index), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(b.leverage(index), a.leverage(index), rtol=1e-6, atol=1e-8)


def test_gradients_are_the_same():
    results = []
    for form in FORMS:
        x, h = features(60, 3).requires_grad_(), features(60, 2, seed=1).requires_grad_()
        gram = LowRank(max_rank=12, tol=0.0, panel=form).uncentred(RBF(3.0), as_rows(x))
        value = gram.centred_quadratic(h) + gram.panel().row_sums.square().sum()
        results.append([value.detach(), *torch.autograd.grad(value, [x, h])])
    for got, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-8)


def fitted(form, steps):
    y = torch.arange(300) % 3
    x = torch.eye(3, 5, dtype=double)[y] + features(300, 5)
    step = torch.arange(300)
    edges = torch.stack([step, (step + 3) % 300])
    data = Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=y, train_mask=step < 30)
    model = GCKM(5, (4,), 3, gram=LowRank(max_rank=20, panel=form)).double()
    history = Trainer(model, steps=steps, lr=0.5, progress=False).fit(data)
    return model, history


def test_a_model_and_its_fine_tuning():
    (model, history), (again, repeated) = (fitted(form, steps=2) for form in FORMS)
    torch.testing.assert_close(again.readout.scores, model.readout.scores, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(again.layers[0].h, model.layers[0].h, rtol=1e-6, atol=1e-7)
    assert [r.loss for r in repeated.records] == pytest.approx([r.loss for r in history.records], rel=1e-7)


def problem_of(number):
    """Labels that only one of the processes has."""
    weight, codes = (number % 40 == 0) & (number < 120), 2.0 * (number % 80 == 0) - 1.0
    return ReadoutProblem(weight.double(), codes.unsqueeze(1), 1.0, 1.0, 0.1)


def spread():
    """Scores and landmarks, of the nodes of both processes."""
    over = Partition((0, 120, 200), Processes(dist.group.WORLD))
    x = features(200)[over.start : over.offsets[over.rank + 1]]
    n = x.size(0)
    gram = LowRank(max_rank=20, tol=0.0, panel="recomputed")
    layer, readout = gram.centred(RBF(3.0), as_rows(x, over)), gram.uncentred(RBF(3.0), as_rows(x, over))
    number = torch.arange(over.start, over.start + n)
    solution = solve(readout, problem_of(number))
    _, h = layer.eigenvectors(3)
    index = torch.tensor([0, 160])
    return [layer.landmarks, over.collect(h), over.collect(solution.scores), solution.response(index)]


def test_two_processes():
    rows, number, index = as_rows(features(200)), torch.arange(200), torch.tensor([0, 160])
    layer, readout = (both(form, RBF(3.0), rows, rank=20)[0] for form in ("centred", "uncentred"))
    solution = solve(readout, problem_of(number))
    for landmarks, h, scores, response in run(2, spread):
        assert torch.equal(landmarks, layer.landmarks)
        torch.testing.assert_close(h, layer.eigenvectors(3)[1], rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(scores, solution.scores, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(response, solution.response(index), rtol=1e-6, atol=1e-8)


def test_the_choice(monkeypatch):
    rows = as_rows(features(1000))  # Panels of 30 columns: 240 kB.
    for free, expected in ((10**6, True), (400_000, False)):
        for module in (memory_module, factor):
            monkeypatch.setattr(module, "available_bytes", lambda device, free=free: free)
        assert is_stored("auto", rows, 30) == expected
        panel = LowRank(max_rank=30, tol=0.0, block_size=1).centred(RBF(1.0), rows).factor()
        assert isinstance(panel.values, torch.Tensor) == expected
        assert not is_stored("recomputed", rows, 30)
    monkeypatch.setattr(memory_module, "available_bytes", lambda device: 200_000)
    with pytest.raises(OutOfMemoryError, match=r"rank 30 needs .*panel='recomputed'"):
        is_stored("stored", rows, 30)
    with pytest.raises(InvalidInputError, match="'panel' must be"):
        LowRank(panel="none")


def test_configuration_and_empty_panels():
    gram = LowRank(panel="recomputed")
    assert gram_from_config(gram.config()).panel == "recomputed"
    assert "panel" not in LowRank().config()["arguments"]
    assert repr(gram) == "LowRank(max_rank=512, tol=0.05, seed=0, panel='recomputed')"
    values, vectors = gram.centred(Linear(), as_rows(torch.zeros(10, 3)), min_rank=4).eigenvectors(2)
    assert values.numel() == 0
    assert vectors.shape == (10, 0)
