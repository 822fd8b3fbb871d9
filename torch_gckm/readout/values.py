"""Real targets: numbers that a fit may learn from, one or several columns, centred by their own mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError, InvalidLabelError
from torch_gckm.partition import WHOLE, Partition
from torch_gckm.readout.targets import Targets, pick_mask

VALUES = "values"  # The code of readouts whose targets are numbers.


@dataclass(frozen=True)
class RealTargets(Targets):
    r"""The numbers that a fit may see; to the rest of :class:`Targets`, all labelled nodes are of one class.

    The readout is not equivariant to shifts: it is solved for targets minus :attr:`centre`, the weighted mean
    :math:`\sum_i l_i y_i / \sum_i l_i` of the labelled ones, which is added to the scores afterwards. A labelled node
    may lack some columns.
    """

    values: Tensor  # [n, p] in double precision; NaN where unknown, zero for unlabelled nodes.

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
        """Check targets, ``[n]`` or ``[n, p]`` with NaN for unlabelled nodes, and mask, and combine them.

        ``num_classes`` is the number of columns. See :meth:`Targets.parse` for the mask.
        """
        y = check_values(y, num_nodes, num_classes)
        unknown = y.isnan()
        weight = y.new_ones(num_nodes) if mask is None else pick_mask(mask, num_nodes, split).to(y.device)
        labelled = (weight > 0) & ~unknown.all(dim=1)
        wrong = labelled & y.isinf().any(dim=1)
        if panels.holds_somewhere(wrong):
            row = panels.first(wrong)
            hint = "known targets are finite (NaN: unknown)"
            raise InvalidLabelError(f"node {over.start + row} has the targets {y[row].tolist()}; {hint}")
        if not panels.holds_somewhere(labelled, over):
            raise InvalidLabelError("the target of every node is unknown; give some, and mark them in train_mask")
        values = torch.where(labelled.unsqueeze(1), y, 0.0)
        _check_columns(over.pick(values, panels.rows_where(labelled, over)), over)
        weight = torch.where(labelled, weight, 0.0)
        return cls(weight, torch.where(labelled, 0, -1), 1, values, partition=over)

    @property
    def labels(self) -> Tensor:
        """The targets of the labelled nodes, ``[b, p]``, NaN where unknown."""
        return self.partition.pick(self.values, self.labelled)

    @property
    def known_entries(self) -> Tensor | None:
        """Which targets of the labelled nodes are known, ``[b, p]``; ``None`` if all are."""
        known = ~self.labels.isnan()
        return None if panels.holds_everywhere(known) else known

    @property
    def centre(self) -> Tensor:
        """The weighted mean of the known targets, ``[p]``."""
        share = self.weight.to(self.values).unsqueeze(1) * ~self.values.isnan()
        sums = panels.column_sums(torch.cat([share * self.values.nan_to_num(), share], dim=1), self.partition)
        return sums[: self.values.size(1)] / sums[self.values.size(1) :]

    def coded(self, codes: Tensor) -> Tensor:
        """What the readout is solved for: centred targets, ``[n, p]``, zero where unknown and for unlabelled nodes."""
        known = self.is_labelled.unsqueeze(1) & ~self.values.isnan()
        return torch.where(known, self.values - self.centre, 0.0)

    def to(self, device: torch.device) -> Self:
        """The same targets on another device."""
        return replace(super().to(device), values=self.values.to(device))

    def balanced(self) -> Self:
        raise InvalidInputError("class_weight='balanced' is about classes; leave it out for real targets")


def _check_columns(known: Tensor, over: Partition) -> None:
    """Refuse targets of labelled nodes, ``[b, p]``, from which nothing can be learned."""
    counts = (~known.isnan()).sum(dim=0)
    if not over.is_whole and panels.holds_somewhere(counts < known.size(0)):
        over.refuse("targets that are known in part are")
    if panels.holds_somewhere(counts < 2) and known.size(0) > 1:
        column = panels.first(counts < 2)
        raise InvalidLabelError(
            f"column {column} of the targets is known for {int(counts[column])} of the labelled nodes; at least 2 are "
            "needed, or leave the column out"
        )
    if panels.holds_everywhere(known.isnan() | (known == known.nan_to_num(-torch.inf).amax(dim=0))):
        raise InvalidLabelError(
            f"the targets of all {known.size(0)} labelled nodes are {known[0].tolist()}: there is nothing to learn"
        )


def check_values(y: Tensor, num_nodes: int, columns: int | None = None) -> Tensor:
    """Real targets as ``[n, p]`` in double precision; refuses other kinds and shapes."""
    wanted = f"[{num_nodes}, {'p' if columns is None else columns}]"
    if not y.is_floating_point() or y.layout != torch.strided:
        raise InvalidLabelError(f"real targets are floating-point numbers {wanted}, got {y.dtype} {tuple(y.shape)}")
    given = y.unsqueeze(1) if y.dim() == 1 else y
    if given.dim() != 2 or given.size(0) != num_nodes or given.size(1) != (columns or max(given.size(1), 1)):
        raise InvalidLabelError(f"real targets have the shape {wanted}, got {tuple(y.shape)}")
    return given.double()


def is_values(code: Any) -> bool:
    """Whether the code of a readout says that its targets are numbers."""
    return isinstance(code, str) and code == VALUES


def check_classes(code: Any) -> None:
    """Raise if the targets of a readout are numbers, where classes are needed."""
    if is_values(code):
        raise InvalidInputError("the targets of this model are numbers: it has predictions, but no classes")


def kind_of_targets(code: Any) -> type[Targets]:
    """What parses the labels of a readout with this code."""
    return RealTargets if is_values(code) else Targets
