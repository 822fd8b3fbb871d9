"""What a fit may learn from: labels and masks, parsed once where they come in, and the codes of classes."""

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Literal, Self, Union

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError, InvalidLabelError, UnlabelledClassWarning, heterogeneous_graph
from torch_gckm.partition import WHOLE, Partition, partition_of

ClassWeight = Literal["balanced"] | None
CodeLike = Union[str, Tensor]


@dataclass(frozen=True)
class Targets:
    """The labels that a fit may see."""

    weight: Tensor  # [n], zero for unlabelled nodes.
    classes: Tensor  # [n], -1 for unlabelled nodes.
    num_classes: int
    partition: Partition = field(default=WHOLE, kw_only=True)  # Which nodes these are.

    @classmethod
    def of(cls, data: Data, num_classes: int, split: int | None = None, *, warn: bool = False) -> Self:
        """The labels in ``data.train_mask``, or all that are known without one; see :meth:`parse`."""
        over = partition_of(data)
        with over.agreed():
            y, mask = labels_of(data), data.get("train_mask")
            return cls.parse(y, mask, data.num_nodes, num_classes, split, warn=warn, over=over)

    @classmethod
    def parse(
        cls,
        y: Tensor,
        mask: Tensor | None,
        num_nodes: int,
        num_classes: int,
        split: int | None = None,
        *,
        warn: bool = False,
        over: Partition = WHOLE,
    ) -> Self:
        """Check labels, ``[n]`` or ``[n, 1]`` with -1 for unlabelled nodes, and mask, and combine them.

        For ``mask`` and ``split`` see :func:`pick_mask`; without a mask every node with a label is used. ``warn``
        concerns classes without a labelled node.
        """
        y = y.squeeze(-1) if y.dim() == 2 and y.size(1) == 1 else y
        if y.shape != (num_nodes,) or y.is_floating_point() or y.dtype == torch.bool:
            given = f"{y.dtype} {tuple(y.shape)}"
            hint = "real targets need a readout with code='values', or a GCKMRegressor"
            raise InvalidLabelError(
                f"'y' must hold an integer class for each of the {num_nodes} nodes, got {given}; {hint}"
            )
        y = y.long()
        if mask is None:
            weight = torch.ones_like(y, dtype=torch.get_default_dtype())
        else:
            weight = pick_mask(mask, num_nodes, split).to(y.device)
        labelled = (weight > 0) & (y != -1)
        wrong = labelled & ((y < 0) | (y >= num_classes))
        if panels.holds_somewhere(wrong):
            row = panels.first(wrong)
            classes = f"classes are 0 to {num_classes - 1}, and -1 says that there is no label"
            raise InvalidLabelError(f"node {over.start + row} has the label {int(y[row])}, but {classes}")
        if not panels.holds_somewhere(labelled, over):
            raise InvalidLabelError("not a single node is labelled; mark some in train_mask")
        weight, known = torch.where(labelled, weight, 0.0), torch.where(labelled, y, -1)
        targets = cls(weight, known, num_classes, partition=over)
        missing = [number for number, count in enumerate(targets.counts().tolist()) if count == 0]
        if warn and missing:
            warnings.warn(f"no node is labelled with class {missing}", UnlabelledClassWarning, stacklevel=3)
        return targets

    @property
    def num_nodes(self) -> int:
        """The number of nodes, of this process."""
        return self.classes.numel()

    @property
    def is_labelled(self) -> Tensor:
        """The labelled nodes as a mask, ``[n]``."""
        return self.classes >= 0

    @property
    def labelled(self) -> Tensor:
        """The labelled nodes in increasing order, ``[b]``."""
        return panels.rows_where(self.is_labelled, self.partition)

    @property
    def labels(self) -> Tensor:
        """The classes of the labelled nodes, ``[b]``."""
        return self.partition.pick(self.classes, self.labelled)

    def counts(self) -> Tensor:
        """The number of labels of every class, ``[num_classes]``."""
        return panels.counts(self.classes[self.is_labelled], self.num_classes, self.partition)

    def coded(self, codes: Tensor) -> Tensor:
        """What the readout is solved for: the codes ``[num_classes, p]`` of the nodes' classes, ``[n, p]``."""
        return codes[self.classes.clamp(min=0)]

    def to(self, device: torch.device) -> Self:
        """The same labels on another device."""
        return replace(self, weight=self.weight.to(device), classes=self.classes.to(device))

    def balanced(self) -> Self:
        """The same labels with weights whose sum is the same for every class that has any."""
        given = self.is_labelled
        mass = panels.sums_by(self.classes[given], self.weight[given], self.num_classes, self.partition)
        factor = mass.sum() / (mass > 0).sum() / mass
        return replace(self, weight=torch.where(given, self.weight * factor[self.classes.clamp(min=0)], 0.0))


def labels_of(data: Data) -> Tensor:
    """The labels ``y`` of a graph, ``[n]`` or ``[n, 1]``."""
    if isinstance(data, HeteroData):
        raise heterogeneous_graph(data)
    y = data.y
    if y is None:
        raise InvalidInputError("the data object has no labels 'y'; use -1 for unlabelled nodes")
    if not isinstance(y, Tensor):
        raise InvalidInputError(
            f"the labels 'y' of a Data object are a tensor of class numbers, got a {type(y).__name__}; "
            "number the classes, or call fit(X, y, edge_index=...) of an estimator with names"
        )
    return y


def count_classes(data: Data) -> int:
    """One more than the largest label; refuses labels that cannot be numbers of classes."""
    y = labels_of(data)
    if y.is_floating_point() or y.dtype == torch.bool or y.numel() == 0:
        raise InvalidLabelError(f"'y' must hold an integer class for each node, got {y.dtype} {tuple(y.shape)}")
    over = partition_of(data)
    largest, num_nodes = int(panels.largest(y.long(), over)), over.all_rows(y.numel())
    if largest >= num_nodes:  # Codes of so many classes would fill the memory.
        hint = "number the classes from 0"
        raise InvalidLabelError(f"there is a class {largest}, but there are {num_nodes} nodes only; {hint}")
    return largest + 1


def pick_mask(mask: Tensor, num_nodes: int, split: int | None = None, name: str = "train_mask") -> Tensor:
    """A mask in any of its forms as weights ``[n]``; ``name`` is what errors call it.

    The forms are boolean ``[n]``; node indices; non-negative floating-point weights ``[n]``; or any of the first and
    last with one column per split, of which ``split`` chooses one.
    """
    if not isinstance(mask, Tensor):
        raise InvalidLabelError(f"'{name}' must be a tensor, got a {type(mask).__name__}; use torch.as_tensor")
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
        low, high = (int(mask.min()), int(mask.max())) if mask.numel() else (0, 0)
        if not 0 <= low <= high < num_nodes:
            raise InvalidLabelError(f"'{name}' names nodes {low} to {high} of {num_nodes}")
        if torch.unique(mask).numel() != mask.numel():
            raise InvalidLabelError(f"'{name}' names nodes twice; if it is a mask of 0 and 1, pass {name}.bool()")
        weight[mask] = 1.0
        return weight
    if mask.numel() != num_nodes:
        raise InvalidLabelError(f"'{name}' has {mask.numel()} entries for {num_nodes} nodes")
    weight = mask.to(torch.get_default_dtype()) if mask.dtype == torch.bool else mask
    if not panels.holds_everywhere((weight >= 0) & weight.isfinite()):
        raise InvalidLabelError(f"label weights in '{name}' must be finite and not negative")
    return weight


def class_codes(code: CodeLike, num_classes: int) -> Tensor:
    """The code of every class, ``[num_classes, p]``.

    ``"one_vs_all"`` has one column per class, ``"binary"`` is the class number in binary, with as few columns as
    possible; any other is given as a matrix of plus and minus ones with distinct rows. ``"values"`` is for targets that
    are numbers, ``num_classes`` columns of them, which stand for themselves: the identity.
    """
    if isinstance(code, Tensor):
        codes = code.to(torch.get_default_dtype())
        if codes.dim() != 2 or codes.size(0) != num_classes:
            raise InvalidInputError(f"class codes must have shape [{num_classes}, p], got {tuple(code.shape)}")
        if not bool((codes.abs() == 1).all()) or torch.unique(codes, dim=0).size(0) != num_classes:
            raise InvalidInputError("class codes must consist of +1 and -1, with a different row for every class")
        return codes
    if code == "one_vs_all":
        return 2.0 * torch.eye(num_classes) - 1.0
    if code == "binary":
        bits = max(1, math.ceil(math.log2(num_classes)))
        numbers = torch.arange(num_classes).unsqueeze(1)
        return 2.0 * ((numbers >> torch.arange(bits)) & 1) - 1.0
    if code == "values":
        return torch.eye(num_classes)
    raise InvalidInputError(f"unknown class code {code!r}; choose 'one_vs_all', 'binary', 'values' or pass a matrix")


def class_similarity(scores: Tensor, codes: Tensor) -> Tensor:
    """A score for every class, ``[n, num_classes]``; the predicted class has the highest.

    For one-vs-all codes these are the scores themselves. For all others, the number of agreeing signs counts
    (Hamming decoding), and the correlation with the code breaks ties. A class whose code is NaN has the lowest.
    """
    present, size = ~codes.isnan().any(dim=1), codes.size(0)
    codes = codes.to(scores)[present]
    is_one_vs_all = codes.size(1) == size and torch.equal(codes > 0, torch.eye(size, device=codes.device)[present] > 0)
    if is_one_vs_all and codes.size(0) == size:
        return scores
    if is_one_vs_all:
        similarity = scores[:, present]
    else:
        agreement = torch.where(scores >= 0, 1.0, -1.0).to(scores.dtype) @ codes.t()
        # Agreements differ by 2 at least; squashing keeps the correlation from outvoting a sign.
        similarity = agreement + 0.999 * torch.tanh(scores @ codes.t())
    if codes.size(0) == size:
        return similarity
    result = (similarity.amin(dim=1, keepdim=True) - 1.0).repeat(1, size)
    result[:, present] = similarity
    return result


def decode(scores: Tensor, codes: Tensor) -> Tensor:
    """The class whose code is closest, ``[n]``."""
    return class_similarity(scores, codes).argmax(dim=1)
