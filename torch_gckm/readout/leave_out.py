r"""Scores of labelled nodes had their own labels been withheld, in closed form.

Scores are linear in the labels, :math:`E = G L C / \lambda_2`. With :math:`G_B = G_{BB} L_B / \lambda_2`, taking away
the labels of a set :math:`B` leaves :math:`E_B^{\textrm{out}} = (I - G_B)^{-1} (E_B - G_B C_B)`.

**Centred codes.** Codes that are centred by their own mean move by :math:`\delta` when labels are withheld, because the
mean does. With the scores :math:`u = G L 1 / \lambda_2` of constant codes,

.. math::
    \delta_B = -\frac{\sum_{i \in B} l_i c_i}{\sum_{i \notin B} l_i}, \qquad
    E_B^{\textrm{out}} = (I - G_B)^{-1} (E_B - u_B \delta_B' - G_B (C_B - 1 \delta_B')) + 1 \delta_B'.

**Codes that are known in part.** All columns share one system, in which a node has a label in every column or in
none. A label equal to the score that its node has without it changes nothing. So a column with unknown entries
:math:`M` is solved with :math:`C_M = (I - G_M)^{-1} E_M`, where :math:`E` are the scores for :math:`C_M = 0`: it is as
if these labels did not exist. The column's map from labels to scores is then
:math:`G_{KK} + G_{KM} L_M / \lambda_2 (I - G_M)^{-1} G_{MK}` on the known entries :math:`K`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError, InvalidLabelError
from torch_gckm.gram import Gram
from torch_gckm.readout.problem import ReadoutProblem, ReadoutSolution
from torch_gckm.readout.solutions import solve
from torch_gckm.readout.targets import Targets
from torch_gckm.readout.values import RealTargets


@dataclass(frozen=True)
class LabelledNodes:
    """What scores of withheld labels are made of."""

    scores: Tensor  # E, [b, p].
    codes: Tensor  # C, [b, p].
    weight: Tensor  # l / lambda2, [b].
    constant: Tensor | None = None  # The scores u of constant codes if codes are centred, [b, 1].

    @classmethod
    def of(cls, solution: ReadoutSolution, index: Tensor, *, centred: bool = False) -> Self:
        """Those of a solution; ``index`` are the labelled nodes, in increasing order."""
        over, problem = solution.partition, solution.problem
        codes = over.pick(problem.codes, index).to(solution.scores)
        weight = over.pick(problem.weight, index).double() / problem.lambda2
        constant = None
        if centred:
            constant = over.pick(solution.scores_for(torch.ones_like(solution.scores[:, :1])), index)
        return cls(over.pick(solution.scores, index), codes, weight, constant)

    def one_at_a_time(self, leverage: Tensor) -> Tensor:
        """Scores without one label at a time, ``[b, p]``; ``leverage`` is the diagonal of :math:`G_{BB}`, ``[b]``."""
        pull = (leverage * self.weight).unsqueeze(1)
        if self.constant is None:
            return (self.scores - pull * self.codes) / (1.0 - pull)
        share = self.weight.unsqueeze(1)
        shift = -share * self.codes / (panels.total(self.weight) - share)
        return (self.scores - self.constant * shift - pull * (self.codes - shift)) / (1.0 - pull) + shift

    def in_groups(self, response: Tensor, places: Sequence[Tensor]) -> list[Tensor]:
        """Scores without the labels of a group at a time; ``response`` is :math:`G_{BB}`, ``[b, b]``."""
        response, results = response * self.weight, [self.scores.new_empty(0)] * len(places)
        for size in {at.numel() for at in places}:  # Groups of one size are solved together.
            numbers = [number for number, at in enumerate(places) if at.numel() == size]
            at = torch.stack([places[number] for number in numbers])
            block = response[at.unsqueeze(2), at.unsqueeze(1)]
            system = torch.eye(size, dtype=block.dtype, device=block.device) - block
            seen, own = self.scores[at], self.codes[at]
            shift = torch.zeros((), dtype=seen.dtype, device=seen.device)
            if self.constant is not None:
                if size == self.weight.numel():
                    raise InvalidLabelError("a group holds all labelled nodes; the mean of the others is not defined")
                share = self.weight[at].unsqueeze(2)
                rest = panels.total(self.weight) - share.sum(dim=1, keepdim=True)
                shift = -(share * own).sum(dim=1, keepdim=True) / rest
                seen, own = seen - self.constant[at] * shift, own - shift
            withheld = torch.linalg.solve(system, seen - block @ own) + shift
            for number, part in zip(numbers, withheld, strict=True):
                results[number] = part
        return results

    def known_part(self, response: Tensor, known: Tensor, columns: Tensor) -> tuple[Self, Tensor]:
        """Some columns, with the nodes ``known``, ``[b]``, in them: as if only these had labels; and their response."""
        missing = ~known
        weight = self.weight[missing]
        system = torch.eye(weight.numel(), dtype=response.dtype, device=response.device)
        system = system - response[missing][:, missing] * weight
        reduced = torch.linalg.solve(system, response[missing][:, known])
        reduced = response[known][:, known] + response[known][:, missing] * weight @ reduced
        own = self.weight[known]
        constant = None if self.constant is None else (reduced @ own).unsqueeze(1)
        part = replace(self, scores=self.scores[known][:, columns], codes=self.codes[known][:, columns])
        return replace(part, weight=own, constant=constant), reduced


def withheld_one_by_one(solution: ReadoutSolution, index: Tensor, known: Tensor | None, *, centred: bool) -> Tensor:
    """Scores of labelled nodes without their own labels, one at a time, ``[b, p]``; NaN for unknown entries.

    Args:
        solution: A solved readout.
        index: The labelled nodes, in increasing order.
        known: Which entries of their codes are known, ``[b, p]``, where not all are.
        centred: Whether codes are centred by their mean.
    """
    nodes = LabelledNodes.of(solution, index, centred=centred)
    if known is None:
        return nodes.one_at_a_time(solution.leverage(index))
    result, response = torch.full_like(nodes.scores, torch.nan), solution.response(index)
    for own, columns in patterns(known):
        part, reduced = nodes.known_part(response, own, columns)
        result[own.nonzero(), columns] = part.one_at_a_time(reduced.diagonal())
    return result


def withheld_in_groups(
    solution: ReadoutSolution, index: Tensor, known: Tensor | None, places: Sequence[Tensor], *, centred: bool
) -> list[Tensor]:
    """The same for groups of labelled nodes, given by their places in ``index``; each is withheld as a whole."""
    nodes, response = LabelledNodes.of(solution, index, centred=centred), solution.response(index)
    if known is None:
        return nodes.in_groups(response, places)
    results = [torch.full_like(nodes.scores[at], torch.nan) for at in places]
    for own, columns in patterns(known):
        part, reduced = nodes.known_part(response, own, columns)
        inside = [own[at] for at in places]
        numbers = own.cumsum(dim=0) - 1
        found = part.in_groups(reduced, [numbers[at[has]] for at, has in zip(places, inside, strict=True)])
        for result, has, values in zip(results, inside, found, strict=True):
            result[has.nonzero(), columns] = values
    return results


def leverage_of(solution: ReadoutSolution, index: Tensor, known: Tensor | None) -> Tensor:
    r"""The pull of every label on its own score, :math:`g_i = G_{ii} l_i / \lambda_2`, the largest of all columns."""
    nodes = LabelledNodes.of(solution, index)
    if known is None:
        return solution.leverage(index) * nodes.weight
    response = solution.response(index)
    result = torch.full_like(nodes.weight, -torch.inf)
    for own, columns in patterns(known):
        part, reduced = nodes.known_part(response, own, columns)
        result[own] = torch.maximum(result[own], reduced.diagonal() * part.weight)
    return result


def solve_for(gram: Gram, problem: ReadoutProblem, targets: Targets) -> ReadoutSolution:
    """The solution of a problem for its targets, of which nodes may have some columns only."""
    solution = solve(gram, problem)
    known = targets.known_entries if isinstance(targets, RealTargets) else None
    if known is None:
        return solution
    if gram.rows.requires_grad or gram.kernel.is_learned:
        raise InvalidInputError("targets that are known in part have no gradients: detach h, or fill them in")
    return solve(gram, replace(problem, codes=_completed(solution, targets.labelled, known)))


def _completed(solution: ReadoutSolution, index: Tensor, known: Tensor) -> Tensor:
    """The codes ``[n, p]`` of a solution whose unknown entries, zero so far, become those that change nothing."""
    nodes, response = LabelledNodes.of(solution, index), solution.response(index)
    filled, codes = nodes.codes.clone(), solution.problem.codes.clone()
    for own, columns in patterns(known):
        missing = ~own
        block = response[missing][:, missing] * nodes.weight[missing]
        system = torch.eye(block.size(0), dtype=block.dtype, device=block.device) - block
        filled[missing.nonzero(), columns] = torch.linalg.solve(system, nodes.scores[missing][:, columns])
    codes[index] = filled.to(codes)
    return codes


def patterns(known: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For columns with the same known entries: these, boolean ``[b]``, and the numbers of the columns."""
    found, place = known.t().unique(dim=0, return_inverse=True)
    for number, own in enumerate(found):
        yield own, panels.rows_where(place == number)


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
