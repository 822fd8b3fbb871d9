"""Real targets: solving, and withholding them, against solving again without them."""

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm.errors import InvalidInputError, InvalidLabelError, NotFittedError
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.nn import GCKM, SemiSupRKMReadout
from torch_gckm.readout import RealTargets

GRAMS = ["dense", LowRank(max_rank=12)]


def problem(columns=2, n=40):
    """Features, targets with NaN for most nodes, and weights of the others."""
    h = make_graph(n).x.double()
    y = torch.stack([h[:, 0] + h[:, 1].square() + 5.0, h[:, 2] * 100.0 - 7.0], dim=1)[:, :columns]
    weight = torch.zeros(n, dtype=torch.float64)
    weight[:8] = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.3, 1.0, 1.0, 1.5])
    return h, torch.where(weight.unsqueeze(1) > 0, y, torch.nan), weight


def readout(columns=2, gram="dense", **options):
    options = {"kernel": RBF(4.0), "eta": 0.9, "lambda1": 1.1, "lambda2": 0.13, **options}
    return SemiSupRKMReadout(8, columns, gram=gram, code="values", **options).double()


def without(h, y, weight, group, gram, landmarks=None):
    """Scores of a group after a solve that has never seen its targets."""
    rest = weight.clone()
    rest[group] = 0
    made = readout(gram=gram)
    targets = RealTargets.parse(y, rest, h.size(0), 2)
    made.solve_on(made._checked(h), targets, landmarks)
    return made.scores[group]


class TestLeaveOut:
    @pytest.mark.parametrize("gram", GRAMS, ids=["exact", "low-rank"])
    def test_one_at_a_time(self, gram):
        h, y, weight = problem()
        made = readout(gram=gram)
        made(h, y, weight)
        marks = made.fit.known_landmarks
        expected = torch.cat([without(h, y, weight, [i], gram, marks) for i in range(8)])
        torch.testing.assert_close(made.leave_one_out(), expected, atol=1e-8, rtol=0)

    @pytest.mark.parametrize("gram", GRAMS, ids=["exact", "low-rank"])
    def test_groups(self, gram):
        h, y, weight = problem()
        made, groups = readout(gram=gram), [[0, 3], [1, 2, 7], [4, 5], [6]]
        made(h, y, weight)
        for group, result in zip(groups, made.leave_out(groups), strict=True):
            expected = without(h, y, weight, group, gram, made.fit.known_landmarks)
            torch.testing.assert_close(result, expected, atol=1e-8, rtol=0)

    def test_the_mean_moves(self):
        h, y, weight = problem()
        made = readout()
        made(h, y, weight)
        fixed = made.fit.solution.scores[:8] + made.fit.centre
        g = made.leverage().unsqueeze(1)
        fixed = (fixed - made.fit.centre - g * (y[:8] - made.fit.centre)) / (1 - g) + made.fit.centre
        assert (fixed - made.leave_one_out()).abs().max() > 0.1

    def test_a_group_of_all_is_refused(self):
        h, y, weight = problem()
        made = readout()
        made(h, y, weight)
        with pytest.raises(InvalidLabelError, match="all labelled nodes"):
            made.leave_out([list(range(8))])


class TestSolve:
    def test_the_formula(self):
        h, y, weight = problem()
        made = readout()
        scores = made(h, y, weight)
        k = RBF(4.0)(h)
        known = y.nan_to_num()
        mean = (weight.unsqueeze(1) * known).sum(0) / weight.sum()
        s = weight.unsqueeze(1) * (known - mean) / 0.13
        r = 1 / (1.1 * k.sum(1)) - weight / 0.13
        n = h.size(0)
        system = torch.zeros(n + 1, n + 1, dtype=torch.float64)
        system[:n, :n], system[:n, n], system[n, :n] = torch.eye(n) - k * r / 0.9, -1.0, r
        right = torch.cat([k @ s / 0.9, -s.sum(0, keepdim=True)])
        torch.testing.assert_close(scores, torch.linalg.solve(system, right)[:n] + mean)
        torch.testing.assert_close(made.scores, scores)
        torch.testing.assert_close(made.predict(), scores)

    def test_low_rank_at_full_rank_is_exact(self):
        h, y, weight = problem()
        full = readout(gram=LowRank(max_rank=40, tol=1e-14))
        torch.testing.assert_close(full(h, y, weight), readout()(h, y, weight), atol=1e-7, rtol=1e-7)

    @pytest.mark.parametrize("gram", GRAMS, ids=["exact", "low-rank"])
    def test_shifts_and_scalings(self, gram):
        h, y, weight = problem()
        made = readout(gram=gram)
        plain, out = made(h, y, weight), made.leave_one_out()
        moved = made(h, 3.0 * y - 1000.0, weight)
        torch.testing.assert_close(moved, 3.0 * plain - 1000.0, atol=1e-8, rtol=0)
        torch.testing.assert_close(made.leave_one_out(), 3.0 * out - 1000.0, atol=1e-8, rtol=0)

    def test_permutation(self):
        h, y, weight = problem()
        order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(readout()(h[order], y[order], weight[order]), readout()(h, y, weight)[order])

    def test_columns_do_not_mix(self):
        h, y, weight = problem()
        both = readout()(h, y, weight)
        torch.testing.assert_close(readout(1)(h, y[:, 0], weight), both[:, :1])
        torch.testing.assert_close(readout(1)(h, y[:, 1:], weight), both[:, 1:])

    def test_new_nodes(self):
        h, y, weight = problem()
        made = readout()
        scores = made(h, y, weight)
        torch.testing.assert_close(made.transform(h), scores, atol=1e-10, rtol=0)

    def test_solve_again(self):
        h, y, weight = problem()
        made = readout()
        made(h, y, weight)
        other = RealTargets.parse(2.0 * y, weight, 40, 2)
        torch.testing.assert_close(made.solve_again(other), readout()(h, 2.0 * y, weight))


@pytest.mark.parametrize("gram", GRAMS, ids=["exact", "low-rank"])
class TestKnownInPart:
    """Columns that some nodes lack are those of a readout for each column alone."""

    def solved(self, gram):
        h, y, weight = problem()
        y[[1, 4], 0], y[[0, 4, 6], 1] = torch.nan, torch.nan  # Node 4 has none.
        made = readout(gram=gram)
        made(h, y, weight)
        return made, h, y, weight

    def alone(self, made, column, weight):
        one = readout(1, gram=made.gram)
        y = self.y[:, column]
        one.solve_on(made._checked(self.h), RealTargets.parse(y, weight, 40, 1), made.fit.known_landmarks)
        return one

    @pytest.mark.parametrize("column", [0, 1])
    def test_scores_and_leave_out(self, gram, column):
        made, self.h, self.y, weight = self.solved(gram)
        one = self.alone(made, column, weight)
        torch.testing.assert_close(made.scores[:, [column]], one.scores, atol=1e-8, rtol=0)
        torch.testing.assert_close(made.bias[[column]], one.bias, atol=1e-8, rtol=0)
        torch.testing.assert_close(made.transform(self.h)[:, [column]], one.transform(self.h), atol=1e-8, rtol=0)
        has = ~self.y[made.labelled, column].isnan()
        found = made.leave_one_out()[:, [column]]
        torch.testing.assert_close(found[has], one.leave_one_out(), atol=1e-8, rtol=0)
        assert found[~has].isnan().all()
        assert (made.leverage()[has] >= one.leverage() - 1e-9).all()

    @pytest.mark.parametrize("column", [0, 1])
    def test_groups(self, gram, column):
        made, self.h, self.y, weight = self.solved(gram)
        one, groups = self.alone(made, column, weight), [[0, 3], [1, 2, 7], [5], [0, 6]]
        for group, found in zip(groups, made.leave_out(groups), strict=True):
            own = [node for node in group if not self.y[node, column].isnan()]
            expected = one.leave_out([own])[0] if own else torch.empty(0, 1, dtype=torch.float64)
            has = torch.tensor([node in own for node in group])
            torch.testing.assert_close(found[has][:, [column]], expected, atol=1e-8, rtol=0)
            assert found[~has][:, column].isnan().all()

    def test_state(self, gram):
        made, h, _, _ = self.solved(gram)
        loaded = readout(gram=gram)
        loaded.load_state_dict(made.state_dict())
        torch.testing.assert_close(loaded.transform(h), made.transform(h))
        assert loaded.fit.label_value.isnan().sum() == made.fit.label_value.isnan().sum() == 3
        with pytest.raises(NotFittedError, match="known in part"):
            loaded.loss(h)

    def test_no_gradients(self, gram):
        _, h, y, weight = self.solved(gram)
        with pytest.raises(InvalidInputError, match="detach h"):
            readout(gram=gram)(h.clone().requires_grad_(), y, weight)


class TestGradients:
    @pytest.mark.parametrize("gram", GRAMS, ids=["exact", "low-rank"])
    def test_scores_and_leave_out(self, gram):
        h, y, weight = problem(n=16)
        made = readout(gram=gram)
        made(h, y, weight)
        marks, targets = made.fit.known_landmarks, RealTargets.parse(y, weight, 16, 2)

        def scores(h):
            return made.solve_on(made._checked(h), targets, marks)

        def left_out(h):
            scores(h)
            return made.leave_one_out()

        h = h.clone().requires_grad_()
        assert torch.autograd.gradcheck(scores, h)
        assert torch.autograd.gradcheck(left_out, h)

    def test_loss_is_that_of_centred_targets(self):
        h, y, weight = problem()
        made = readout()
        made(h, y, weight)
        loss = made.loss(h)
        made(h, y - made.fit.centre, weight)
        torch.testing.assert_close(made.loss(h), loss)


class TestModel:
    def model(self):
        data = make_graph(40)
        _, y, weight = problem()
        data.y, data.train_mask = y.float(), weight > 0
        model = GCKM(data.num_features, (6,), 2, code="values")
        model.initialize(data).solve(data)
        return model, data

    def test_predict_save_and_load(self, tmp_path):
        model, data = self.model()
        assert torch.equal(model.predict(), model.scores())
        assert "2 columns" in model.summary()
        model.save(tmp_path / "whole.pt")
        model.save(tmp_path / "small.pt", inductive=True)
        assert torch.equal(GCKM.load(tmp_path / "whole.pt").predict(), model.predict())
        torch.testing.assert_close(
            GCKM.load(tmp_path / "small.pt").predict(data), model.predict(), atol=1e-2, rtol=1e-3
        )

    def test_no_classes(self):
        model, data = self.model()
        for ask in (model.predict_proba, model.inductive().predict_proba):
            with pytest.raises(InvalidInputError, match="no classes"):
                ask(data)


BAD = {
    "constant": (torch.full((40,), 2.5), "nothing to learn"),
    "one label": (torch.cat([torch.ones(1), torch.full((39,), torch.nan)]), "nothing to learn"),
    "unknown": (torch.full((40,), torch.nan), "every node is unknown"),
    "infinite": (torch.arange(40.0).index_fill(0, torch.tensor(3), torch.inf), "node 3 has the targets \\[inf\\]"),
    "length": (torch.arange(39.0), "have the shape \\[40, 1\\], got \\(39,\\)"),
    "columns": (torch.rand(40, 2), "have the shape \\[40, 1\\], got \\(40, 2\\)"),
    "dimensions": (torch.rand(40, 1, 1), "have the shape"),
    "whole numbers": (torch.arange(40), "floating-point"),
}


class TestBadTargets:
    @pytest.mark.parametrize("name", BAD)
    def test_targets(self, name):
        y, message = BAD[name]
        with pytest.raises(InvalidLabelError, match=message):
            readout(1)(problem()[0], y)

    def test_a_column_that_is_hardly_known(self):
        h, y, weight = problem()
        y[1:, 1] = torch.nan
        with pytest.raises(InvalidLabelError, match="column 1 of the targets is known for 1 of the labelled nodes"):
            readout()(h, y, weight)

    def test_arguments(self):
        with pytest.raises(InvalidInputError, match="columns, at least 1, got 0"):
            readout(0)
        with pytest.raises(InvalidInputError, match="None with code='values'"):
            readout(class_weight="balanced")
        with pytest.raises(InvalidInputError, match="about classes"):
            RealTargets.parse(problem()[1], None, 40, 2).balanced()

    def test_numbers_for_a_readout_of_classes(self):
        with pytest.raises(InvalidLabelError, match="code='values', or a GCKMRegressor"):
            SemiSupRKMReadout(8, 2)(problem()[0], torch.rand(40))
