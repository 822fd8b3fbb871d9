"""Sets of classes that hold the true one with a probability that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.readout import Machine, Targets, check_classes, p_values, sets_of

if TYPE_CHECKING:
    from torch_gckm.nn.semi_sup_rkm import SemiSupRKMReadout


class PredictsSets:
    """What readouts, models and ensembles have in common that predict sets of classes."""

    def predict_set(
        self, coverage: float = 0.9, *, per_class: bool = False, randomize: bool = False, seed: int = 0
    ) -> Tensor:
        r"""For every node of the fitted graph the classes that cannot be excluded, boolean ``[n, num_classes]``.

        By full conformal prediction, without a calibration set: every class of every node is tried as a further
        label, and compared with the labels that were given; see :mod:`torch_gckm.readout.conformal`. A set with all
        classes says that the labels tell nothing about a node. An empty one says that it is unlike all labelled nodes.
        The set of a labelled node is its class.

        If labelled nodes were drawn uniformly from all nodes, the set of a random unlabelled one holds its class with
        a probability of at least ``coverage``. If so many were drawn per class, use ``per_class=True``: the statement
        then holds for every class by itself. Settings must not have been chosen by these labels, and layers must not
        have been fine-tuned with them. With fewer than ``1 / (1 - coverage) - 1`` labels, per class if so asked for,
        no class can be excluded.

        Args:
            coverage: How often a set is to hold the class, between 0 and 1.
            per_class: Compare a node with the labels of one class at a time.
            randomize: Leave out classes on the border at random, so that the probability is ``coverage`` exactly.
            seed: The seed of the random numbers.
        """
        return sets_of(self.p_values(per_class=per_class, randomize=randomize, seed=seed), coverage)

    def p_values(self, *, per_class: bool = False, randomize: bool = False, seed: int = 0) -> Tensor:
        """The p-values of all classes, ``[n, num_classes]``; :meth:`predict_set` has those above ``1 - coverage``."""
        machines, classes = self._machines(per_class)
        return p_values(machines, classes, per_class=per_class, randomize=randomize, seed=seed)

    def _machines(self, per_class: bool) -> tuple[Sequence[Machine], Tensor]:
        """Solved readouts, and the classes of the labels that they were solved for, ``[n]``, else -1."""
        raise NotImplementedError


def machine_of(readout: SemiSupRKMReadout, targets: Targets | None = None) -> Machine:
    """A readout solved for other labels, by default as it is; a copy, which has no factors, is solved again."""
    check_classes(readout.code)
    fit = readout.fit
    fit.partition.refuse("prediction sets are")
    if targets is None and fit.solution is None:
        targets = Targets(fit.label_weight, fit.label_class, readout.out_channels)
    fit = fit if targets is None else readout.solved_again(targets)
    assert fit.solution is not None
    return Machine(fit.solution, readout.codes)


def check_exchangeable(class_weight: str | None, weight: Tensor, per_class: bool) -> None:
    """Refuse label weights that are not the same for all labels that a node is compared with."""
    if per_class:
        return
    if class_weight == "balanced":
        raise InvalidInputError(
            "with class_weight='balanced' a further label changes the weights of all others, so p-values over all "
            "classes would not be valid; use per_class=True, or fit with class_weight=None"
        )
    given = weight[weight > 0]
    if not torch.equal(given, given[:1].expand_as(given)):
        raise InvalidInputError(
            "labels have different weights, so they cannot be exchanged; use a boolean train_mask, or per_class=True "
            "if the weights differ between classes only"
        )
