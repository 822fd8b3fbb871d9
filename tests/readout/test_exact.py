"""The exact solution against the paper's formulas and finite differences, all in double precision."""

import pytest
import torch

from tests.conftest import make_graph
from tests.readout.conftest import ETA, LAMBDA1, LAMBDA2, labels, paper, solved
from torch_gckm.errors import DegreeError, InvalidInputError, SingularReadoutError
from torch_gckm.gram import Dense
from torch_gckm.kernels import RBF, Linear, as_rows
from torch_gckm.nn import SemiSupRKMReadout
from torch_gckm.readout import solve


class TestPaper:
    def test_linear_system_of_the_paper(self):
        readout, _, h, data = solved()
        k, r, label, c, s, _ = paper(h, data)
        left = (torch.eye(40, dtype=torch.float64) - r @ s @ k / ETA) @ r @ readout.h
        torch.testing.assert_close(left, s.t() @ label @ c / LAMBDA2, atol=1e-8, rtol=0)

    def test_bordered_system(self):
        readout, _, h, data = solved()
        k, r, label, c, _, ones = paper(h, data)
        inverse = torch.diag(1 / r.diagonal())
        system = torch.cat([torch.cat([k / ETA - inverse, ones], 1), torch.nn.functional.pad(ones.t(), (0, 1))])
        unknown = torch.cat([r @ readout.h, readout.bias.unsqueeze(0)])
        right = torch.nn.functional.pad(-inverse @ label @ c / LAMBDA2, (0, 0, 0, 1))
        torch.testing.assert_close(system @ unknown, right, atol=1e-8, rtol=0)

    def test_scores_from_duals(self):
        readout, scores, h, data = solved()
        _, r, label, c, _, _ = paper(h, data)
        expected = readout.h - label @ c / (r.diagonal().unsqueeze(1) * LAMBDA2)
        torch.testing.assert_close(scores, expected.detach(), atol=1e-8, rtol=0)

    def test_constraint_and_stationarity_of_the_dual_objective(self):
        readout, _, h, data = solved()
        k, r, label, c, _, ones = paper(h, data)
        assert float((readout.h.t() @ r @ ones).abs().max()) < 1e-8
        gradient = -r @ k @ r @ readout.h / ETA + r @ readout.h - label @ c / LAMBDA2
        torch.testing.assert_close(gradient, r @ ones @ readout.bias.unsqueeze(0), atol=1e-8, rtol=0)

    def test_label_weights_scale_single_labels(self):
        weight = torch.zeros(40, dtype=torch.float64)
        weight[:6] = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.1, 1.0])
        readout, _, h, data = solved()
        scores = readout(h, data.y, weight)
        k, r, label, c, _, _ = paper(h, data, weight)
        a = r @ scores + label @ c / LAMBDA2
        torch.testing.assert_close(scores, k @ a / ETA + readout.bias, atol=1e-8, rtol=0)
        assert float(a.sum(dim=0).abs().max()) < 1e-8

    def test_only_two_combinations_of_hyperparameters_matter(self):
        _, scores, _, _ = solved()
        _, other, _, _ = solved(eta=ETA / 3, lambda1=LAMBDA1 * 3, lambda2=LAMBDA2 * 3)
        torch.testing.assert_close(scores, other)

    def test_r_of_zero_is_no_exception(self):
        _, _, h, data = solved()
        degree = RBF(4.0)(h).sum(dim=1)
        lambda2 = float(degree[0])  # Makes r of node 0 exactly zero at lambda1 = 1.
        readout = SemiSupRKMReadout(8, 3, kernel=RBF(4.0), lambda2=lambda2).double()
        scores = readout(h, data.y, data.train_mask)
        assert bool(scores.isfinite().all())
        near = SemiSupRKMReadout(8, 3, kernel=RBF(4.0), lambda2=lambda2 * (1 + 1e-9)).double()
        torch.testing.assert_close(near(h, data.y, data.train_mask), scores, atol=1e-5, rtol=1e-5)
        with pytest.raises(InvalidInputError, match="dual variables of node 0"):
            readout.loss(h)

    def test_what_a_solution_knows(self):
        _, _, h, _ = solved()
        problem = labels(40)
        solution = solve(Dense().uncentred(RBF(4.0), as_rows(h)), problem)
        k = RBF(4.0)(h)
        torch.testing.assert_close(solution.degrees, k.sum(dim=1))
        torch.testing.assert_close(solution.r, problem.r(k.sum(dim=1)))
        torch.testing.assert_close(solution.product(), k @ solution.alpha())
        index = torch.tensor([0, 5, 8])
        torch.testing.assert_close(solution.leverage(index), solution.response(index).diagonal())
        unit = torch.zeros(40, 1, dtype=torch.float64)
        unit[5] = 1.0
        inner = torch.diag(1 / solution.r) - k / ETA  # E = K a / eta + b and a = R E + S, with 1'a = 0.
        bordered = torch.nn.functional.pad(inner, (0, 1, 0, 1), value=1.0)
        bordered[-1, -1], bordered[:-1, -1] = 0.0, -1.0
        a = torch.linalg.solve(bordered, torch.nn.functional.pad(unit / solution.r.unsqueeze(1), (0, 0, 0, 1)))
        column = k @ a[:-1] / ETA + a[-1]
        torch.testing.assert_close(solution.response(index)[:, 1], column[index, 0])


class TestSingular:
    def islands(self, unlabelled):
        """One group of nodes with all labels, and far-away unlabelled nodes, each on its own."""
        group = 0.1 * torch.randn(9, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        h = torch.cat([group, 1e3 * torch.arange(1, unlabelled + 1).unsqueeze(1)])
        y = torch.full((9 + unlabelled,), -1)
        y[:4] = torch.tensor([0, 1, 0, 1])
        return h, y

    def test_two_isolated_unlabelled_nodes(self):
        h, y = self.islands(2)
        with pytest.raises(SingularReadoutError, match="nodes 9 and 10"):
            SemiSupRKMReadout(1, 2, kernel=RBF(1.0)).double()(h, y)

    def test_one_is_fine_and_so_is_another_eta(self):
        h, y = self.islands(1)
        assert bool(SemiSupRKMReadout(1, 2, kernel=RBF(1.0)).double()(h, y).isfinite().all())
        h, y = self.islands(3)
        assert bool(SemiSupRKMReadout(1, 2, kernel=RBF(1.0), eta=1.1).double()(h, y).isfinite().all())

    def test_graph_isolated_nodes_are_fine(self):
        data = make_graph(40)
        assert {38, 39}.isdisjoint(data.edge_index.flatten().tolist())
        readout = SemiSupRKMReadout(8, 3, kernel=RBF(4.0))
        assert bool(readout(data.x, data.y, data.train_mask).isfinite().all())

    def test_kernel_degrees_must_be_positive(self):
        h = torch.tensor([[1.0], [-1.0], [0.5]])
        with pytest.raises(DegreeError, match=r"node 1 has the kernel degree -0\.5"):
            SemiSupRKMReadout(1, 2, kernel=Linear())(h, torch.tensor([0, 1, -1]))
