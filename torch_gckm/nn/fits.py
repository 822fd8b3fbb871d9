"""What a layer or a readout knows once it is fitted, beside its dual variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import blocks, filled
from torch_gckm.errors import NotFittedError
from torch_gckm.gram import Gram, describe_matrix
from torch_gckm.graph.topology import EdgeIdentity
from torch_gckm.kernels import Kernel, Rows, as_rows
from torch_gckm.layouts import same_values
from torch_gckm.nn.extension import Extension, Record, resize
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

_DIAGONAL = 1e-5  # Rounding of a matrix of eigenvalues, relative to the largest.


class _Extended(NamedTuple):
    """An extension, and the kernel and the embedding or regularisation that it belongs to."""

    kernel: tuple[object, ...]
    of: Tensor
    extension: Extension


class Fit(Record):
    """What a fitted layer or readout keeps: tensors of its own, the features, and what is known of the kernel matrix.

    ``landmarks``, ``[m]``, are empty if the matrix is exact. The matrix itself, ``gram``, serves the next loss or
    solve; copies do without.
    """

    landmarks: Tensor
    error: Tensor

    def __init__(self, gram: Gram, tensors: Mapping[str, Tensor], error: float, dtype: torch.dtype) -> None:
        marks = torch.empty(0, dtype=torch.long) if gram.landmarks is None else gram.landmarks
        matrix = {"landmarks": marks, "error": torch.tensor(error, dtype=dtype)}
        super().__init__({**tensors, **matrix}, gram.rows.detach().tensors(gram.kernel.views))
        self.partition = gram.partition
        self.gram: Gram | None = gram
        self._kernel: tuple[object, ...] | None = gram.kernel.key()
        self._extended: _Extended | None = None

    @property
    def known_landmarks(self) -> Tensor | None:
        """The landmarks to use again, ``None`` if the matrix is exact."""
        return self.landmarks if self.landmarks.numel() else None

    @property
    def description(self) -> str:
        """What represents the kernel matrix, with its rank and error if it is not exact."""
        num_nodes = self.partition.all_rows(next(iter(self.views.values())).size(0))
        return describe_matrix(num_nodes, self.landmarks.numel() or None, float(self.error))

    def is_of(self, kernel: Kernel) -> bool:
        """Whether the matrix is one of this kernel as it is now."""
        return self._kernel == kernel.key()

    def forget(self) -> None:
        self.gram = self._kernel = self._extended = None

    def extension(self, kernel: Kernel, of: Tensor, matrix: Callable[[Rows], Gram]) -> Extension:
        """What the fit predicts for any node, seen or new; made once for a kernel and the embedding or ``eta``."""
        known = self._extended
        is_known = known is not None and known.kernel == kernel.key() and torch.equal(known.of, of)
        if not self.partition.processes.everywhere(is_known) or known is None:
            with torch.no_grad():
                rows = self.rows()
                gram = matrix(rows.to(torch.float64))
                nodes, weights, offset = self._extend(gram, of.detach().double())
                views = (rows if nodes is None else rows.rows(nodes)).tensors(gram.kernel.views)
            known = _Extended(kernel.key(), of.detach().clone(), Extension(views, weights, offset))
            self._extended = known
        return known.extension

    def _extend(self, gram: Gram, of: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """Nodes, ``None`` for all, weights of kernel values with them, and an offset."""
        raise NotImplementedError


class FittedModule(torch.nn.Module):
    """A fitted layer or readout: its dual variables ``h`` and one ``fitted``, which is replaced as a whole."""

    h: torch.nn.Parameter
    fitted: Any
    kind_of_fit: type[Fit]

    @classmethod
    def names_over_nodes(cls) -> list[str]:
        """The entries of a state dict with a row per node, except the features of the fit."""
        return ["h", *(f"fitted.{name}" for name in cls.kind_of_fit.over_nodes)]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        loaded = state_dict.get(prefix + "h")
        if loaded is not None:  # The fit takes the sizes of what is loaded.
            resize(self.h, loaded.shape)
            before, self.fitted = self.fitted, self.kind_of_fit.from_state(state_dict, prefix + "fitted.", self.h)
            if before is not None and self.fitted is not None:  # Of the same nodes, such as after a step of training.
                self.fitted.partition = before.partition
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class LayerFit(Fit):
    """The fit of a :class:`~torch_gckm.GCKMConv` to a graph; the error is by default that of ``gram``."""

    eigenvalues: Tensor  # Those found at the initialisation, [s].
    scale: Tensor  # The factors of the embedding's columns in the layer's output, [s].
    graph: Tensor  # The identity of the edges.

    def __init__(
        self, gram: Gram, eigenvalues: Tensor, scale: Tensor, graph: EdgeIdentity, error: float | None = None
    ) -> None:
        tensors = {"eigenvalues": eigenvalues, "scale": scale, "graph": torch.tensor(graph)}
        super().__init__(gram, tensors, gram.error() if error is None else error, eigenvalues.dtype)

    @property
    def edges(self) -> EdgeIdentity:
        """The identity of the edges."""
        return EdgeIdentity(*self.graph.tolist())

    def matrix_of(self, kernel: Kernel, rows: Rows) -> Gram | None:
        """The kernel matrix of the fit, if these are its features and the kernel has not changed."""
        gram = self.gram
        if gram is None or kernel.is_learned or not gram.rows.same_as(rows) or self._kernel != kernel.key():
            return None
        return gram

    def moved(self, gram: Gram) -> LayerFit:
        """The same fit on the kernel matrix of other features, as they are after a step of training."""
        return LayerFit(gram, self.eigenvalues, self.scale, self.edges, float(self.error))

    def _extend(self, gram: Gram, of: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        r"""The out-of-sample map :math:`(K_{new} H_c - \frac1n 1 1' K H_c) (H' K_c H)^{-1}`, times the scale."""
        over = self.partition
        centred = panels.centred(of, over)
        product = gram.matmul(centred)
        spectrum, values = panels.cross(centred, product, over), self.eigenvalues.double()
        nodes, weights = gram.representer(centred)
        mean = panels.column_means(product, over).unsqueeze(0)
        # At kernel PCA the matrix is diagonal up to rounding, which must not mix with small eigenvalues.
        if float((spectrum - values.diag()).abs().max()) < _DIAGONAL * float(values.abs().max()):
            turned, offset = weights / values, mean / values
        else:
            turned, offset = (torch.linalg.solve(spectrum, right, left=False) for right in (weights, mean))
        scale = self.scale.double()
        return nodes, turned * scale, -offset[0] * scale


def spectral_scale(eigenvalues: Tensor, num_nodes: int, power: float) -> Tensor:
    r"""The factors :math:`(\lambda / \lambda_1)^{power} \sqrt n` of an embedding's columns; ones for power 0."""
    if power == 0:
        return torch.ones_like(eigenvalues)
    values = eigenvalues.double().clamp(min=0.0)
    return ((values / values.max().clamp(min=1e-300)).pow(power) * num_nodes**0.5).to(eigenvalues.dtype)


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


def own_rows(rows: Rows, views: Sequence[str]) -> Rows:
    """A copy of features, whose owner may write to them; gradients pass through."""
    tensors = {name: tensor.clone() for name, tensor in rows.tensors(views).items()}
    return as_rows(tensors["h"] if set(tensors) == {"h"} else tensors)
