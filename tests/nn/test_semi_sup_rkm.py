"""The readout as a module: gradients, transform, masks, codes, state and refused input."""

import copy

import pytest
import torch
from torch_geometric.nn import GCN

from tests.conftest import make_graph
from tests.readout.conftest import ETA, LAMBDA1, LAMBDA2, solved
from torch_gckm.errors import InvalidInputError, InvalidLabelError, NotFittedError, UnlabelledClassWarning
from torch_gckm.kernels import RBF
from torch_gckm.nn import SemiSupRKMReadout


class TestGradients:
    def test_scores(self):
        readout, _, h, data = solved(14)
        h = h.requires_grad_()
        assert torch.autograd.gradcheck(lambda h: readout(h, data.y, data.train_mask), (h,))

    def test_leave_out_scores(self):
        readout, _, h, data = solved(14)

        def leave_out(h):
            readout(h, data.y, data.train_mask)
            return (readout.leave_one_out(), *readout.leave_out([[0, 1, 2], [3, 4]]))

        assert torch.autograd.gradcheck(leave_out, (h.requires_grad_(),))

    def test_kernel_parameters_and_second_views_get_gradients(self):
        data = make_graph(20)
        kernel = RBF(4.0, learnable=True) * RBF(9.0).on("x")
        readout = SemiSupRKMReadout(8, 3, kernel=kernel).double()
        h, x = data.x.double().requires_grad_(), (data.x.double() ** 2).requires_grad_()
        readout({"h": h, "x": x}, data.y, data.train_mask).square().sum().backward()
        assert all(float(t.grad.abs().sum()) > 0 for t in (h, x, readout.kernel.left.log_sigma2))

    def test_trains_a_pyg_encoder(self):
        data = make_graph()
        torch.manual_seed(0)
        encoder, readout = GCN(8, 16, 2, 4), SemiSupRKMReadout(4, 3)
        optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
        losses = []
        for _ in range(15):
            readout(encoder(data.x, data.edge_index), data.y, data.train_mask)
            loss = torch.nn.functional.cross_entropy(readout.leave_one_out(), data.y[data.train_mask])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[-1] < 0.9 * losses[0]


class TestInterface:
    def test_transform_of_the_training_nodes_returns_their_scores(self):
        readout, scores, h, _ = solved()
        torch.testing.assert_close(readout.transform(h), scores, atol=1e-9, rtol=0)

    def test_transform_of_new_nodes(self):
        readout, _, h, _ = solved()
        new = torch.randn(7, 8, dtype=torch.float64)
        expected = RBF(4.0)(new, h) @ readout.fit.alpha / ETA + readout.bias
        torch.testing.assert_close(readout.transform(new), expected)

    def test_all_forms_of_a_mask(self):
        readout, scores, h, data = solved()
        index = data.train_mask.nonzero().squeeze(1)
        for mask in (index, data.train_mask.to(torch.uint8), data.train_mask.double()):
            torch.testing.assert_close(readout(h, data.y, mask), scores)
        splits = torch.stack([~data.train_mask, data.train_mask], dim=1)
        torch.testing.assert_close(readout(h, data.y, splits, split=1), scores)
        hidden = torch.where(data.train_mask, data.y, -1)
        torch.testing.assert_close(readout(h, hidden), scores)
        torch.testing.assert_close(readout(h, data.y.unsqueeze(1), data.train_mask), scores)
        assert torch.equal(readout.labelled, index)

    @pytest.mark.parametrize("code", ["binary", "one_vs_all", "matrix"])
    def test_class_codes(self, code):
        matrix = torch.tensor([[1.0, 1, -1, 1], [-1, 1, 1, 1], [1, -1, 1, -1]])
        data = make_graph(90)
        readout = SemiSupRKMReadout(8, 3, code=matrix if code == "matrix" else code)
        readout(data.x, data.y, data.train_mask)
        assert readout.scores.size(1) == {"binary": 2, "one_vs_all": 3, "matrix": 4}[code]
        right = (readout.predict() == data.y)[data.test_mask].float().mean()
        assert float(right) > 0.75
        codes = readout.codes
        nearest = ((readout.scores.sign().unsqueeze(1) != codes).sum(dim=2)).min(dim=1).values
        chosen = (readout.scores.sign() != codes[readout.predict()]).sum(dim=1)
        if code != "one_vs_all":
            assert torch.equal(chosen, nearest)
        else:
            assert torch.equal(readout.predict(), readout.scores.argmax(dim=1))

    def test_duals_are_a_parameter_that_is_not_trained(self):
        readout, *_ = solved()
        assert isinstance(readout.h, torch.nn.Parameter)
        assert not readout.h.requires_grad
        parameter = readout.h
        readout.reset_parameters()
        assert readout.h is parameter
        assert readout.h.shape == (0, 3)
        with pytest.raises(NotFittedError):
            readout.predict()

    def test_loss_follows_hyperparameters_and_duals_that_change_after_the_solve(self):
        readout, _, h, _ = solved()
        readout.lambda2 = 2 * LAMBDA2
        twin = copy.deepcopy(readout)  # Has no solution to take anything from.
        torch.testing.assert_close(readout.loss(h), twin.loss(h))
        readout, _, h, _ = solved()
        readout.h.data.mul_(2.0)
        readout.h.mul_(1.5)
        twin = copy.deepcopy(readout)
        torch.testing.assert_close(readout.loss(h), twin.loss(h))

    def test_state_dict_is_complete(self):
        readout, scores, h, _ = solved()
        twin = SemiSupRKMReadout(8, 3, kernel=RBF(1.0), eta=ETA, lambda1=LAMBDA1, lambda2=LAMBDA2).double()
        with pytest.raises(NotFittedError):
            twin.transform(h)
        twin.load_state_dict(readout.state_dict())
        assert torch.equal(twin.transform(h), readout.transform(h))
        torch.testing.assert_close(twin.loss(h), readout.loss(h))
        assert torch.equal(twin.scores, scores)
        clone = copy.deepcopy(readout)
        assert torch.equal(clone.transform(h), readout.transform(h))

    def test_float32_matches_double(self):
        _, scores, h, data = solved()
        single = SemiSupRKMReadout(8, 3, kernel=RBF(4.0), eta=ETA, lambda1=LAMBDA1, lambda2=LAMBDA2)
        result = single(h.float(), data.y, data.train_mask)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.double(), scores, atol=1e-4, rtol=1e-4)

    def test_automatic_bandwidth_follows_the_features(self):
        data = make_graph(40)
        readout = SemiSupRKMReadout(8, 3)
        first = readout(data.x, data.y, data.train_mask)
        second = readout(7 * data.x, data.y, data.train_mask)
        torch.testing.assert_close(first, second, atol=1e-4, rtol=1e-4)

    def test_repr(self):
        readout, *_ = solved()
        assert repr(readout) == (
            "SemiSupRKMReadout(8, 3, kernel=RBF(sigma2=4), eta=0.9, lambda1=1.1, lambda2=0.13, "
            "class_weight=None, gram=Auto())"
        )


class TestBadInput:
    def fails(self, error, match, *, h=None, y=None, mask=None, **arguments):
        data = make_graph(40)
        readout = SemiSupRKMReadout(8, 3)
        with pytest.raises(error, match=match):
            readout(data.x if h is None else h, data.y if y is None else y,
                    data.train_mask if mask is None else mask, **arguments)  # fmt: skip
        assert not readout.is_fitted

    def test_features(self):
        bad = make_graph(40).x
        bad[7, 0] = float("inf")
        self.fails(InvalidInputError, "'h' has 1 entries that are NaN or infinite, first in row 7", h=bad)
        self.fails(InvalidInputError, r"shape \[n, 8\], got \[n, 3\]", h=bad[:, 1:4])

    def test_labels(self):
        y = make_graph(40).y
        node = torch.tensor(2)
        self.fails(InvalidLabelError, "node 2 has the label 5, but classes are 0 to 2", y=y.index_fill(0, node, 5))
        self.fails(InvalidLabelError, "node 2 has the label -3", y=y.index_fill(0, node, -3))
        self.fails(InvalidLabelError, "integer class", y=y.float())
        self.fails(InvalidLabelError, "40 nodes", y=y[:39])
        self.fails(InvalidLabelError, "not a single node", mask=torch.zeros(40, dtype=torch.bool))
        self.fails(InvalidLabelError, "not a single node", y=torch.full((40,), -1))

    def test_masks(self):
        self.fails(InvalidLabelError, "39 entries for 40 nodes", mask=torch.ones(39, dtype=torch.bool))
        self.fails(InvalidLabelError, "names nodes 3 to 40 of 40", mask=torch.tensor([3, 40]))
        self.fails(InvalidLabelError, "names nodes twice", mask=torch.ones(40, dtype=torch.long))
        self.fails(InvalidLabelError, "must be finite and not negative", mask=torch.full((40,), -1.0))
        self.fails(InvalidLabelError, "holds 2 splits", mask=torch.ones(40, 2, dtype=torch.bool))
        self.fails(InvalidLabelError, "split=2 is not one", mask=torch.ones(40, 2, dtype=torch.bool), split=2)
        self.fails(InvalidLabelError, "one or two dimensions", mask=torch.ones(4, 5, 2, dtype=torch.bool))

    def test_a_class_without_labels_is_a_warning(self):
        data = make_graph(40)
        with pytest.warns(UnlabelledClassWarning, match=r"class \[3\]"):
            SemiSupRKMReadout(8, 4)(data.x, data.y, data.train_mask)

    def test_loss_for_other_nodes(self):
        readout, _, h, _ = solved()
        with pytest.raises(InvalidInputError, match="fitted on 40 nodes, got 39"):
            readout.loss(h[:39])

    @pytest.mark.parametrize("arguments", [
        {"eta": 0}, {"lambda1": -1}, {"lambda2": 0}, {"out_channels": 1}, {"code": "ternary"},
        {"code": torch.ones(3, 2)}, {"code": torch.ones(2, 2)},
    ], ids=str)  # fmt: skip
    def test_constructor(self, arguments):
        with pytest.raises(InvalidInputError):
            SemiSupRKMReadout(**{"in_channels": 8, "out_channels": 3, **arguments})


def test_double_in_double_out(graph):
    readout = SemiSupRKMReadout(8, 3)
    assert readout(graph.x, graph.y, graph.train_mask).dtype == torch.float32
    scores = readout(graph.x.double(), graph.y, graph.train_mask)
    exact = SemiSupRKMReadout(8, 3).double()
    assert torch.equal(scores, exact(graph.x.double(), graph.y, graph.train_mask))
    assert readout.leave_one_out().dtype == readout.transform(graph.x.double()).dtype == torch.float64
