"""One setting, fitted and measured without looking at any test label; settings share layers that begin alike."""

import copy
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import panels
from torch_gckm.errors import GCKMError, GCKMWarning, ProcessLostError
from torch_gckm.gram import GramLike
from torch_gckm.graph import Normalize, PreparedGraph, Scaling
from torch_gckm.nn import GCKM, GCKMConv, ModelSettings, SemiSupRKMReadout
from torch_gckm.nn.settings import OwnModules
from torch_gckm.partition import Partition
from torch_gckm.readout import class_similarity
from torch_gckm.select.calibration import calibrate
from torch_gckm.select.withheld import check_well_posed, groups_to_withhold, scores_to_keep, withheld_similarity
from torch_gckm.train.labelling import Labelling
from torch_gckm.train.metrics import accuracy, combined_score, cosine_score, effective_classes

FIT_ERRORS = (GCKMError, RuntimeError)  # Linear algebra that breaks down is a RuntimeError.


def describe_error(error: Exception) -> str:
    """Why a setting failed, in one line; that a process is lost is no such reason, and raised again."""
    if isinstance(error, ProcessLostError):
        raise error
    return f"{type(error).__name__}: {error}"


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings of single settings, which are no news to a search."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCKMWarning)
        yield


@dataclass
class Trial:
    """A setting and what became of it."""

    number: int  #: Its place in the search.
    setting: ModelSettings
    measures: dict[str, float] = field(default_factory=dict)  #: Criteria by name, NaN where one has no meaning.
    seconds: float = 0.0
    error: str | None = None  #: Why it failed or was rejected.
    #: The mean scores of every label that was withheld, one of every class at a time; ``None`` if there are many.
    withheld: list[list[float]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as files hold them."""
        return {**asdict(self), "setting": self.setting.to_dict()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """From what :meth:`to_dict` returned."""
        return cls(**{**content, "setting": ModelSettings.from_dict(content["setting"])})

    @property
    def is_valid(self) -> bool:
        """Whether the setting was fitted and is well-posed."""
        return self.error is None


class PreparedGraphs:
    """One graph, prepared once for every way to scale its features; edges and their matrices are shared."""

    def __init__(self, data: Data) -> None:
        self.plain = PreparedGraph.of(data, Scaling(), torch.get_default_dtype())
        self._scaled: dict[Normalize, PreparedGraph] = {None: self.plain}

    def scaled(self, normalize: Normalize) -> PreparedGraph:
        """The graph with its features scaled like this."""
        if normalize not in self._scaled:
            self._scaled[normalize] = self.plain.scaled(
                Scaling(normalize).fitted_to(self.plain.given, self.plain.partition)
            )
        return self._scaled[normalize]


class SharedFits:
    """Models fitted to one graph at step 0, layers and inputs reused.

    The hidden layers of a model do not depend on labels. Settings that share their first layers share the fitted
    modules themselves, which must not be trained further. Beyond ``max_bytes`` those used longest ago are forgotten.
    Settings name propagations of the user's ``own``.
    """

    def __init__(
        self, graphs: PreparedGraphs, num_classes: int, gram: GramLike = "auto", max_bytes: float = 1e9,
        own: OwnModules | None = None,
    ) -> None:  # fmt: skip
        self.graphs, self.num_classes, self.gram, self.max_bytes, self.own = graphs, num_classes, gram, max_bytes, own
        self._layers: OrderedDict[str, GCKMConv] = OrderedDict()

    def graph(self, settings: ModelSettings) -> PreparedGraph:
        """The graph as a model with these settings sees it."""
        return self.graphs.scaled(settings.normalize)

    def forget(self) -> None:
        """Give the memory of all layers back."""
        self._layers.clear()

    @torch.no_grad()
    def fit(self, settings: ModelSettings) -> GCKM:
        """A model with fitted hidden layers; its readout is still to be solved."""
        graph = self.graph(settings)
        width, device = graph.x.size(1), graph.x.device
        convs: list[GCKMConv] = []
        for layer, key in zip(settings.layers, settings.layer_keys(), strict=True):
            conv = self._layers.get(key)
            if conv is None:
                conv = GCKMConv.from_settings(width, layer, self.gram, self.own).to(device)
                conv.initialize_on(graph, convs[-1].z if convs else None)
                conv.requires_grad_(False)  # Others will use it, too.
                self._layers[key] = conv
            self._layers.move_to_end(key)
            convs.append(conv)
            width = layer.channels
        fits_everywhere = self.graphs.plain.partition.processes.everywhere
        while len(self._layers) > 3 and not fits_everywhere(sum(map(_size, self._layers.values())) <= self.max_bytes):
            self._layers.popitem(last=False)
        readout = SemiSupRKMReadout.from_settings(width, self.num_classes, settings.readout, self.gram)
        propagation = settings.propagation.build(self.own).requires_grad_(False).to(device)
        return GCKM.with_readout(convs, graph, propagation, readout.to(device))


class Evaluator:
    """Fits settings to one graph and measures them."""

    def __init__(self, fits: SharedFits, labels: Labelling) -> None:
        self.fits, self.labels = fits, labels
        self.classes = labels.targets.labels
        self.groups = groups_to_withhold(self.classes)

    def __call__(self, number: int, setting: ModelSettings) -> Trial:
        """Fit and measure; a failure is recorded, not raised."""
        start = time.perf_counter()
        trial = Trial(number, setting)
        try:
            with self.partition.agreed():
                self.measure(trial, self.solve(setting))
                first = self.partition.processes.of_first([trial.measures, trial.withheld])  # Rounding may differ.
                trial.measures, trial.withheld = first
        except FIT_ERRORS as error:
            trial.error = describe_error(error)
        trial.seconds = time.perf_counter() - start
        return trial

    @property
    def partition(self) -> Partition:
        """Which nodes this process has."""
        return self.labels.targets.partition

    @torch.no_grad()
    def solve(self, setting: ModelSettings, *, own_layers: bool = False) -> GCKM:
        """The fitted model of a setting; with layers of its own it may be trained further."""
        model = self.fits.fit(setting)
        if own_layers:
            model = copy.deepcopy(model)
            for conv in model.layers:
                conv.requires_grad_(True)
        model.solve_on(self.fits.graph(setting), self.labels.targets)
        return model

    @torch.no_grad()
    def measure(self, trial: Trial, model: GCKM) -> None:
        """Write down what can be said of a solved model without looking at test labels."""
        readout, labels, over = model.readout, self.labels, self.partition
        check_well_posed(readout.fit)
        left_out = class_similarity(readout.leave_one_out(), readout.known_codes)
        per_class = left_out[:0]
        if self.groups.size(1):  # One label of every class at a time.
            per_class = withheld_similarity(readout.fit, readout.known_codes, self.groups)
        predicted = readout.predict()
        trial.measures = {
            **_withheld("leave_one_out", left_out, self.classes),
            "cosine": cosine_score(readout.scores, readout.codes, labels.unlabelled, over),
            "effective_classes": effective_classes(predicted, over),
            "val_acc": accuracy(predicted, labels.y, labels.val, over),
            **_withheld("per_class_out", per_class, self.classes[self.groups].flatten()),
        }
        trial.withheld = scores_to_keep(per_class, self.groups)
        num_val = panels.count(labels.val, over)
        if num_val:
            rest = labels.unlabelled & ~labels.val
            cosine, num_rest = cosine_score(readout.scores, readout.codes, rest, over), panels.count(rest, over)
            trial.measures["combined"] = combined_score(trial.measures["val_acc"], num_val, cosine, num_rest)


def _withheld(name: str, similarity: Tensor, classes: Tensor) -> dict[str, float]:
    """How well withheld labels are predicted, NaN without any."""
    right = accuracy(similarity.argmax(dim=1), classes)
    return {name: right, f"{name}_loss": -calibrate(similarity, classes)[1]}


def _size(module: torch.nn.Module) -> int:
    return sum(t.element_size() * (t.numel() if t.layout == torch.strided else 3 * t.values().numel())
               for t in (*module.parameters(), *module.buffers()))  # fmt: skip
