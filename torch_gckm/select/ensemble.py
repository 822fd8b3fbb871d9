"""Several fitted models whose scores are averaged."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.files import PathLike, load_tensors
from torch_gckm.graph import PreparedGraph
from torch_gckm.nn import GCKM
from torch_gckm.nn.prediction_sets import PredictsSets, machine_of
from torch_gckm.nn.readout_fit import ReadoutFit
from torch_gckm.nn.settings import save_content
from torch_gckm.partition import Partition
from torch_gckm.readout import Machine, Targets, class_similarity, label_weights
from torch_gckm.select.calibration import calibrate, certainty_of, expected_accuracy, temperature_of
from torch_gckm.select.class_prior import offset_for
from torch_gckm.select.inductive_ensemble import Calibration, InductiveEnsemble
from torch_gckm.select.look_ahead import Suggestion, look_ahead
from torch_gckm.select.unlabelled import check_count, is_better_than_chance, solve_for_more, sureness, with_sure_nodes
from torch_gckm.select.withheld import groups_to_withhold, labels_in, means_of_groups, withheld_similarity


class GCKMEnsemble(PredictsSets, InductiveEnsemble):
    r"""The mean of several fitted models' class scores, each divided by its spread on the fitted graph.

    It predicts, extends to new nodes, saves and loads as a single :class:`~torch_gckm.nn.GCKM` does. The mean certainty
    of its probabilities about unlabelled nodes is an estimate of the accuracy there, from withheld labels and from how
    often members agree; see :mod:`torch_gckm.select.calibration`.

    For prediction sets, members are solved for the given labels only, which keep their weights; a further one has that
    of its class. Their coverage is not guaranteed if labels have chosen the members, as a search does it.

    Args:
        members: Models fitted to the same graph, with readouts solved for the same labels at step 0.
        calibration: How scores are combined and turned into probabilities; by default found by withheld labels.
        labelled: The nodes whose labels were given; by default those of the members, which may have more.
        gain: How much smaller the factor of scores is for labels that did not choose the members, if labels did; see
            :mod:`torch_gckm.select.unseen`.

    Attributes:
        labelled: The nodes whose labels were given, in increasing order.
    """

    labelled: Tensor

    def __init__(
        self,
        members: Sequence[GCKM],
        calibration: Calibration | None = None,
        labelled: Tensor | None = None,
        gain: float = 1.0,
    ) -> None:
        super().__init__(members, calibration or Calibration([1.0] * len(members), 1.0))
        if len({tuple(model.data_id.tolist()) for model in members}) > 1:
            raise InvalidInputError("the members of an ensemble must be fitted on the same graph")
        if labelled is None:
            labelled = members[0].readout.labelled if self.is_fitted else torch.empty(0, dtype=torch.long)
        self.register_buffer("labelled", labelled)
        if calibration is None and self.is_fitted:
            self._calibrate(gain)

    @property
    def members(self) -> list[GCKM]:
        """The models."""
        return cast(list[GCKM], list(self.models))

    @property
    def partition(self) -> Partition:
        """Which of the fitted nodes this process has."""
        return self.members[0].partition

    @property
    def is_fitted(self) -> bool:
        """Whether the members are fitted."""
        return all(model.is_fitted for model in self.members)

    def scores(self, data: Data | None = None, known: Tensor | None = None, *, progress: bool = False) -> Tensor:
        """Class scores ``[n, num_classes]`` of the fitted graph, or of any other; see :meth:`GCKM.scores`."""
        self._require_fit()
        if known is None and (data is None or self.is_fitted_on(data)):
            return self._mean(self._similarities())
        if data is None:
            raise InvalidInputError("'known' says where fitted nodes are in another graph; pass the graph, too")
        return self.extended_scores(data, known, progress=progress)

    def predict(self, data: Data | None = None) -> Tensor:
        """Classes ``[n]`` of the fitted graph, or of any other."""
        return self.logits(self.scores(data)).argmax(dim=1)

    def predict_proba(self, data: Data | None = None) -> Tensor:
        """Calibrated class probabilities ``[n, num_classes]``."""
        return self.probabilities(self.scores(data))

    @torch.no_grad()
    def use_class_prior(self, prior: Tensor) -> Self:
        """Offset the scores so that probabilities of all fitted nodes have this mean, ``[num_classes]``.

        See :mod:`torch_gckm.select.class_prior`. Further self-training keeps the mean.
        """
        self._require_fit()
        self.offset.copy_(offset_for(self.temperature * self.scores(), prior, self.partition))
        return self

    @torch.no_grad()
    def suggest(self, count: int = 10) -> Tensor:
        """The unlabelled nodes of the fitted graph whose labels would tell most, ``[count]``, the best first."""
        return torch.tensor([choice.node for choice in self.suggestions(count)])

    @torch.no_grad()
    def suggestions(self, count: int = 10) -> list[Suggestion]:
        """The nodes of :meth:`suggest`, and what their labels would settle; see :mod:`torch_gckm.select.look_ahead`.

        What a label changes is computed by the member that agrees most with the ensemble.
        """
        self.partition.refuse("suggestions are")
        probabilities, given = self.predict_proba(), self._given()
        check_count(count, panels.count(~given.is_labelled))
        agreement = [panels.count(part.argmax(dim=1) == probabilities.argmax(dim=1)) for part in self._similarities()]
        machine = machine_of(self.members[agreement.index(max(agreement))].readout)
        weight = label_weights(machine.solution, given.classes, self.out_channels).to(probabilities)
        doubt = 1.0 - probabilities.amax(dim=1)
        return look_ahead(machine.solution, doubt, self.labelled, probabilities @ weight, count)

    def self_train(
        self, data: Data, *, confidence: float = 0.8, strength: float = 10.0, rounds: int = 2, split: int | None = None
    ) -> Self:
        """Solve the readouts again; the classes of nodes that the ensemble is sure of serve as further labels.

        Nothing happens if withheld labels are not predicted clearly better than by chance. The mean certainty about
        unlabelled nodes stays the calibrated one. Leave-one-out scores of the members mean nothing afterwards: every
        label has had a say in the further ones.

        Args:
            data: The fitted graph and its labels.
            confidence: The probability from which a class counts as sure, see
                :func:`torch_gckm.select.unlabelled.sureness`.
            strength: The total weight of further labels, in labels per class; see :mod:`torch_gckm.select.unlabelled`.
            rounds: How often to do so; each round starts from the given labels and the last round's probabilities.
            split: The column to use of masks ``[n, splits]``.
        """
        self._require_fit()
        if data.y is None or not self.is_fitted_on(data):
            raise InvalidInputError("self-training needs the graph that the ensemble was fitted on, with its labels")
        targets = Targets.of(data, self.out_channels, split)
        return self.self_train_on(targets, confidence=confidence, strength=strength, rounds=rounds)

    @torch.no_grad()
    def self_train_on(
        self, targets: Targets, *, confidence: float = 0.8, strength: float = 10.0, rounds: int = 2,
        step: Callable[[], object] | None = None,
    ) -> Self:  # fmt: skip
        """See :meth:`self_train`; with the labels of the fitted graph. ``step`` is called after every solve."""
        self.labelled = targets.labelled
        unlabelled, over = ~targets.is_labelled, targets.partition
        withheld = self._withheld(self._fits_to(targets))
        if not panels.holds_somewhere(unlabelled, over) or not is_better_than_chance(*withheld, targets):
            return self
        prior = panels.column_means(self.predict_proba(), over) if bool(self.offset.any()) else None
        certainty = self._certainty(unlabelled)
        scores, votes = self.scores()[unlabelled], self._votes()[:, unlabelled]
        self._set_temperature(sureness(scores, votes, *withheld, over), prior)
        sure = self._certainty(unlabelled)
        for _ in range(rounds):
            more = with_sure_nodes(targets, self.predict_proba(), confidence, strength)
            if more is targets:
                break
            for model in self.members:
                solve_for_more(model, more, targets)
                if step is not None:
                    step()
            self._standardise()
            self._set_temperature(temperature_of(self.scores()[unlabelled], sure, over), prior)
        self._set_temperature(temperature_of(self.scores()[unlabelled], certainty, over), prior)
        return self

    def is_fitted_on(self, data: Data | PreparedGraph) -> bool:
        """Whether this is the graph that the members were fitted on."""
        return self.members[0].is_fitted_on(data)

    def inductive(self) -> InductiveEnsemble:
        """The ensemble for other graphs only; see :meth:`GCKM.inductive <torch_gckm.GCKM.inductive>`."""
        return InductiveEnsemble([model.inductive() for model in self.members], self.calibration)

    def summary(self) -> str:
        """Every member's summary."""
        return "\n\n".join(model.summary() for model in self.members)

    def content(self) -> dict[str, Any]:
        return {**super().content(), "labelled": self.labelled}

    def save(self, path: PathLike, *, inductive: bool = False) -> None:
        """Write all members to one file, atomically; see :meth:`GCKM.save <torch_gckm.GCKM.save>`."""
        save_content(lambda: (self.inductive() if inductive else self).content(), path, self.partition, inductive)

    @classmethod
    def load(cls, path: PathLike) -> Any:
        """Read what :meth:`save` wrote, or a single model as an ensemble; executes no code from files.

        A file for new graphs only is read as an :class:`~torch_gckm.select.InductiveEnsemble`.
        """
        from torch_gckm.select.ensemble_files import ensemble_from

        return ensemble_from(load_tensors(path), path)

    @torch.no_grad()
    def _calibrate(self, gain: float) -> None:
        self._standardise()
        fits = [model.readout.fit for model in self.members]
        unlabelled, over = fits[0].label_class < 0, self.partition
        try:
            withheld, classes = self._withheld(fits)
        except NotFittedError as error:
            raise InvalidInputError(
                "an ensemble is calibrated on scores of withheld labels, which need models at step 0 whose readouts "
                "were just solved; call model.solve(data) on its members first"
            ) from error
        groups = groups_to_withhold(fits[0].labels)
        if groups.size(1):
            withheld, classes = means_of_groups(withheld, groups), fits[0].labels[labels_in(groups)]
        if classes.numel():
            self.temperature.fill_(gain * calibrate(withheld, classes)[0])
        if panels.holds_somewhere(unlabelled, over) and (classes.numel() or len(self.members) > 1):
            scores, votes = self.scores()[unlabelled], self._votes()[:, unlabelled]
            present = panels.count(fits[0].counts > 0)
            accuracy = expected_accuracy(scores, votes, withheld, classes, present, gain, over)
            self.temperature.fill_(temperature_of(scores, accuracy, over))

    def _set_temperature(self, temperature: float, prior: Tensor | None) -> None:
        self.temperature.fill_(temperature)
        if prior is not None:
            self.use_class_prior(prior)

    def _certainty(self, nodes: Tensor) -> float:
        """The mean certainty about some nodes if nothing is known of the shares of the classes."""
        return certainty_of(self.scores()[nodes], float(self.temperature), self.partition)

    def _withheld(self, fits: Sequence[ReadoutFit]) -> tuple[Tensor, Tensor]:
        """Scores ``[g, num_classes]`` of withheld labels and their classes ``[g]``, by fits to the same labels.

        One label of every class is withheld at a time; with so many labels that single ones say enough, one at all.
        A class's only label cannot be withheld.
        """
        classes = fits[0].labels
        groups, codes = groups_to_withhold(classes), [model.readout.known_codes for model in self.members]
        if groups.size(1):
            parts = [withheld_similarity(fit, code, groups) for fit, code in zip(fits, codes, strict=True)]
            return self._mean(parts), classes[groups].flatten()
        several = panels.counts(classes)[classes] > 1
        if not panels.holds_somewhere(several):
            return self.spread.new_empty(0, self.out_channels), classes[:0]
        left_out = [fit.leave_one_out()[several] for fit in fits]
        return self._mean([class_similarity(*part) for part in zip(left_out, codes, strict=True)]), classes[several]

    def _fits_to(self, targets: Targets) -> list[ReadoutFit]:
        """Fits to these labels, without those of self-training."""
        fits = [model.readout.fit for model in self.members]
        known = all(fit.solution is not None and torch.equal(fit.label_class, targets.classes) for fit in fits)
        if self.partition.processes.everywhere(known):
            return fits
        return [model.readout.solved_again(targets) for model in self.members]

    def _votes(self) -> Tensor:
        """The class that each member predicts for every fitted node, ``[members, n]``."""
        return torch.stack([part.argmax(dim=1) for part in self._similarities()])

    @torch.no_grad()
    def _machines(self, per_class: bool) -> tuple[list[Machine], Tensor]:
        self._require_fit()
        self.partition.refuse("prediction sets are")
        given = self._given()
        machines = [machine_of(model.readout, given) for model in self.members]
        spreads = [panels.spread(part.solution.scores @ part.directions.t()) for part in machines]
        parts = zip(machines, spreads, strict=True)
        return [replace(part, spread=max(float(spread), 1e-12)) for part, spread in parts], given.classes

    def _given(self) -> Targets:
        """The labels that were given, without those of self-training."""
        fit = self.members[0].readout.fit
        is_given = fit.partition.fill_(torch.zeros_like(fit.label_class, dtype=torch.bool), self.labelled, True)
        weight, classes = torch.where(is_given, fit.label_weight, 0.0), torch.where(is_given, fit.label_class, -1)
        return Targets(weight, classes, self.out_channels, partition=fit.partition)

    def _standardise(self) -> None:
        self.spread.copy_(
            torch.stack([panels.spread(s, self.partition).clamp(min=1e-12) for s in self._similarities()])
        )

    def _similarities(self) -> list[Tensor]:
        """A score for every class of every fitted node, from each member."""
        return [class_similarity(model.readout.scores, model.readout.known_codes) for model in self.members]

    def _require_fit(self) -> None:
        if not self.is_fitted:
            raise NotFittedError("the ensemble's models are not fitted")
