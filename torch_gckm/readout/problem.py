r"""The readout's linear system: its data, what a solution knows, and what follows from one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import blocks, filled
from torch_gckm.errors import DegreeError, InvalidInputError, InvalidLabelError
from torch_gckm.gram import Gram
from torch_gckm.kernels import Rows
from torch_gckm.partition import WHOLE, Partition

ALL = slice(None)


@dataclass(frozen=True)
class ReadoutProblem:
    r"""The data of the semi-supervised readout: label weights :math:`l`, class codes :math:`C` and hyperparameters.

    The weights, ``[n]``, are zero for unlabelled nodes, whose rows of the codes, ``[n, p]``, do not matter.
    """

    weight: Tensor
    codes: Tensor
    eta: float
    lambda1: float
    lambda2: float

    def r(self, degrees: Tensor) -> Tensor:
        r""":math:`r_i = v_i / \lambda_1 - l_i / \lambda_2` with :math:`v_i` the inverse degree, ``[n]``."""
        return 1.0 / (self.lambda1 * degrees) - self.weight.to(degrees) / self.lambda2

    def labels(self, dtype: torch.dtype, rows: slice | Tensor = ALL) -> Tensor:
        r"""The label term :math:`S = L C / \lambda_2`, ``[n, p]``, or some of its rows."""
        return self.weight[rows].to(dtype).unsqueeze(1) * self.codes[rows].to(dtype) / self.lambda2


class ReadoutSolution(ABC):
    """The solution of the readout's linear system, differentiable in the features."""

    problem: ReadoutProblem
    scores: Tensor  # E, [n, p].
    bias: Tensor  # b, [p].
    r: Tensor  # The diagonal of R, [n].
    degrees: Tensor  # The kernel degrees K 1, [n].
    partition: Partition = WHOLE  # Which rows these are; nodes are named by their global numbers.

    def alpha(self, rows: slice = ALL) -> Tensor:
        r"""Some rows of :math:`a = R H = R E + S`, ``[n, p]``."""
        return self.r[rows].unsqueeze(1) * self.scores[rows] + self.problem.labels(self.r.dtype, rows)

    def duals(self, rows: slice = ALL) -> Tensor:
        r"""Some rows of :math:`H = R^{-1} a`, ``[n, p]``."""
        return self.alpha(rows) / self.r[rows].unsqueeze(1)

    def product(self, rows: slice = ALL) -> Tensor:
        r"""Some rows of :math:`K a`, ``[n, p]``, which the scores :math:`E = K a / \eta + 1 b'` contain."""
        return self.problem.eta * (self.scores[rows] - self.bias)

    @abstractmethod
    def scores_for(self, codes: Tensor) -> Tensor:
        r"""The scores :math:`G L C / \lambda_2` that the labelled nodes would cause with other codes, ``[n, q]``."""

    @abstractmethod
    def columns(self, index: Tensor) -> Callable[[Tensor], Tensor]:
        r"""Columns :math:`G_{:B}` of the symmetric map :math:`E = G S` from labels to scores, some rows at a time.

        It reuses the factorisation of the solve: one right-hand side per node of :math:`B`, here; what is returned
        makes ``[r, b]`` of ``r`` rows.
        """

    def response(self, index: Tensor) -> Tensor:
        r"""The block :math:`G_{BB}`, ``[b, b]``; see :meth:`columns`."""
        return self.columns(index)(index)

    def leverage(self, index: Tensor) -> Tensor:
        r"""The diagonal of :meth:`response`, ``[b]``."""
        return self.response(index).diagonal()


def check_degrees(degrees: Tensor, over: Partition = WHOLE) -> None:
    """Refuse nodes whose kernel degree is not positive, naming the first."""
    bad = ~(degrees > 0)
    if panels.holds_somewhere(bad, over):
        node, count = panels.first(bad, over), panels.count(bad, over)
        raise DegreeError(
            f"node {node} has the kernel degree {over.number_at(degrees, node):.3g} ({count} nodes are not "
            "positive); the readout weighs nodes by 1/degree: use a kernel with positive values, such as RBF"
        )


def withhold_one(
    solution: ReadoutSolution, index: Tensor, codes: Tensor, weight: Tensor, constant: Tensor | None = None
) -> Tensor:
    r"""Scores of labelled nodes had their own labels been withheld, one at a time, in closed form.

    Scores are linear in the labels, :math:`E = G L C / \lambda_2`. With :math:`G_B = G_{BB} L_B / \lambda_2`, taking
    away the labels of a set :math:`B` leaves :math:`E_B^{\textrm{out}} = (I - G_B)^{-1} (E_B - G_B C_B)`.

    Codes that are centred by their own mean move by :math:`\delta` when labels are withheld, because the mean does.
    With ``constant``, the scores :math:`u = G L 1 / \lambda_2` of constant codes at the labelled nodes, ``[b, 1]``,

    .. math::
        \delta_B = -\frac{\sum_{i \in B} l_i c_i}{\sum_{i \notin B} l_i}, \qquad
        E_B^{\textrm{out}} = (I - G_B)^{-1} (E_B - u_B \delta_B' - G_B (C_B - 1 \delta_B')) + 1 \delta_B'.
    """
    leverage = (solution.leverage(index) * weight).unsqueeze(1)
    scores = solution.partition.pick(solution.scores, index)
    if constant is None:
        return (scores - leverage * codes) / (1.0 - leverage)
    share = weight.unsqueeze(1)
    shift = -share * codes / (panels.total(weight) - share)
    return (scores - constant * shift - leverage * (codes - shift)) / (1.0 - leverage) + shift


def withhold_groups(
    solution: ReadoutSolution,
    index: Tensor,
    codes: Tensor,
    weight: Tensor,
    places: Sequence[Tensor],
    constant: Tensor | None = None,
) -> list[Tensor]:
    """Withhold the labels of a group at a time; see :func:`withhold_one`."""
    response, scores = solution.response(index) * weight, solution.partition.pick(solution.scores, index)
    results = [scores.new_empty(0)] * len(places)
    for size in {at.numel() for at in places}:  # Groups of one size are solved together.
        numbers = [number for number, at in enumerate(places) if at.numel() == size]
        at = torch.stack([places[number] for number in numbers])
        block = response[at.unsqueeze(2), at.unsqueeze(1)]
        system = torch.eye(size, dtype=block.dtype, device=block.device) - block
        seen, own, shift = scores[at], codes[at], torch.zeros((), dtype=scores.dtype, device=scores.device)
        if constant is not None:
            if size == index.numel():
                raise InvalidLabelError("a group holds all labelled nodes; the mean of the others is not defined")
            share = weight[at].unsqueeze(2)
            shift = -(share * own).sum(dim=1, keepdim=True) / (panels.total(weight) - share.sum(dim=1, keepdim=True))
            seen, own = seen - constant[at] * shift, own - shift
        withheld = torch.linalg.solve(system, seen - block @ own) + shift
        for number, part in zip(numbers, withheld, strict=True):
            results[number] = part
    return results


def places_of(groups: Sequence[Tensor | Sequence[int]] | Tensor, index: Tensor) -> Sequence[Tensor]:
    """For each group, the places of its nodes in ``index``, which is in increasing order."""
    if isinstance(groups, Tensor) and groups.dtype != torch.bool and groups.dim() == 2:
        return list(_checked_places(groups.to(index), index))
    places = []
    for group in groups:
        nodes = torch.as_tensor(group, device=index.device)
        nodes = nodes.nonzero().squeeze(1) if nodes.dtype == torch.bool else nodes.long().view(-1)
        places.append(_checked_places(nodes.unsqueeze(0), index)[0])
    return places


def _checked_places(nodes: Tensor, index: Tensor) -> Tensor:
    places = torch.searchsorted(index, nodes).clamp(max=index.numel() - 1)
    unknown = index[places] != nodes
    twice = places.sort(dim=1).values.diff(dim=1) == 0
    if bool(unknown.any()) or bool(twice.any()):
        shown = nodes[unknown][:5] if bool(unknown.any()) else nodes[twice.any(dim=1)][0, :5]
        raise InvalidLabelError(f"a group must hold different labelled nodes, got {shown.tolist()}")
    return places


def dual_objective(
    gram: Gram, rows: Rows, problem: ReadoutProblem, duals: Tensor, solution: ReadoutSolution | None = None
) -> Tensor:
    r"""The readout's objective with constant duals :math:`H`, differentiable in the features.

    .. math::
        -\frac{1}{2 \eta} \mathrm{Tr}(H' R K R H) + \frac12 \mathrm{Tr}(H' R H)
        - \frac{1}{\lambda_2} \mathrm{Tr}(H' L C)

    Gradients flow to ``rows``, the features of ``gram``, through :math:`K` and through the degrees in :math:`R`. If the
    duals, ``[n, p]``, solve the problem, the ``solution`` knows what would be computed again.
    """
    over, undefined = gram.partition, torch.empty(duals.size(0), dtype=torch.bool, device=duals.device)
    for block in blocks(*duals.shape):
        undefined[block] = ~duals[block].isfinite().all(dim=1)
    if panels.holds_somewhere(undefined, over):
        raise InvalidInputError(
            f"the dual variables of node {panels.first(undefined, over)} are not defined because r is zero there; "
            "change lambda1 or lambda2 slightly to fine-tune"
        )
    is_tracked = torch.is_grad_enabled()
    with torch.no_grad():
        if solution is not None:
            degrees, r = solution.degrees.to(duals), solution.r.to(duals)
        else:
            degrees = gram.degrees()
            r = problem.r(degrees)
            product = gram.matmul(r.unsqueeze(1) * duals)
        slope_r = torch.empty_like(r)

        def part(rows: slice) -> Tensor:
            """What some rows add to the objective."""
            h, scale = duals[rows], r[rows]
            if solution is not None:
                own, alpha = solution.product(rows).to(duals), solution.alpha(rows).to(duals)
            else:
                own, alpha = product[rows], scale.unsqueeze(1) * h
            sq_norm = h.square().sum(dim=1)
            slope_r[rows] = sq_norm / 2 - (h * own).sum(dim=1) / problem.eta
            quadratic = (scale * sq_norm).sum() / 2 - (alpha * own).sum() / (2 * problem.eta)
            return quadratic - (problem.labels(duals.dtype, rows) * h).sum()

        value = panels.accumulate((part(rows) for rows in blocks(*duals.shape)), over)
        if not is_tracked:
            return value
        slope_degree = -slope_r / (problem.lambda1 * degrees.square())
        alpha = r.unsqueeze(1) * duals if solution is None else filled(solution.alpha, duals, duals.dtype)
    # One bilinear form in K carries the whole gradient: -a'(dK)a/(2 eta) and the slope times d(K1).
    left = torch.cat([alpha / (-2 * problem.eta), slope_degree.unsqueeze(1)], dim=1)
    right = torch.cat([alpha, torch.ones_like(slope_degree).unsqueeze(1)], dim=1)
    carrier = gram.tracking(rows).bilinear(left, right)
    return value + (carrier - carrier.detach())
