r"""Scores of labelled nodes had their own labels been withheld, in closed form.

Scores are linear in the labels, :math:`E = G L C / \lambda_2`. With :math:`G_B = G_{BB} L_B / \lambda_2`, taking away
the labels of a set :math:`B` leaves :math:`E_B^{\textrm{out}} = (I - G_B)^{-1} (E_B - G_B C_B)`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_gckm.errors import InvalidLabelError
from torch_gckm.gram import ReadoutSolution


def withhold_one(solution: ReadoutSolution, index: Tensor, codes: Tensor, weight: Tensor) -> Tensor:
    r"""Withhold one label at a time.

    Args:
        solution: The solution for all labels.
        index: The labelled nodes, ``[b]``.
        codes: Their class codes, ``[b, p]``.
        weight: Their label weights over :math:`\lambda_2`, ``[b]``.
    """
    leverage = (solution.leverage(index) * weight).unsqueeze(1)
    return (solution.scores[index] - leverage * codes) / (1.0 - leverage)


def withhold_groups(
    solution: ReadoutSolution, index: Tensor, codes: Tensor, weight: Tensor, places: Sequence[Tensor]
) -> list[Tensor]:
    """Withhold the labels of a group at a time; see :func:`withhold_one`.

    Args:
        solution: The solution for all labels.
        index: The labelled nodes.
        codes: Their class codes.
        weight: Their label weights.
        places: For each group, the places of its nodes in ``index``.
    """
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


def places_of(group: Tensor | Sequence[int], index: Tensor) -> Tensor:
    """The places in ``index``, which is in increasing order, of a group's nodes; all must be there, and different."""
    nodes = torch.as_tensor(group, device=index.device)
    nodes = nodes.nonzero().squeeze(1) if nodes.dtype == torch.bool else nodes.long().view(-1)
    places = torch.searchsorted(index, nodes).clamp(max=index.numel() - 1)
    unknown = nodes[index[places] != nodes]
    if unknown.numel() or nodes.unique().numel() < nodes.numel():
        shown = (unknown if unknown.numel() else nodes)[:5].tolist()
        raise InvalidLabelError(f"a group must hold different labelled nodes, got {shown}")
    return places
