"""Several models that speak with one voice."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Data
from tqdm import tqdm

from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.files import PathLike, load_tensors, save_tensors
from torch_gckm.nn import GCKM
from torch_gckm.nn.coding import class_similarity
from torch_gckm.nn.labels import Labels, parse_labels
from torch_gckm.nn.saving import inductive_state, model_config
from torch_gckm.select.self_training import temperature_of, with_sure_nodes
from torch_gckm.select.suggest import suggest
from torch_gckm.select.trial import FIT_ERRORS, check_well_posed, quiet
from torch_gckm.select.withheld import groups_to_withhold, withheld_similarity
from torch_gckm.train.metrics import calibrate

FORMAT = "ensemble 3"


class GCKMEnsemble(torch.nn.Module):
    r"""The mean of several fitted models' class scores, each divided by its spread on the fitted graph.

    It predicts, extends to new nodes, saves and loads as a single
    :class:`~torch_gckm.nn.GCKM` does. Probabilities are calibrated on scores of labelled nodes
    whose own labels were withheld. If every class has a single label, none can be: the mean certainty
    about unlabelled nodes is then the share of them on which members agree with the ensemble.

    Args:
        members: Models fitted to the same graph, with readouts solved for the same labels at step 0.
        calibrated: Whether spreads and temperature will be set by hand.

    Attributes:
        labelled: The nodes whose labels were given, in increasing order.
        notes: Plain values to save with the ensemble, such as names of classes.
    """

    spread: Tensor
    temperature: Tensor

    def __init__(self, members: Sequence[GCKM], *, calibrated: bool = False) -> None:
        super().__init__()
        if not members:
            raise InvalidInputError("an ensemble needs at least one model")
        if len({tuple(model.data_id.tolist()) for model in members}) > 1:
            raise InvalidInputError("the members of an ensemble must be fitted on the same graph")
        self.models = torch.nn.ModuleList(members)
        self.register_buffer("spread", torch.ones(len(members)))
        self.register_buffer("temperature", torch.ones(()))
        self.labelled = torch.empty(0, dtype=torch.long)  # Of the given labels; members may have more.
        self.notes: dict[str, Any] = {}
        if not calibrated and all(model.is_fitted for model in members):
            self._calibrate()

    @property
    def members(self) -> list[GCKM]:
        """The models."""
        return cast(list[GCKM], list(self.models))

    @property
    def out_channels(self) -> int:
        """The number of classes."""
        return self.members[0].out_channels

    @property
    def is_fitted(self) -> bool:
        """Whether the members are fitted."""
        return all(model.is_fitted for model in self.members)

    def scores(self, data: Data | None = None) -> Tensor:
        """Class scores ``[n, num_classes]`` of the fitted graph, or of any other."""
        if data is None or self.is_fitted_on(data):
            self._require_fit()
            return self._combine([model.readout.scores for model in self.members])
        return self.transform(data)

    def transform(self, data: Data, known: Tensor | None = None, *, progress: bool = False) -> Tensor:
        """Class scores of every node of another graph, by the out-of-sample extension; see :meth:`GCKM.transform`."""
        members = tqdm(self.members, "members", disable=not progress)
        return self._combine([model.transform(data, known) for model in members])

    def predict(self, data: Data | None = None) -> Tensor:
        """Classes ``[n]`` of the fitted graph, or of any other."""
        return self.scores(data).argmax(dim=1)

    def predict_proba(self, data: Data | None = None) -> Tensor:
        """Calibrated class probabilities ``[n, num_classes]``."""
        return (self.temperature * self.scores(data)).softmax(dim=1)

    def suggest(self, count: int = 10) -> Tensor:
        """The unlabelled nodes of the fitted graph whose labels would tell most, ``[count]``; see :func:`suggest`."""
        embeddings = [model.embed() for model in self.members]
        probabilities = self.predict_proba()
        return suggest(probabilities, embeddings, self.labelled.to(probabilities.device), count)

    @torch.no_grad()
    def self_train(
        self, data: Data, *, confidence: float = 0.8, strength: float = 10.0, rounds: int = 2, split: int | None = None
    ) -> GCKMEnsemble:
        """Solve the readouts again; the classes of nodes that the ensemble is sure of serve as further labels.

        The mean certainty about unlabelled nodes stays the calibrated one. Leave-one-out scores of
        the members mean nothing afterwards: every label has had a say in the further ones.

        Args:
            data: The fitted graph and its labels.
            confidence: The calibrated probability from which a class counts as sure.
            strength: The total weight of further labels, in labels a class; see
                :mod:`torch_gckm.select.self_training`.
            rounds: How often to do so; each round starts from the given labels and the last round's probabilities.
            split: The column to use of masks ``[n, splits]``.
        """
        self._require_fit()
        if data.y is None or not self.is_fitted_on(data):
            raise InvalidInputError("self-training needs the graph that the ensemble was fitted on, with its labels")
        labels = parse_labels(data.y, data.get("train_mask"), data.num_nodes, self.out_channels, split, warn=False)
        self.labelled = (labels.classes >= 0).nonzero().squeeze(1)
        unlabelled = labels.classes < 0
        for number in range(rounds):
            probabilities = self.predict_proba()
            if number == 0:
                certainty = float(probabilities[unlabelled].amax(dim=1).mean())
            more = with_sure_nodes(labels, probabilities, confidence, strength)
            if more is labels:
                break
            for model in self.members:
                _solve_again(model, data, more, labels)
            self._standardise()
            self.temperature.fill_(temperature_of(self.scores()[unlabelled], certainty))
        return self

    def is_fitted_on(self, data: Data) -> bool:
        """Whether this is the graph that the members were fitted on."""
        return self.members[0].is_fitted_on(data)

    def summary(self) -> str:
        """Every member's summary."""
        return "\n\n".join(model.summary() for model in self.members)

    def save(self, path: PathLike, *, inductive: bool = False) -> None:
        """Write all members to one file, atomically; see :meth:`GCKM.save`."""
        inductive = inductive or self.members[0].readout.fixed is not None
        states = [inductive_state(model) if inductive else model.state_dict() for model in self.members]
        content = {
            "format": FORMAT,
            "inductive": inductive,
            "configs": [model_config(model) for model in self.members],
            "states": states,
            "spread": self.spread,
            "temperature": self.temperature,
            "labelled": self.labelled,
            "notes": self.notes,
        }
        save_tensors(content, path)

    @classmethod
    def load(cls, path: PathLike) -> GCKMEnsemble:
        """Read an ensemble that :meth:`save` wrote, or a single model as an ensemble; executes no code from files."""
        content = load_tensors(path)
        if isinstance(content.get("format"), int):
            model = GCKM.load(path)
            alone = cls([model], calibrated=True)  # As sure of itself as the model is.
            if model.is_fitted:
                alone.labelled = model.readout.labelled
            return alone
        if content.get("format") != FORMAT:
            raise InvalidInputError(f"'{path}' is not an ensemble file of this version of torch_gckm")
        pairs = zip(content["configs"], content["states"], strict=True)
        ensemble = cls([GCKM.from_state(*pair, inductive=content["inductive"]) for pair in pairs], calibrated=True)
        ensemble.spread.copy_(content["spread"])
        ensemble.temperature.copy_(content["temperature"])
        ensemble.labelled, ensemble.notes = content["labelled"], content["notes"]
        return ensemble

    @torch.no_grad()
    def _calibrate(self) -> None:
        self._standardise()
        readout = self.members[0].readout
        self.labelled = readout.labelled
        classes = readout.label_class[self.labelled]
        groups = groups_to_withhold(classes)
        try:
            if groups.size(1):
                withheld = self._mean([withheld_similarity(model.readout, groups) for model in self.members])
                self.temperature.fill_(calibrate(withheld, classes[groups].flatten())[0])
            elif bool((torch.bincount(classes) > 1).any()):  # So many labels that single ones say enough.
                withheld = self._combine([model.readout.leave_one_out() for model in self.members])
                self.temperature.fill_(calibrate(withheld, classes)[0])
            elif len(self.members) > 1 and bool((readout.label_class < 0).any()):
                self._calibrate_by_agreement(readout.label_class < 0)
        except NotFittedError as error:
            raise InvalidInputError(
                "an ensemble is calibrated on scores of withheld labels, which need models at step 0 whose readouts "
                "were just solved; call model.solve(data) on its members first"
            ) from error

    def _calibrate_by_agreement(self, nodes: Tensor) -> None:
        scores, count = self.scores()[nodes], len(self.members)
        votes = [class_similarity(m.readout.scores[nodes], m.readout.codes).argmax(dim=1) for m in self.members]
        agreement = float((torch.stack(votes) == scores.argmax(dim=1)).double().mean())
        chance = 1.0 / self.out_channels
        # As if there were one more member, which agrees by chance.
        self.temperature.fill_(temperature_of(scores, max(chance, (agreement * count + chance) / (count + 1))))

    def _standardise(self) -> None:
        parts = [class_similarity(model.readout.scores, model.readout.codes) for model in self.members]
        self.spread.copy_(torch.stack([part.std().clamp(min=1e-12) for part in parts]))

    def _combine(self, scores: Sequence[Tensor]) -> Tensor:
        pairs = zip(scores, self.members, strict=True)
        return self._mean([class_similarity(part, model.readout.codes) for part, model in pairs])

    def _mean(self, similarities: Sequence[Tensor]) -> Tensor:
        total = torch.zeros((), dtype=similarities[0].dtype, device=similarities[0].device)
        for part, spread in zip(similarities, self.spread, strict=True):
            total = total + part / (spread * len(similarities))
        return total

    def _require_fit(self) -> None:
        if any(model.readout.fixed is not None for model in self.members):
            raise NotFittedError("the ensemble was saved with inductive=True and knows no graph; pass it one")
        if not self.is_fitted:
            raise NotFittedError("the ensemble's models are not fitted")

    def __repr__(self) -> str:
        return f"GCKMEnsemble({len(self.members)} models, {self.out_channels} classes)"


def _solve_again(model: GCKM, data: Data, labels: Labels, given: Labels) -> None:
    """Solve a readout for more labels, or for the given ones if that does not work out."""
    with quiet():
        try:
            model.solve(_with(data, labels), keep_gram=True)
            check_well_posed(model)
        except FIT_ERRORS:
            model.solve(_with(data, given), keep_gram=True)


def _with(data: Data, labels: Labels) -> Data:
    labelled = copy.copy(data)
    labelled.y, labelled.train_mask = labels.classes, labels.weight
    return labelled
