"""From labels and masks to label weights."""

from __future__ import annotations

import warnings
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torch_gckm.errors import InvalidLabelError, UnlabelledClassWarning

ClassWeight = Literal["balanced"] | None


class Labels(NamedTuple):
    """The labels that a fit may see.

    Attributes:
        weight: Label weights, ``[n]``, zero for unlabelled nodes.
        classes: Class numbers, ``[n]``, -1 for unlabelled nodes.
    """

    weight: Tensor
    classes: Tensor


def balance(labels: Labels) -> Labels:
    """The same labels with weights whose sum is the same for every class that has any."""
    labelled = labels.classes >= 0
    mass = torch.zeros(int(labels.classes.max()) + 1, dtype=labels.weight.dtype, device=labels.weight.device)
    mass.index_add_(0, labels.classes[labelled], labels.weight[labelled])
    factor = mass.sum() / (mass > 0).sum() / mass
    return labels._replace(weight=torch.where(labelled, labels.weight * factor[labels.classes.clamp(min=0)], 0.0))


def pick_mask(mask: Tensor, num_nodes: int, split: int | None = None, name: str = "train_mask") -> Tensor:
    """A mask in any of its forms as weights ``[n]``.

    Args:
        mask: Boolean ``[n]``; node indices; non-negative floating-point weights ``[n]``;
            or any of the first and last with one column a split.
        num_nodes: The number of nodes.
        split: The column to use of a mask ``[n, splits]``.
        name: What to call it in an error.
    """
    if mask.dim() == 2:
        if split is None:
            raise InvalidLabelError(f"'{name}' holds {mask.size(1)} splits; choose one with split=")
        if not 0 <= split < mask.size(1):
            raise InvalidLabelError(f"split={split} is not one of the {mask.size(1)} splits of '{name}'")
        mask = mask[:, split]
    if mask.dim() != 1:
        raise InvalidLabelError(f"'{name}' must have one or two dimensions, got shape {tuple(mask.shape)}")
    if mask.dtype == torch.uint8:
        mask = mask.bool()
    if mask.dtype != torch.bool and not mask.is_floating_point():
        weight = torch.zeros(num_nodes, dtype=torch.get_default_dtype(), device=mask.device)
        if mask.numel() and not 0 <= int(mask.min()) <= int(mask.max()) < num_nodes:
            raise InvalidLabelError(f"'{name}' names nodes {int(mask.min())} to {int(mask.max())} of {num_nodes}")
        if torch.unique(mask).numel() != mask.numel():
            raise InvalidLabelError(f"'{name}' names nodes twice; if it is a mask of 0 and 1, pass {name}.bool()")
        weight[mask] = 1.0
        return weight
    if mask.numel() != num_nodes:
        raise InvalidLabelError(f"'{name}' has {mask.numel()} entries for {num_nodes} nodes")
    weight = mask.to(torch.get_default_dtype()) if mask.dtype == torch.bool else mask
    if not bool(((weight >= 0) & weight.isfinite()).all()):
        raise InvalidLabelError(f"label weights in '{name}' must be finite and not negative")
    return weight


def parse_labels(
    y: Tensor,
    mask: Tensor | None,
    num_nodes: int,
    num_classes: int,
    split: int | None = None,
    *,
    warn: bool = True,
) -> Labels:
    """Check labels and mask and combine them; ``y = -1`` means unlabelled.

    Args:
        y: Class numbers, ``[n]`` or ``[n, 1]``.
        mask: See :func:`pick_mask`; ``None`` uses every node with ``y >= 0``.
        num_nodes: The number of nodes.
        num_classes: The number of classes.
        split: The column to use of a mask ``[n, splits]``.
        warn: Whether to warn of classes without a labelled node.
    """
    y = y.squeeze(-1) if y.dim() == 2 and y.size(1) == 1 else y
    if y.shape != (num_nodes,) or y.is_floating_point() or y.dtype == torch.bool:
        raise InvalidLabelError(
            f"'y' must hold an integer class for each of the {num_nodes} nodes, got {y.dtype} {tuple(y.shape)}"
        )
    y = y.long()
    weight = (y >= 0).to(torch.get_default_dtype()) if mask is None else pick_mask(mask.to(y.device), num_nodes, split)
    labelled = (weight > 0) & (y != -1)
    wrong = labelled & ((y < 0) | (y >= num_classes))
    if bool(wrong.any()):
        node = int(wrong.nonzero()[0])
        raise InvalidLabelError(f"node {node} has the label {int(y[node])}, but classes are 0 to {num_classes - 1}")
    if not bool(labelled.any()):
        raise InvalidLabelError("not a single node is labelled; mark some in train_mask")
    counts = torch.bincount(y[labelled], minlength=num_classes)
    if warn and bool((counts == 0).any()):
        missing = (counts == 0).nonzero().squeeze(1).tolist()
        warnings.warn(f"no node is labelled with class {missing}", UnlabelledClassWarning, stacklevel=3)
    return Labels(torch.where(labelled, weight, 0.0), torch.where(labelled, y, -1))
