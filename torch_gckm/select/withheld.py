"""What readouts predict for labels that were withheld, one of every class at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_gckm.nn.readout_fit import ReadoutFit
from torch_gckm.readout import class_similarity

_REPEATS = 50  # Groups of one label per class.
_MOST_LABELS = 3000  # With more, groups would need too large a matrix, and single labels say enough.


def groups_to_withhold(classes: Tensor) -> Tensor:
    """Random groups of labels, one of every class that has two; places among the labels, ``[groups, size]``.

    There are no columns if no class has two labels, or if there are so many labels that single ones say enough.

    Args:
        classes: The classes of the labelled nodes.
    """
    return one_per_class(classes if classes.numel() <= _MOST_LABELS else classes[:0], _REPEATS)


@torch.no_grad()
def withheld_similarity(fit: ReadoutFit, codes: Tensor, groups: Tensor) -> Tensor:
    """A score for every class of every withheld label, the groups one after the other, ``[groups * size, classes]``.

    Args:
        fit: A readout that was just solved.
        codes: The class codes, ``[classes, p]``.
        groups: Groups of :func:`groups_to_withhold`.
    """
    withheld = fit.leave_out(fit.labelled[groups])
    return class_similarity(torch.cat(list(withheld)), codes)


def one_per_class(classes: Tensor, repeats: int, seed: int = 0) -> Tensor:
    """Random groups with one node of every class that has at least two, ``[repeats, groups' size]``.

    Args:
        classes: The classes of the labelled nodes, ``[n]``.
        repeats: The number of groups.
        seed: The same seed gives the same groups.

    Returns:
        Places among the labelled nodes; no columns if every class has a single one.
    """
    generator = torch.Generator().manual_seed(seed)
    columns = []
    for group in classes.unique().tolist():
        members = (classes == group).nonzero().squeeze(1)
        if members.numel() > 1:
            columns.append(members[torch.randint(members.numel(), (repeats,), generator=generator)])
    return torch.stack(columns, dim=1) if columns else torch.empty(repeats, 0, dtype=torch.long)
