r"""Scores of labelled nodes had their own labels been withheld, in closed form.

Scores are linear in the labels, :math:`E = G L C / \lambda_2`. With :math:`G_B = G_{BB} L_B / \lambda_2`, taking away
the labels of a set :math:`B` leaves :math:`E_B^{\textrm{out}} = (I - G_B)^{-1} (E_B - G_B C_B)`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_gckm.errors import InvalidLabelError
from torch_gckm.readout.problem import ReadoutSolution


def withhold_one(solution: ReadoutSolution, index: Tensor, codes: Tensor, weight: Tensor) -> Tensor:
    r"""Withhold one label at a time."""
    leverage = (solution.leverage(index) * weight).unsqueeze(1)
    return (solution.scores[index] - leverage * codes) / (1.0 - leverage)


def withhold_groups(
    solution: ReadoutSolution, index: Tensor, codes: Tensor, weight: Tensor, places: Sequence[Tensor]
) -> list[Tensor]:
    """Withhold the labels of a group at a time; see :func:`withhold_one`."""
    response, scores = solution.response(index) * weight, solution.scores[index]
    results = [scores.new_empty(0)] * len(places)
    for size in {at.numel() for at in places}:  # Groups of one size are solved together.
        numbers = [number for number, at in enumerate(places) if at.numel() == size]
        at = torch.stack([places[number] for number in numbers])
        block = response[at.unsqueeze(2), at.unsqueeze(1)]
        system = torch.eye(size, dtype=block.dtype, device=block.device) - block
        withheld = torch.linalg.solve(system, scores[at] - block @ codes[at])
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
