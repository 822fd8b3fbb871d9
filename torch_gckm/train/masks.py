"""Which nodes a trainer learns from, chooses by and is judged by."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.nn.labels import parse_labels, pick_mask


class Masks(NamedTuple):
    """Boolean masks ``[n]`` of nodes whose labels are known.

    Attributes:
        train: The nodes to learn from.
        val: The nodes to choose by.
        test: The nodes to judge by.
        unlabelled: The nodes whose labels the fit does not see.
    """

    train: Tensor
    val: Tensor
    test: Tensor
    unlabelled: Tensor

    @classmethod
    def of(cls, data: Data, split: int | None, num_classes: int) -> Masks:
        """Those of a graph; without a ``train_mask`` all known labels are training labels."""
        if data.y is None:
            raise InvalidInputError("the data object has no labels 'y'; use -1 for unlabelled nodes")
        n = data.num_nodes
        parse_labels(data.y, data.get("train_mask"), n, num_classes, split, warn=False)  # Before any work is done.
        y = data.y.view(-1)
        known = y >= 0

        def pick(name: str, default: Tensor) -> Tensor:
            mask = data.get(name)
            return default if mask is None else (pick_mask(mask, n, split, name) > 0) & known

        train = pick("train_mask", known)
        nothing = torch.zeros_like(train)
        return cls(train, pick("val_mask", nothing), pick("test_mask", nothing), ~train)
