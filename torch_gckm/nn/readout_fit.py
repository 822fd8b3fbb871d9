"""What a readout knows once it is solved, beside its dual variables."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import NotFittedError
from torch_gckm.gram import Gram, describe_matrix
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.layouts import same_values
from torch_gckm.nn.extension import Extension, Fit, readout_extension
from torch_gckm.readout import ReadoutProblem, ReadoutSolution, Targets, places_of, withhold_groups, withhold_one


class ReadoutFit(Fit):
    """The solution of a :class:`~torch_gckm.SemiSupRKMReadout` for some features and labels.

    ``solution`` holds the factors of the solve, for leave-out scores; copies do without.
    """

    scores: Tensor  # E, [n, p].
    alpha: Tensor  # a = R H, [n, p].
    bias: Tensor  # b, [p].
    label_weight: Tensor  # The weights that were used, [n].
    label_class: Tensor  # [n], -1 for unlabelled nodes.

    def __init__(self, gram: Gram, solution: ReadoutSolution, targets: Targets, dtype: torch.dtype) -> None:
        tensors = {
            "scores": solution.scores.detach().to(dtype),
            "alpha": solution.alpha.detach().to(dtype),
            "bias": solution.bias.detach().to(dtype),
            "label_weight": targets.weight.to(dtype),
            "label_class": targets.classes,
        }
        super().__init__(gram, tensors, gram.error(), dtype)
        if gram.rows.requires_grad or gram.kernel.is_learned:
            self.gram = None
        self.solution: ReadoutSolution | None = solution

    @property
    def labelled(self) -> Tensor:
        """The labelled nodes, in increasing order."""
        return panels.rows_where(self.label_class >= 0)

    @property
    def description(self) -> str:
        """What represents the kernel matrix, with its rank and error if it is not exact."""
        return describe_matrix(self.scores.size(0), self.landmarks.numel() or None, float(self.error))

    def matrix_of(self, kernel: Kernel, rows: Rows) -> Gram | None:
        """The kernel matrix of the fit, if these are its features and the kernel has not changed."""
        if self.gram is None or self._kernel != kernel.key():
            return None
        given = rows.detach().tensors(kernel.views)
        return self.gram if all(same_values(given[name], view) for name, view in self.views.items()) else None

    def solution_of(self, problem: ReadoutProblem, duals: Tensor) -> ReadoutSolution | None:
        """The solution, if it is that of a problem with these hyperparameters and these are its dual variables."""
        if self.solution is None:
            return None
        known = self.solution.problem
        same = (known.eta, known.lambda1, known.lambda2) == (problem.eta, problem.lambda1, problem.lambda2)
        found = self.solution.alpha.detach() / self.solution.r.detach().unsqueeze(1)
        return self.solution if same and torch.equal(found.to(duals.dtype), duals) else None

    def leave_out(self, groups: Sequence[Tensor | Sequence[int]] | Tensor | None = None) -> Tensor | list[Tensor]:
        """See :meth:`SemiSupRKMReadout.leave_out <torch_gckm.SemiSupRKMReadout.leave_out>`."""
        solution, index = self._factors(), self.labelled
        codes = solution.problem.codes.to(solution.scores)[index]
        weight = solution.problem.weight[index].double() / solution.problem.lambda2
        if groups is None:
            return withhold_one(solution, index, codes, weight).to(self.scores.dtype)
        withheld = withhold_groups(solution, index, codes, weight, places_of(groups, index))
        return [part.to(self.scores.dtype) for part in withheld]

    def leave_one_out(self) -> Tensor:
        """Exact leave-one-out scores of the labelled nodes, ``[num_labelled, p]``, in the order of the nodes."""
        result = self.leave_out()
        assert isinstance(result, Tensor)
        return result

    def leverage(self) -> Tensor:
        r"""The pull of every label on its own score, :math:`g_i = G_{ii} l_i / \lambda_2`, ``[num_labelled]``."""
        solution, index = self._factors(), self.labelled
        weight = solution.problem.weight[index].double() / solution.problem.lambda2
        return (solution.leverage(index) * weight).to(self.scores.dtype)

    def extension(self, kernel: Kernel, eta: float, matrix: Callable[[Rows], Gram]) -> Extension:
        """What the fit predicts for any node, seen or new; made once."""
        of = torch.tensor(eta, dtype=torch.float64)
        make = partial(readout_extension, alpha=self.alpha, bias=self.bias, eta=eta)
        return self._extension(kernel, of, matrix, make)

    def forget(self) -> None:
        super().forget()
        self.solution = None

    def _factors(self) -> ReadoutSolution:
        if self.solution is None:
            raise NotFittedError("leave-out scores need the factors of a solve; call readout(h, y, train_mask) first")
        return self.solution
