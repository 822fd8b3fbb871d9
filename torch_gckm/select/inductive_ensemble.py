"""Several models whose scores are averaged, for other graphs only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Data
from tqdm import tqdm

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike, save_tensors
from torch_gckm.graph import Normalize, PreparedGraph, Scaling
from torch_gckm.nn import GCKM, InductiveGCKM
from torch_gckm.nn.settings import model_content
from torch_gckm.readout import class_similarity

FORMAT = "ensemble 6"


@dataclass(frozen=True)
class Calibration:
    """How the scores of an ensemble's members are combined and turned into probabilities."""

    spread: list[float]  # What the scores of each member are divided by.
    temperature: float  # What their mean is multiplied by before a softmax.
    offset: list[float] | None = None  # What is added then, per class; nothing if no shares of classes are known.


class InductiveEnsemble(torch.nn.Module):
    r"""The mean of several models' class scores, each divided by its spread on the graph that they were fitted on.

    ``ensemble.save(path, inductive=True)`` writes one, ``GCKMEnsemble.load(path)`` reads it.

    Args:
        members: Models fitted to the same graph.
        calibration: How their scores are combined and turned into probabilities.
    """

    spread: Tensor
    temperature: Tensor
    offset: Tensor

    def __init__(self, members: Sequence[InductiveGCKM] | Sequence[GCKM], calibration: Calibration) -> None:
        super().__init__()
        if not members:
            raise InvalidInputError("an ensemble needs at least one model")
        self.models = torch.nn.ModuleList(members)
        self.register_buffer("spread", torch.tensor(calibration.spread))
        self.register_buffer("temperature", torch.tensor(calibration.temperature))
        offset = calibration.offset or [0.0] * self.out_channels
        self.register_buffer("offset", torch.tensor(offset, dtype=torch.float64))

    @property
    def calibration(self) -> Calibration:
        """How scores are combined and turned into probabilities."""
        return Calibration(self.spread.tolist(), float(self.temperature), self.offset.tolist())

    @property
    def out_channels(self) -> int:
        """The number of classes."""
        return cast(InductiveGCKM, self.models[0]).out_channels

    def scores(self, data: Data, *, progress: bool = False) -> Tensor:
        """Class scores ``[n, num_classes]`` of every node of a graph."""
        return self.extended_scores(data, progress=progress)

    def extended_scores(self, data: Data, known: Tensor | None = None, *, progress: bool = False) -> Tensor:
        """Class scores by the out-of-sample extension; see :meth:`GCKM.scores <torch_gckm.GCKM.scores>`."""
        models = cast(list[GCKM], list(self.models))
        plain = PreparedGraph.of(data, Scaling(), models[0].dtype)
        graphs: dict[Normalize, PreparedGraph] = {}  # Members were fitted to one graph, which decides the scaling.
        parts = []
        for model in tqdm(models, "members", disable=not progress):
            kind = model.scaling.normalize
            if kind not in graphs:
                graphs[kind] = plain.scaled(model.scaling)
            scores = model.scores(graphs[kind]) if known is None else model.scores(graphs[kind], known)
            parts.append(class_similarity(scores, model.readout.known_codes))
        return self._mean(parts)

    def predict(self, data: Data) -> Tensor:
        """Classes ``[n]`` of a graph."""
        return self.logits(self.scores(data)).argmax(dim=1)

    def predict_proba(self, data: Data) -> Tensor:
        """Calibrated class probabilities ``[n, num_classes]``."""
        return self.probabilities(self.scores(data))

    def probabilities(self, scores: Tensor) -> Tensor:
        """Calibrated probabilities of class scores, ``[n, num_classes]`` both."""
        return self.logits(scores).softmax(dim=1)

    def logits(self, scores: Tensor) -> Tensor:
        """Class scores as logarithms of probabilities, up to a constant per node, ``[n, num_classes]``."""
        return self.temperature * scores + self.offset.to(scores)

    def content(self) -> dict[str, Any]:
        """All that a file needs."""
        members = [model_content(cast(InductiveGCKM, model)) for model in self.models]
        numbers = {"spread": self.spread, "temperature": self.temperature, "offset": self.offset}
        return {"format": FORMAT, "members": members, **numbers}

    def save(self, path: PathLike) -> None:
        """Write all members to one file, atomically."""
        save_tensors(self.content(), path)

    def _mean(self, similarities: Sequence[Tensor]) -> Tensor:
        total = torch.zeros((), dtype=similarities[0].dtype, device=similarities[0].device)
        for part, spread in zip(similarities, self.spread, strict=True):
            total = total + part / (spread * len(similarities))
        return total

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.models)} models, {self.out_channels} classes)"
