"""What a readout knows once it is solved, beside its dual variables."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import NotFittedError
from torch_gckm.gram import Gram, describe_matrix
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.layouts import same_values
from torch_gckm.nn.extension import Extension, readout_extension
from torch_gckm.nn.record import Record
from torch_gckm.readout import ReadoutProblem, ReadoutSolution, Targets, places_of, withhold_groups, withhold_one


class _Extended(NamedTuple):
    """An extension, and the kernel and regularisation that it belongs to."""

    kernel: tuple[object, ...]
    eta: float
    extension: Extension


class ReadoutFit(Record):
    r"""The solution of a :class:`~torch_gckm.SemiSupRKMReadout` for some features and labels.

    Args:
        gram: The kernel matrix of the features.
        solution: The solution of the linear system.
        targets: The labels, with the weights that were used.
        dtype: The type to keep numbers in.

    Attributes:
        scores: The scores :math:`E`, ``[n, p]``.
        alpha: The dual variables :math:`a = R H`, ``[n, p]``.
        bias: The bias :math:`b`, ``[p]``.
        label_weight: The weights of the labels, ``[n]``.
        label_class: The classes of the labels, ``[n]``, -1 for unlabelled nodes.
        landmarks: The landmarks of the kernel matrix, ``[m]``; empty if it is exact.
        error: The error of the kernel matrix.
        gram: The kernel matrix itself, for a solve with other labels; copies do without.
        solution: The factors of the solve, for leave-out scores; copies do without.
    """

    scores: Tensor
    alpha: Tensor
    bias: Tensor
    label_weight: Tensor
    label_class: Tensor
    landmarks: Tensor
    error: Tensor

    def __init__(self, gram: Gram, solution: ReadoutSolution, targets: Targets, dtype: torch.dtype) -> None:
        marks = torch.empty(0, dtype=torch.long) if gram.landmarks is None else gram.landmarks
        tensors = {
            "scores": solution.scores.detach().to(dtype),
            "alpha": solution.alpha.detach().to(dtype),
            "bias": solution.bias.detach().to(dtype),
            "label_weight": targets.weight.to(dtype),
            "label_class": targets.classes,
            "landmarks": marks,
            "error": torch.tensor(gram.error(), dtype=dtype),
        }
        super().__init__(tensors, gram.rows.detach().tensors(gram.kernel.views))
        self.gram: Gram | None = gram if not (gram.rows.requires_grad or gram.kernel.is_learned) else None
        self.solution: ReadoutSolution | None = solution
        self._kernel: tuple[object, ...] | None = gram.kernel.key()
        self._extended: _Extended | None = None

    @property
    def labelled(self) -> Tensor:
        """The labelled nodes, in increasing order."""
        return panels.rows_where(self.label_class >= 0)

    @property
    def known_landmarks(self) -> Tensor | None:
        """The landmarks to use again, ``None`` if the matrix is exact."""
        return self.landmarks if self.landmarks.numel() else None

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
        known = self._extended
        if known is None or known.kernel != kernel.key() or known.eta != eta:
            with torch.no_grad():
                rows = self.rows()
                made = readout_extension(matrix(rows.to(torch.float64)), rows, self.alpha, self.bias, eta)
            self._extended = known = _Extended(kernel.key(), eta, made)
        return known.extension

    def forget(self) -> None:
        self.gram = self.solution = self._kernel = self._extended = None

    def _factors(self) -> ReadoutSolution:
        if self.solution is None:
            raise NotFittedError("leave-out scores need the factors of a solve; call readout(h, y, train_mask) first")
        return self.solution
