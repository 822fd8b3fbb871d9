"""Which nodes a model learns from, is chosen by and is judged by."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.graph.identity import matrix_identity
from torch_gckm.readout import Targets, labels_of, pick_mask


@dataclass(frozen=True)
class Labelling:
    """The labels of a graph, parsed once.

    Attributes:
        targets: The labels to learn from.
        y: All labels, ``[n]``, -1 where unknown.
        val: The nodes to choose by, boolean ``[n]``.
        test: The nodes to judge by, boolean ``[n]``.
    """

    targets: Targets
    y: Tensor
    val: Tensor
    test: Tensor

    @classmethod
    def of(cls, data: Data, num_classes: int, split: int | None = None, *, warn: bool = False) -> Labelling:
        """Those of a graph; without a ``train_mask`` all known labels are training labels."""
        targets = Targets.of(data, num_classes, split, warn=warn)
        y = labels_of(data).view(-1)
        known = y >= 0

        def pick(name: str) -> Tensor:
            mask = data.get(name)
            return torch.zeros_like(known) if mask is None else (pick_mask(mask, y.numel(), split, name) > 0) & known

        return cls(targets, y, pick("val_mask"), pick("test_mask"))

    @property
    def unlabelled(self) -> Tensor:
        """The nodes whose labels a fit does not see, boolean ``[n]``."""
        return ~self.targets.is_labelled

    @property
    def identity(self) -> list[int]:
        """Numbers that tell these labels, weights and masks from any others."""
        columns = (self.targets.weight, self.targets.classes, self.y, self.val, self.test)
        return list(matrix_identity(torch.stack([column.double().cpu() for column in columns], dim=1)))
