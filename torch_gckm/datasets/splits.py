"""Random and fixed splits as PyG transforms; the same seed makes the same split."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import index_to_mask

Nodes = Tensor | Sequence[int]


class PerClassSplit(BaseTransform):  # type: ignore[misc]
    """So many training nodes of every class, chosen at random.

    Args:
        num_train: Training nodes of every class, or one number per class.
        num_val: Validation nodes of every class.
        num_test: Test nodes in all; ``None`` for all that are left.
    """

    def __init__(
        self, num_train: int | Sequence[int] = 20, num_val: int = 0, num_test: int | None = None, seed: int = 0
    ) -> None:
        self.num_train, self.num_val, self.num_test, self.seed = num_train, num_val, num_test, seed

    def forward(self, data: Data) -> Data:
        order, classes = _known_at_random(data, self.seed), int(data.y.max()) + 1
        counts = [self.num_train] * classes if isinstance(self.num_train, int) else [int(n) for n in self.num_train]
        if len(counts) != classes:
            raise ValueError(f"'num_train' has {len(counts)} numbers for {classes} classes")
        train, val = [], []
        for number, count in enumerate(counts):
            members = order[data.y[order] == number]
            if members.numel() < count + self.num_val:
                raise ValueError(f"class {number} has {members.numel()} nodes; {count + self.num_val} are asked for")
            train.append(members[:count])
            val.append(members[count : count + self.num_val])
        return _set_masks(data, torch.cat(train), torch.cat(val), order, self.num_test)


class FewLabelSplit(BaseTransform):  # type: ignore[misc]
    """A few training nodes, chosen at random, with every class among them.

    Args:
        num_train: Training nodes in all; at least one per class.
        num_val: Validation nodes in all.
        num_test: Test nodes in all; ``None`` for all that are left.
    """

    def __init__(self, num_train: int, num_val: int = 0, num_test: int | None = None, seed: int = 0) -> None:
        self.num_train, self.num_val, self.num_test, self.seed = num_train, num_val, num_test, seed

    def forward(self, data: Data) -> Data:
        order = _known_at_random(data, self.seed)
        y = data.y[order]
        first = torch.cat([(y == number).nonzero()[:1].view(-1) for number in y.unique().tolist()])
        if self.num_train < first.numel():
            raise ValueError(f"'num_train' is {self.num_train}, but there are {first.numel()} classes")
        is_rest = torch.ones_like(order, dtype=torch.bool).index_fill(0, first, False)
        order = torch.cat([order[first], order[is_rest]])
        train, val = order[: self.num_train], order[self.num_train : self.num_train + self.num_val]
        return _set_masks(data, train, val, order, self.num_test)


class PercentageSplit(BaseTransform):  # type: ignore[misc]
    """Shares of all nodes, chosen at random; what is left is for testing.

    Args:
        train: The share of training nodes; the paper's standard split of Chameleon and Squirrel has 2.5 %.
        val: The share of validation nodes.
    """

    def __init__(self, train: float = 0.025, val: float = 0.025, seed: int = 0) -> None:
        if not (0.0 < train <= 1.0 and 0.0 <= val <= 1.0 and train + val <= 1.0):
            raise ValueError(f"shares of training and validation nodes must add up to at most 1, got {train} and {val}")
        self.train, self.val, self.seed = train, val, seed

    def forward(self, data: Data) -> Data:
        order = _known_at_random(data, self.seed)
        count, stop = round(self.train * order.numel()), round((self.train + self.val) * order.numel())
        return _set_masks(data, order[:count], order[count:stop], order, None)


class FixedSplit(BaseTransform):  # type: ignore[misc]
    """Given nodes, as boolean masks or node numbers; without test nodes, they are all others with a known label."""

    def __init__(self, train: Nodes, val: Nodes = (), test: Nodes | None = None) -> None:
        self.train, self.val, self.test = train, val, test

    def forward(self, data: Data) -> Data:
        train, val = _numbers(self.train), _numbers(self.val)
        if self.test is None:
            return _set_masks(data, train, val, (data.y.view(-1) >= 0).nonzero().view(-1), None)
        for name, nodes in (("train_mask", train), ("val_mask", val), ("test_mask", _numbers(self.test))):
            data[name] = index_to_mask(nodes, data.num_nodes)
        return data


def _known_at_random(data: Data, seed: int) -> Tensor:
    """The nodes with a known label in random order, ``[m]``; flattens ``y``."""
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(seed))
    data.y = data.y.view(-1)
    return order[data.y[order] >= 0]


def _numbers(nodes: Nodes) -> Tensor:
    """Node numbers, ``[m]``."""
    given = torch.as_tensor(nodes)
    return given.nonzero().view(-1) if given.dtype == torch.bool else given.long()


def _set_masks(data: Data, train: Tensor, val: Tensor, order: Tensor, num_test: int | None) -> Data:
    data.train_mask, data.val_mask = index_to_mask(train, data.num_nodes), index_to_mask(val, data.num_nodes)
    rest = order[~(data.train_mask | data.val_mask)[order]]
    if num_test is not None and rest.numel() < num_test:
        raise ValueError(f"'num_test' is {num_test}, but only {rest.numel()} nodes are left")
    data.test_mask = index_to_mask(rest[:num_test], data.num_nodes)
    return data
