"""What a readout knows once it is fitted, beside its dual variables."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import blocks, filled
from torch_gckm.errors import NotFittedError
from torch_gckm.gram import Gram
from torch_gckm.kernels import Kernel, Rows
from torch_gckm.layouts import same_values
from torch_gckm.nn.fits import Fit
from torch_gckm.readout import (
    ReadoutProblem,
    ReadoutSolution,
    RealTargets,
    Targets,
    leverage_of,
    places_of,
    withheld_in_groups,
    withheld_one_by_one,
)


class ReadoutFit(Fit):
    """The solution of a :class:`~torch_gckm.SemiSupRKMReadout` for some features and labels.

    ``solution`` holds the factors of the solve, for leave-out scores; copies do without.
    """

    scores: Tensor  # E, [n, p].
    alpha: Tensor  # a = R H, [n, p].
    bias: Tensor  # b, [p].
    label_weight: Tensor  # The weights that were used, [n].
    label_class: Tensor  # [n], -1 for unlabelled nodes.
    counts: Tensor  # How many labels every class has, [num_classes].
    # Real targets only: centred, [n, p], NaN where a labelled node lacks one; their mean, [p], which scores contain.
    label_value: Tensor
    centre: Tensor
    over_nodes = ("scores", "alpha", "label_weight", "label_class", "label_value")

    def __init__(self, gram: Gram, solution: ReadoutSolution, targets: Targets, dtype: torch.dtype) -> None:
        scores = solution.scores.detach()
        with torch.no_grad():
            alpha = filled(solution.alpha, scores, dtype)
        tensors = {
            "scores": scores,
            "alpha": alpha,
            "bias": solution.bias.detach(),
            "label_weight": targets.weight,
        }
        if isinstance(targets, RealTargets):
            centre = targets.centre
            value = targets.values - centre
            value = torch.where(targets.is_labelled.unsqueeze(1), value, 0.0)
            more = {"label_value": value, "centre": centre}
            tensors |= {"scores": tensors["scores"] + centre, "bias": tensors["bias"] + centre, **more}
        tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
        tensors |= {"label_class": targets.classes, "counts": targets.counts()}
        super().__init__(gram, tensors, gram.error(), dtype)
        if gram.rows.requires_grad or gram.kernel.is_learned:
            self.gram = None
        self.solution: ReadoutSolution | None = solution

    @property
    def labelled(self) -> Tensor:
        """The labelled nodes, in increasing order, by their global numbers."""
        return panels.rows_where(self.label_class >= 0, self.partition)

    @property
    def labels(self) -> Tensor:
        """The classes of the labelled nodes, ``[b]``."""
        return self.partition.pick(self.label_class, self.labelled)

    @property
    def has_values(self) -> bool:
        """Whether the targets are numbers."""
        return "centre" in self._buffers

    @property
    def known_entries(self) -> Tensor | None:
        """Which targets of the labelled nodes are known, ``[b, p]``; ``None`` if all are."""
        if not self.has_values:
            return None
        known = ~self.partition.pick(self.label_value, self.labelled).isnan()
        return None if panels.holds_everywhere(known) else known

    def coded(self, codes: Tensor) -> Tensor:
        """What was solved for, ``[n, p]``: the codes ``[num_classes, p]`` of classes, or centred targets."""
        if self.solution is not None:
            return self.solution.problem.codes
        if self.known_entries is not None:
            raise NotFittedError("some targets are known in part; call readout(h, y, train_mask) again first")
        return self.label_value if self.has_values else codes[self.label_class.clamp(min=0)]

    def matrix_of(self, kernel: Kernel, rows: Rows) -> Gram | None:
        """The kernel matrix of the fit, if these are its features and the kernel has not changed."""
        if self.gram is None or self._kernel != kernel.key():
            return None
        given = rows.detach().tensors(kernel.views)
        is_same = all(same_values(given[name], view) for name, view in self.views.items())
        return self.gram if self.partition.processes.everywhere(is_same) else None

    def solution_of(self, problem: ReadoutProblem, duals: Tensor) -> ReadoutSolution | None:
        """The solution, if it is that of a problem with these hyperparameters and these are its dual variables."""
        if self.solution is None:
            return None
        known = self.solution.problem
        same = (known.eta, known.lambda1, known.lambda2) == (problem.eta, problem.lambda1, problem.lambda2)
        with torch.no_grad():
            parts = ((self.solution.duals(rows).to(duals.dtype), duals[rows]) for rows in blocks(*duals.shape))
            is_known = same and all(torch.equal(found, given) for found, given in parts)
        return self.solution if self.partition.processes.everywhere(is_known) else None

    def leave_out(self, groups: Sequence[Tensor | Sequence[int]] | Tensor | None = None) -> Tensor | list[Tensor]:
        """See :meth:`SemiSupRKMReadout.leave_out <torch_gckm.SemiSupRKMReadout.leave_out>`."""
        solution, index, known, is_centred = self._factors(), self.labelled, self.known_entries, self.has_values
        centre = self.centre if is_centred else torch.zeros((), dtype=self.scores.dtype, device=self.scores.device)
        if groups is None:
            withheld = withheld_one_by_one(solution, index, known, centred=is_centred)
            return (withheld + centre).to(self.scores.dtype)
        parts = withheld_in_groups(solution, index, known, places_of(groups, index), centred=is_centred)
        return [(part + centre).to(self.scores.dtype) for part in parts]

    def leave_one_out(self) -> Tensor:
        """Exact leave-one-out scores of the labelled nodes, ``[num_labelled, p]``, in the order of the nodes."""
        result = self.leave_out()
        assert isinstance(result, Tensor)
        return result

    def leverage(self) -> Tensor:
        r"""The pull of every label on its own score, :math:`g_i = G_{ii} l_i / \lambda_2`, ``[num_labelled]``."""
        return leverage_of(self._factors(), self.labelled, self.known_entries).to(self.scores.dtype)

    def _extend(self, gram: Gram, of: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        r"""The out-of-sample map :math:`K_{new} a / \eta + b`."""
        nodes, weights = gram.representer(self.alpha.double())
        return nodes, weights / of, self.bias

    def forget(self) -> None:
        super().forget()
        self.solution = None

    def _factors(self) -> ReadoutSolution:
        if self.solution is None:
            raise NotFittedError("leave-out scores need the factors of a solve; call readout(h, y, train_mask) first")
        return self.solution
