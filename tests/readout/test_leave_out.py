"""Withheld labels against solving again without them."""

import copy

import pytest
import torch

from tests.readout.conftest import ETA, LAMBDA1, LAMBDA2, solved
from torch_gckm.errors import InvalidLabelError, NotFittedError
from torch_gckm.kernels import RBF
from torch_gckm.nn import SemiSupRKMReadout


class TestLeaveOut:
    def brute_force(self, h, data, group, weight=None):
        readout = SemiSupRKMReadout(8, 3, kernel=RBF(4.0), eta=ETA, lambda1=LAMBDA1, lambda2=LAMBDA2).double()
        rest = (data.train_mask.double() if weight is None else weight).clone()
        rest[group] = 0
        return readout(h, data.y, rest)[group]

    @pytest.mark.filterwarnings("ignore::torch_gckm.errors.UnlabelledClassWarning")
    def test_one_at_a_time(self):
        readout, _, h, data = solved()
        expected = torch.cat([self.brute_force(h, data, [i]) for i in data.train_mask.nonzero().squeeze(1).tolist()])
        torch.testing.assert_close(readout.leave_one_out(), expected, atol=1e-8, rtol=0)

    @pytest.mark.filterwarnings("ignore::torch_gckm.errors.UnlabelledClassWarning")
    def test_sets(self):
        readout, _, h, data = solved()
        groups = [[0, 1, 2], torch.tensor([5, 3]), [4]]
        for result, group in zip(readout.leave_out(groups), groups, strict=True):
            torch.testing.assert_close(result, self.brute_force(h, data, group), atol=1e-8, rtol=0)

    @pytest.mark.filterwarnings("ignore::torch_gckm.errors.UnlabelledClassWarning")
    def test_weighted_labels(self):
        weight = torch.zeros(40, dtype=torch.float64)
        weight[:6] = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.1, 1.0])
        readout, _, h, data = solved()
        readout(h, data.y, weight)
        expected = torch.cat([self.brute_force(h, data, [i], weight) for i in range(6)])
        torch.testing.assert_close(readout.leave_one_out(), expected, atol=1e-8, rtol=0)
        (pair,) = readout.leave_out([[1, 2]])
        torch.testing.assert_close(pair, self.brute_force(h, data, [1, 2], weight), atol=1e-8, rtol=0)

    @pytest.mark.filterwarnings("ignore::torch_gckm.errors.UnlabelledClassWarning")
    def test_balanced_labels_keep_their_weights(self):
        readout, _, h, data = solved()
        readout.class_weight = "balanced"
        data.train_mask[10:13] = True
        readout(h, data.y, data.train_mask)
        weight = readout.fit.label_weight.double()
        expected = torch.cat([self.brute_force(h, data, [i], weight) for i in readout.labelled.tolist()])
        torch.testing.assert_close(readout.leave_one_out(), expected, atol=1e-8, rtol=0)

    def test_leverage_of_a_well_posed_problem(self):
        readout, *_ = solved()
        assert bool(((readout.leverage() > 0) & (readout.leverage() < 1)).all())

    def test_bad_groups_and_missing_factors(self):
        readout, *_ = solved()
        with pytest.raises(InvalidLabelError, match="labelled nodes, got \\[30\\]"):
            readout.leave_out([[0, 30]])
        with pytest.raises(InvalidLabelError, match="different"):
            readout.leave_out([[0, 0]])
        mask = torch.zeros(40, dtype=torch.bool)
        mask[[1, 4]] = True
        for a, b in zip(readout.leave_out([mask, []]), readout.leave_out([[1, 4], []]), strict=True):
            assert torch.equal(a, b)
        with pytest.raises(NotFittedError, match="factors"):
            copy.deepcopy(readout).leave_one_out()

    def test_a_matrix_of_nodes_is_a_group_in_every_row(self):
        readout, *_ = solved()
        groups = torch.tensor([[0, 1], [3, 5], [4, 2]])
        for a, b in zip(readout.leave_out(groups), readout.leave_out(groups.tolist()), strict=True):
            torch.testing.assert_close(a, b)

    def test_the_fit_has_them_too(self):
        readout, *_ = solved()
        assert torch.equal(readout.fit.leave_one_out(), readout.leave_one_out())
        assert torch.equal(readout.fit.leverage(), readout.leverage())
        assert torch.equal(readout.fit.labelled, readout.labelled)
        assert torch.equal(readout.fit.leave_out([[1, 2]])[0], readout.leave_out([[1, 2]])[0])
