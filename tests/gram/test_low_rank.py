import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.conftest import make_graph, projector_distance
from torch_gckm import GCKM, GCKMConv, SemiSupRKMReadout, Trainer
from torch_gckm.errors import (
    DegreeError,
    GCKMWarning,
    InvalidInputError,
    KernelNotPSDError,
    OutOfMemoryError,
    SingularReadoutError,
)
from torch_gckm.gram import Auto, Dense, LowRank, ReadoutProblem, as_gram, gram_from_config
from torch_gckm.gram import memory as memory_module
from torch_gckm.kernels import RBF, Laplacian, Linear, Polynomial, Precomputed, SparseFeatures, as_rows

FULL = LowRank(max_rank=10_000, tol=0.0, block_size=16)


def features(n=80, d=5, dtype=torch.float64, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def labels(n=80, p=3):
    y = torch.arange(n) % p
    weight = (torch.arange(n) < 9).double()
    return ReadoutProblem(weight, 2.0 * torch.nn.functional.one_hot(y, p).double() - 1, 0.9, 1.1, 0.13)


KERNELS = [RBF(3.0), RBF(500.0), Polynomial(2, 1.0), Laplacian(2.0), RBF(2.0) + 0.1 * Linear()]


class TestFullRankEqualsDense:
    @pytest.mark.parametrize("kernel", KERNELS, ids=repr)
    def test_eigenvectors(self, kernel):
        x = features()
        values, vectors = FULL(kernel, as_rows(x), centred=True).eigenvectors(5)
        expected_values, expected = Dense()(kernel, as_rows(x)).eigenvectors(5)
        torch.testing.assert_close(values, expected_values, rtol=1e-6, atol=1e-9)
        assert projector_distance(vectors, expected) < 1e-5
        torch.testing.assert_close(vectors.t() @ vectors, torch.eye(5, dtype=torch.float64))

    @pytest.mark.parametrize("centred", [True, False])
    def test_products(self, centred):
        x, v = features(), features(80, 3, seed=1)
        low, dense = FULL(RBF(3.0), as_rows(x), centred=centred), Dense()(RBF(3.0), as_rows(x))
        new = as_rows(features(9, seed=2))
        for name, arguments in (("matmul", (v,)), ("degrees", ()), ("diagonal", ())):
            ours, theirs = getattr(low, name)(*arguments), getattr(dense, name)(*arguments)
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
        nodes, weights = low.representer(v)
        assert nodes.numel() == weights.size(0)
        extended = RBF(3.0)(new, as_rows(x[nodes])) @ weights
        torch.testing.assert_close(extended, RBF(3.0)(new, as_rows(x)) @ v, rtol=1e-6, atol=1e-6)

    def test_readout_and_its_response(self):
        x, problem = features(), labels()
        ours = FULL(RBF(3.0), as_rows(x)).solve_readout(problem)
        theirs = Dense()(RBF(3.0), as_rows(x)).solve_readout(problem)
        for name in ("scores", "alpha", "bias", "r"):
            torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-6, atol=1e-6)
        index = torch.arange(9)
        torch.testing.assert_close(ours.response(index), theirs.response(index), rtol=1e-6, atol=1e-6)

    def test_gradients_of_objective_and_scores(self):
        x, h = features(30, 3).requires_grad_(), features(30, 2, seed=1)
        full = LowRank(max_rank=30, tol=0.0)
        for function in (
            lambda gram: gram.centred_quadratic(h),
            lambda gram: gram.solve_readout(labels(30)).scores.square().sum(),
        ):
            (ours,) = torch.autograd.grad(function(full(RBF(3.0), as_rows(x))), [x])
            (theirs,) = torch.autograd.grad(function(Dense()(RBF(3.0), as_rows(x))), [x])
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)

    def test_whole_pipeline(self, graph64):
        models = []
        for gram in (FULL, "dense"):
            model = GCKM(8, (6, 4), 3, kernel=[RBF(3.0), RBF(0.5), RBF(0.2)], gram=gram).double()
            Trainer(model, steps=0, progress=False).fit(graph64)
            models.append(model)
        low, dense = models
        torch.testing.assert_close(low.readout.scores, dense.readout.scores, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(low.readout.leave_one_out(), dense.readout.leave_one_out(), rtol=1e-4, atol=1e-4)
        new = make_graph(20, seed=3)
        new.x = new.x.double()
        torch.testing.assert_close(low.transform(new), dense.transform(new), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(low.loss(graph64).detach(), dense.loss(graph64).detach(), rtol=1e-6, atol=1e-8)


class TestLowRank:
    def test_readout_is_exact_for_the_corrected_matrix(self):
        """The dense readout of F F' + diag(delta) has the same solution."""
        x, problem = features(), labels()
        gram = LowRank(max_rank=15, tol=0.0)(RBF(1.0), as_rows(x))
        factor = gram.factor()
        matrix = factor.panel @ factor.panel.t() + torch.diag(factor.residual)
        torch.testing.assert_close(matrix.diagonal(), torch.ones(80, dtype=torch.float64))
        numbers = torch.arange(80, dtype=torch.float64).unsqueeze(1)
        from torch_gckm.kernels import Precomputed

        ours = gram.solve_readout(problem)
        theirs = Dense()(Precomputed(matrix), as_rows(numbers)).solve_readout(problem)
        index = torch.tensor([0, 4, 7])
        torch.testing.assert_close(ours.scores, theirs.scores)
        torch.testing.assert_close(ours.alpha, theirs.alpha)
        torch.testing.assert_close(ours.response(index), theirs.response(index))

    def test_converges_as_the_tolerance_falls(self):
        x, problem = features(300, 3), labels(300)
        _, exact = Dense()(RBF(2.0), as_rows(x)).eigenvectors(4)
        scores = Dense()(RBF(2.0), as_rows(x)).solve_readout(problem).scores
        subspace, readout = [], []
        for tol in (0.1, 1e-2, 1e-4, 1e-7):
            gram = LowRank(max_rank=300, tol=tol)
            subspace.append(projector_distance(gram(RBF(2.0), as_rows(x), centred=True).eigenvectors(4)[1], exact))
            readout.append(float((gram(RBF(2.0), as_rows(x)).solve_readout(problem).scores - scores).abs().max()))
        assert subspace == sorted(subspace, reverse=True)
        assert subspace[-1] < 1e-6
        assert readout[-1] < 1e-4 < readout[0]

    @pytest.mark.parametrize("entries", [2**25, 60], ids=["whole", "blocks"])
    def test_gradcheck_of_the_objective(self, monkeypatch, entries):
        monkeypatch.setattr("torch_gckm.kernels.features._BLOCK_ENTRIES", entries)
        x, h = features(20, 3), features(20, 2, seed=1)
        marks = torch.tensor([3, 11, 7, 0, 15])

        def objective(x, h):
            return LowRank()(RBF(3.0), as_rows(x), landmarks=marks, centred=True).centred_quadratic(h)

        x, h = x.requires_grad_(), h.requires_grad_()
        assert torch.autograd.gradcheck(objective, (x, h))
        k = RBF(3.0)(x)
        nystrom = k[:, marks] @ torch.linalg.solve(k[marks][:, marks], k[marks])
        hc = h - h.mean(dim=0)
        torch.testing.assert_close(objective(x, h), torch.trace(hc.t() @ nystrom @ hc), rtol=1e-6, atol=1e-8)

    @pytest.mark.parametrize("entries", [2**25, 60], ids=["whole", "blocks"])
    def test_gradient_to_views_kernel_and_both_sides(self, monkeypatch, entries):
        monkeypatch.setattr("torch_gckm.kernels.features._BLOCK_ENTRIES", entries)
        marks = torch.tensor([3, 11, 7, 0, 15])
        kernel = RBF(3.0, learnable=True) * RBF(4.0).on("x")
        views = {"h": features(20, 3).requires_grad_(), "x": features(20, 2, seed=1).requires_grad_()}
        u, v = features(20, 2, seed=2).requires_grad_(), features(20, 2, seed=3).requires_grad_()
        inputs = [*views.values(), *kernel.parameters(), u, v]
        gram = LowRank()(kernel, as_rows(views), landmarks=marks, centred=True)
        k = kernel(views)
        nystrom = k[:, marks] @ torch.linalg.solve(k[marks][:, marks], k[marks])
        expected = torch.trace(u.t() @ nystrom @ v)
        ours = gram.bilinear(u, v)
        torch.testing.assert_close(ours, expected)
        for got, want in zip(torch.autograd.grad(ours, inputs), torch.autograd.grad(expected, inputs), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)

    def test_a_wide_kernel_keeps_its_digits_when_factored_again(self):
        """Single precision would lose the objective of an almost constant kernel matrix to rounding."""
        x = features(400, 4, torch.float32)
        kernel = RBF(1e5)
        _, h = Dense()(kernel, as_rows(x.double())).eigenvectors(3)
        exact = float(Dense()(kernel, as_rows(x.double())).centred_quadratic(h))
        chosen = LowRank()(kernel, as_rows(x), centred=True, min_rank=6)
        again = LowRank()(kernel, as_rows(x), landmarks=chosen.landmarks, centred=True)
        from_columns = float(again.centred_quadratic(h.float()))
        panel = again.factor().panel
        assert float(panel.mean(dim=0).abs().max()) < 1e-6 * float(panel.abs().max())
        for gram in (chosen, again):
            assert float(gram.centred_quadratic(h.float())) == pytest.approx(exact, rel=1e-3)
        assert from_columns == pytest.approx(exact, rel=1e-3)

    def test_released_factors_are_not_needed(self, graph64):
        conv = GCKMConv(8, 4, kernel=RBF(3.0), gram=LowRank(max_rank=20)).double()
        conv.initialize(graph64.x, graph64.edge_index)
        kept, described = conv.loss(graph64.x, graph64.edge_index), conv.gram_used
        conv.release()
        assert conv._gram_cache.last._factor is None
        torch.testing.assert_close(conv.loss(graph64.x, graph64.edge_index), kept, rtol=1e-6, atol=1e-8)
        assert conv._gram_cache.last._factor is None
        assert conv.gram_used == described

    def test_leverage_is_the_diagonal_of_the_response(self):
        solution = LowRank(max_rank=20)(RBF(3.0), as_rows(features())).solve_readout(labels())
        index = torch.tensor([0, 5, 8])
        torch.testing.assert_close(solution.leverage(index), solution.response(index).diagonal())

    def test_gradcheck_of_scores(self):
        x = features(16, 3).requires_grad_()
        marks = torch.tensor([3, 11, 7, 0])

        def scores(x):
            return LowRank()(RBF(3.0), as_rows(x), landmarks=marks).solve_readout(labels(16)).scores

        assert torch.autograd.gradcheck(scores, (x,))

    def test_constant_and_tracked_objective_agree(self, graph64):
        conv = GCKMConv(8, 4, kernel=RBF(3.0), gram=LowRank(max_rank=20)).double()
        conv.initialize(graph64.x, graph64.edge_index)
        constant = conv.loss(graph64.x, graph64.edge_index)
        tracked = conv.loss(graph64.x.clone().requires_grad_(), graph64.edge_index)
        torch.testing.assert_close(constant, tracked, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(conv.transform(graph64.x, graph64.edge_index), conv.h.detach(), rtol=1e-5, atol=1e-5)

    def test_landmarks_stay_fixed_in_fine_tuning_and_are_saved(self, graph, tmp_path):
        model = GCKM(8, (6, 4), 3, gram=LowRank(max_rank=25))
        Trainer(model, steps=0, progress=False).fit(graph)
        before = [layer.landmarks.clone() for layer in (*model.layers, model.readout)]
        assert all(marks.numel() for marks in before)
        Trainer(model, steps=3, progress=False).fit(graph)
        for marks, layer in zip(before, (*model.layers, model.readout), strict=True):
            assert torch.equal(marks, layer.landmarks)
        model.save(tmp_path / "model.pt")
        new = make_graph(20, seed=4)
        loaded = GCKM.load(tmp_path / "model.pt")
        assert torch.equal(loaded.transform(new), model.transform(new))
        for text in (model.summary(), loaded.summary()):
            assert text.count("rank") == 3
            assert "of 60, error 0." in text

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_nodes_that_no_landmark_reaches_stay_finite_and_are_named(self, dtype):
        """A narrow kernel: the rows of F are zero for five nodes, and eta lambda1 = 1 would divide by them."""
        x = torch.cat([0.1 * features(30, 1), 1e3 * torch.arange(1, 6).unsqueeze(1)]).to(dtype)
        problem = labels(35)
        problem = ReadoutProblem(problem.weight, problem.codes, eta=1.0, lambda1=1.0, lambda2=0.1)
        gram = LowRank()(RBF(1.0), as_rows(x), landmarks=torch.tensor([0, 4, 9, 20]))
        with pytest.warns(GCKMWarning, match="5 nodes to no other .first: node 30"):
            solution = gram.solve_readout(problem)
        assert bool(solution.scores.isfinite().all())

    def test_rank_is_raised_where_it_makes_degrees_negative(self):
        """Exactly, node 1 is similar to the others; seen through the first coordinate alone it is not."""
        x = torch.ones(40, 2, dtype=torch.float64)
        x[0], x[1] = torch.tensor([1.0, 0.0]), torch.tensor([-0.1, 1.0])
        gram = LowRank()(Linear(), as_rows(x), landmarks=torch.tensor([0]))
        exact = Dense()(Linear(), as_rows(x)).solve_readout(labels(40))
        torch.testing.assert_close(gram.solve_readout(labels(40)).scores, exact.scores)
        assert gram.landmarks.numel() == 2

    def test_degrees_that_are_zero_up_to_rounding_end_in_an_error(self):
        """The rank cannot be raised: the matrix has no more directions."""
        for seed in range(4):
            x = torch.randn(200, 4, generator=torch.Generator().manual_seed(seed))
            with pytest.raises(DegreeError):
                LowRank()(Linear(), as_rows(x - x.mean(dim=0))).solve_readout(labels(200))

    def test_factors_leave_the_features_alone(self):
        rows = as_rows(features(30, 3))
        sparse = SparseFeatures(features(30, 3).to_sparse_csr())
        for x in (rows, sparse):
            before = x.view("h").sq_norm().clone()
            marks = LowRank(max_rank=2)(Linear(), x).factor().landmarks
            LowRank()(Linear(), x, landmarks=marks).factor()
            assert torch.equal(x.view("h").sq_norm(), before)

    def test_a_matrix_of_zeros_has_no_eigenvectors(self):
        values, vectors = LowRank()(Linear(), as_rows(torch.zeros(10, 3)), centred=True).eigenvectors(2)
        assert values.numel() == 0
        assert vectors.shape == (10, 0)

    def test_degrees_that_are_negative_exactly_are_refused(self):
        x = torch.tensor([[-1.0]] + [[1.0]] * 9, dtype=torch.float64)
        with pytest.raises(DegreeError, match="node 0"):
            LowRank()(Linear(), as_rows(x)).solve_readout(labels(10))

    @pytest.mark.parametrize("diagonal", [-1.0, 0.0, 0.5], ids=str)
    def test_kernels_that_are_not_positive_are_refused(self, diagonal):
        matrix = torch.ones(6, 6)
        matrix[5, 5] = diagonal
        kernel = Precomputed(matrix)
        with pytest.raises(KernelNotPSDError, match="positive semi-definite"):
            LowRank(tol=0.0)(kernel, as_rows(torch.arange(6.0).unsqueeze(1))).factor()

    def test_unlabelled_components_at_full_rank_are_singular(self):
        x = torch.cat([0.1 * features(9, 1), 1e3 * torch.arange(1, 4, dtype=torch.float64).unsqueeze(1)])
        y = torch.full((12,), -1)
        y[:4] = torch.tensor([0, 1, 0, 1])
        with pytest.raises(SingularReadoutError, match="singular"):
            SemiSupRKMReadout(1, 2, kernel=RBF(1.0), gram=FULL).double()(x, y)

    def test_views_are_multiplied(self, graph64):
        kernel = RBF(0.5) * Laplacian(10.0).on("x")
        views = {"h": graph64.x[:, :3], "x": graph64.x}
        ours = SemiSupRKMReadout(3, 3, kernel=kernel, gram=FULL).double()(views, graph64.y, graph64.train_mask)
        theirs = SemiSupRKMReadout(3, 3, kernel=kernel, gram="dense").double()(views, graph64.y, graph64.train_mask)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


class LargestTensor(TorchDispatchMode):
    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self.largest = max(self.largest, tensor.numel())
        return out


def test_200_000_nodes_need_nothing_of_their_square():
    n, rank = 200_000, 24
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 4
    x = torch.randn(4, 6, generator=generator)[y] + 0.5 * torch.randn(n, 6, generator=generator)
    step = torch.arange(n)
    edges = torch.stack([step, (step + 4) % n])
    from torch_geometric.data import Data

    data = Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=y, train_mask=step < 40)
    model = GCKM(6, (4, 4), 4, gram=LowRank(max_rank=rank))
    with LargestTensor() as seen:
        Trainer(model, steps=1, progress=False).fit(data)
    assert 0 < seen.largest <= n * rank  # The panel itself: no temporary is larger.
    assert float((model.predict() == y).double().mean()) > 0.9


def test_auto_chooses_by_size():
    small, large = as_rows(features(50)), as_rows(features(90))
    auto = Auto(dense_below=60, low_rank=LowRank(max_rank=7))
    assert auto(RBF(1.0), small).describe() == "exact, 50 x 50"
    assert auto(RBF(1.0), large).describe().startswith("rank 7 of 90, error 0.")
    assert isinstance(as_gram("auto"), Auto)
    assert isinstance(as_gram("low_rank"), LowRank)
    assert gram_from_config(auto.config()).config() == auto.config()
    assert gram_from_config(FULL.config()).config() == FULL.config()


def test_memory_is_asked_for_first(monkeypatch):
    monkeypatch.setattr(memory_module, "available_bytes", lambda device: 1000)
    with pytest.raises(OutOfMemoryError, match="rank 80"):
        LowRank()(RBF(1.0), as_rows(features())).factor()


@pytest.mark.parametrize("arguments", [{"max_rank": 0}, {"tol": -1.0}, {"tol": 1.0}, {"block_size": 0}], ids=str)
def test_bad_options(arguments):
    with pytest.raises(InvalidInputError):
        LowRank(**arguments)
