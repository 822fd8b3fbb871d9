"""What readouts say about labels that were withheld, one of every class at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_gckm.nn import SemiSupRKMReadout
from torch_gckm.nn.coding import class_similarity
from torch_gckm.train.metrics import one_per_class

_REPEATS = 50  # Groups of one label a class.
_MOST_LABELS = 3000  # With more, groups would need too large a matrix, and single labels say enough.


def groups_to_withhold(classes: Tensor) -> Tensor:
    """Random groups of labels, one of every class that has two; places among the labels, ``[groups, size]``.

    There are no columns if no class has two labels, or if there are so many labels that single ones say enough.

    Args:
        classes: The classes of the labelled nodes.
    """
    return one_per_class(classes if classes.numel() <= _MOST_LABELS else classes[:0], _REPEATS)


@torch.no_grad()
def withheld_similarity(readout: SemiSupRKMReadout, groups: Tensor) -> Tensor:
    """A score for every class of every withheld label, the groups one after the other, ``[groups * size, classes]``.

    Args:
        readout: A readout that was just solved.
        groups: Groups of :func:`groups_to_withhold`.
    """
    withheld = readout.leave_out(readout.labelled[groups])
    return class_similarity(torch.cat(list(withheld)), readout.codes)
