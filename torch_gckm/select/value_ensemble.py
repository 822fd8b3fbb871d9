"""Several models of real targets whose predictions are averaged."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.nn import GCKM, InductiveGCKM
from torch_gckm.readout import Targets, is_values
from torch_gckm.select.ensemble import GCKMEnsemble
from torch_gckm.select.inductive_ensemble import Calibration, InductiveEnsemble


class _Values(InductiveEnsemble):
    """What ensembles of real targets have in common, those for other graphs only included."""

    deviation: Tensor

    def predict(self, data: Data | None = None) -> Tensor:
        """Predictions ``[n, p]``, in the units of the targets; of the fitted graph by default."""
        return self.scores(data)

    def predict_proba(self, data: Data | None = None) -> Tensor:
        """Refused: there are no classes."""
        raise InvalidInputError("this model predicts numbers, not classes, so there are no probabilities")

    def content(self) -> dict[str, Any]:
        return {**super().content(), "deviation": self.deviation}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.models)} models, {self.out_channels} columns)"


class InductiveValueEnsemble(_Values):
    """The mean of several models' predictions of real targets, for other graphs only."""

    def __init__(self, members: Sequence[InductiveGCKM], deviation: Tensor) -> None:
        super().__init__(members, Calibration([1.0] * len(members), 1.0))
        self.register_buffer("deviation", deviation)


class ValueEnsemble(_Values, GCKMEnsemble):
    r"""The mean of several fitted models' predictions of real targets.

    Predictions have the units of the targets, so nothing is standardised.

    Args:
        members: Models with ``code="values"`` fitted to the same graph, solved for the same targets at step 0.
        deviation: The spread of the errors, ``[p]``; by default found by withheld targets.
        labelled: The nodes whose targets were given; by default those of the members.

    Attributes:
        deviation: The root mean square of the errors on withheld targets, ``[p]``.
        labelled: The nodes whose targets were given, in increasing order.
    """

    def __init__(
        self, members: Sequence[GCKM], deviation: Tensor | None = None, labelled: Tensor | None = None
    ) -> None:
        if not all(is_values(model.readout.code) for model in members):
            raise InvalidInputError("a ValueEnsemble needs models with code='values'; use a GCKMEnsemble for classes")
        GCKMEnsemble.__init__(self, members, Calibration([1.0] * len(members), 1.0), labelled)
        if deviation is None:
            errors = self.left_out() - self.known()  # NaN where targets are unknown.
            counts = panels.column_sums((~errors.isnan()).to(errors))
            deviation = (panels.column_sums(errors.nan_to_num().square()) / counts).sqrt()
        self.register_buffer("deviation", deviation)

    @torch.no_grad()
    def left_out(self) -> Tensor:
        """The predictions for labelled nodes whose own targets were withheld, one at a time, ``[b, p]``.

        NaN where a target is unknown.
        """
        return self._mean([model.readout.leave_one_out() for model in self.members])

    def known(self) -> Tensor:
        """The targets of the labelled nodes, ``[b, p]``, NaN where unknown."""
        fit = self.members[0].readout.fit
        return fit.partition.pick(fit.label_value, fit.labelled) + fit.centre

    def suggest(self, count: int = 10) -> Tensor:
        """Refused: suggestions are about classes."""
        raise InvalidInputError("suggestions of nodes to label are about classes; this model predicts numbers")

    def self_train_on(self, targets: Targets, **options: Any) -> Self:
        """Refused: a prediction is no further target."""
        raise InvalidInputError("self-training is about classes; this model predicts numbers")

    def inductive(self) -> InductiveValueEnsemble:
        """The ensemble for other graphs only."""
        return InductiveValueEnsemble([model.inductive() for model in self.members], self.deviation)


def values_from(members: list[Any], content: dict[str, Any]) -> InductiveEnsemble:
    """An ensemble of real targets from the content of its file."""
    deviation = content.get("deviation", torch.full((members[0].out_channels,), torch.nan))
    if isinstance(members[0], InductiveGCKM):
        return InductiveValueEnsemble(members, deviation)
    return ValueEnsemble(members, deviation, content.get("labelled"))
