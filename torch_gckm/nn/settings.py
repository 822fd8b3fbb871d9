"""Models as plain values and tensors: settings, which they are built from, and files, which execute no code."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Union

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike, load_tensors, save_tensors
from torch_gckm.graph import KINDS, Direction, Normalize, Propagation, Weighting, Weights
from torch_gckm.graph.propagation import DEFAULT_ALPHA
from torch_gckm.kernels import kernel_from_config
from torch_gckm.layouts import to_csr
from torch_gckm.partition import WHOLE, Partition
from torch_gckm.readout import ClassWeight

if TYPE_CHECKING:
    from torch_gckm.nn.gckm import GCKM
    from torch_gckm.nn.inductive import InductiveGCKM

    Model = Union[GCKM, InductiveGCKM]

Config = dict[str, Any]
OwnModules = Mapping[str, torch.nn.Module]
FORMAT = "model 6"


@dataclass(frozen=True)
class PropagationSettings:
    """The arguments of a :class:`~torch_gckm.graph.Propagation`; a module of the user's own is known by its name."""

    kind: str = "gcn"
    hops: int = 1
    direction: Direction = "in"
    alpha: float | None = None
    weights: Weights = "given"
    unit: float = 1.0

    def __post_init__(self) -> None:
        if self.alpha is None:  # So that settings equal those of the module that is built from them.
            object.__setattr__(self, "alpha", DEFAULT_ALPHA.get(self.kind))

    @classmethod
    def of(cls, propagation: torch.nn.Module) -> PropagationSettings:
        """The settings of a module."""
        return cls(*propagation.key) if isinstance(propagation, Propagation) else cls(repr(propagation))

    def build(self, own: OwnModules | None = None) -> torch.nn.Module:
        """The module; one of the user's own is copied from those that are ``own``, by name."""
        if own and self.kind in own:
            return copy.deepcopy(own[self.kind])
        return Propagation(self.kind, self.hops, self.direction, self.alpha, self.weights, self.unit)

    def seeing(self, direction: Direction, weighting: Weighting) -> PropagationSettings:
        """The same with edges seen in another way; one that sees none, or is the user's own, stays as it is."""
        if self.kind == "none" or self.kind not in KINDS:
            return self
        return replace(self, direction=direction, weights=weighting.kind, unit=weighting.unit)

    def __str__(self) -> str:
        hops = "" if self.kind == "none" or self.hops == 1 else f"^{self.hops}"
        alpha = "" if self.alpha == DEFAULT_ALPHA.get(self.kind) else f" alpha={self.alpha:g}"
        weights = "" if self.weights == "given" else f" {Weighting(self.weights, self.unit)}"
        return f"{self.kind}{hops}" + ("" if self.direction == "in" else f" {self.direction}") + alpha + weights


@dataclass(frozen=True)
class LayerSettings:
    """The settings of a :class:`~torch_gckm.GCKMConv`."""

    channels: int  #: The number of embedding dimensions.
    kernel: Config  #: What :meth:`~torch_gckm.kernels.Kernel.config` returns.
    propagation: PropagationSettings = PropagationSettings()  #: How the layer propagates.
    power: float = 0.5  #: How much of the spectrum its output keeps.
    eta: float = 1.0  #: The regularisation.
    loss_weight: float = 1.0  #: The weight of the layer in the objective.
    gram: Config | None = None  #: From :meth:`~torch_gckm.gram.GramFactory.config`; ``None``: the builder chooses.

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> LayerSettings:
        """From what ``dataclasses.asdict`` returned."""
        return cls(**{**content, "propagation": PropagationSettings(**content["propagation"])})

    def __str__(self) -> str:
        return f"{kernel_from_config(self.kernel)!r} {self.propagation} {self.channels} power={self.power:g}"


@dataclass(frozen=True)
class ReadoutSettings:
    """The settings of a :class:`~torch_gckm.SemiSupRKMReadout`, see there."""

    kernel: Config  #: What :meth:`~torch_gckm.kernels.Kernel.config` returns.
    eta: float = 1.0  #: The regularisation.
    lambda1: float = 1.0  #: The weight of the unsupervised term.
    lambda2: float = 0.1  #: The weight of the labels.
    class_weight: ClassWeight = None  #: How labels of different classes are weighted.
    code: str | Tensor = "one_vs_all"  #: The class code.
    loss_weight: float = 1.0  #: The weight of the readout in the objective.
    gram: Config | None = None  #: See :class:`LayerSettings`.

    def __str__(self) -> str:
        text = f"{kernel_from_config(self.kernel)!r} eta={self.eta:g} lambda2={self.lambda2:.3g}"
        return text + (f" {self.class_weight}" if self.class_weight else "")


@dataclass(frozen=True)
class ModelSettings:
    """The settings of a :class:`~torch_gckm.GCKM`; the numbers of features and classes come with the data."""

    layers: tuple[LayerSettings, ...]  #: The settings of the hidden layers.
    readout: ReadoutSettings  #: The settings of the readout.
    normalize: Normalize = None  #: How the input features are scaled.
    propagation: PropagationSettings = PropagationSettings("none")  #: That of the features that the readout reads.

    def to_dict(self) -> Config:
        """Numbers, strings, lists and dicts, as files hold them; a class code may be a tensor."""
        return {**asdict(self), "layers": [asdict(layer) for layer in self.layers]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ModelSettings:
        """From what :meth:`to_dict` returned."""
        layers = tuple(LayerSettings.from_dict(layer) for layer in content["layers"])
        readout, propagation = ReadoutSettings(**content["readout"]), PropagationSettings(**content["propagation"])
        return cls(layers, readout, content["normalize"], propagation)

    @property
    def sees_edges(self) -> bool:
        """Whether something is propagated."""
        return any(part.kind != "none" for part in (self.propagation, *(layer.propagation for layer in self.layers)))

    def seeing(self, direction: Direction, weighting: Weighting) -> ModelSettings:
        """The same settings with edges seen in another way."""
        layers = [replace(layer, propagation=layer.propagation.seeing(direction, weighting)) for layer in self.layers]
        return replace(self, layers=tuple(layers), propagation=self.propagation.seeing(direction, weighting))

    def layer_keys(self) -> list[str]:
        """For every depth, a text that two settings share if they agree so far on input and layers."""
        layers = [asdict(layer) for layer in self.layers]
        return [json.dumps([self.normalize, layers[:depth]]) for depth in range(1, len(layers) + 1)]

    def __str__(self) -> str:
        scaling = [self.normalize] if self.normalize else []
        last = [] if self.propagation.kind == "none" else [self.propagation]
        return " | ".join(map(str, (*scaling, *self.layers, *last, self.readout)))


def differences(old: Any, new: Any, name: str = "settings") -> Iterator[tuple[str, Any, Any]]:
    """The names and values in which two settings, as dicts, differ; what kernels learn in training does not count."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        learned = bool(old.get("learnable")) and bool(new.get("learnable"))
        for key in sorted({*old, *new}, key=str):
            if not (learned and isinstance(old.get(key), float)):
                yield from differences(old.get(key), new.get(key), str(key))
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for before, after in zip(old, new, strict=True):
            yield from differences(before, after, name)
    elif isinstance(old, Tensor) and isinstance(new, Tensor):
        if not torch.equal(old, new):
            yield name, "a tensor", "another one"
    elif isinstance(old, Tensor) or isinstance(new, Tensor) or old != new:
        yield name, old, new


def save_model(model: Model, path: PathLike, over: Partition = WHOLE) -> None:
    """Write a model to one file."""
    inductive = not hasattr(model, "data_id")
    save_content(lambda: {"format": FORMAT, **model_content(model)}, path, over, inductive)


def save_content(make: Callable[[], Config], path: PathLike, over: Partition, inductive: bool) -> None:
    """Write a file; the first process does, of several that have parts of the fitted graph."""
    with over.agreed():
        if not (inductive or over.is_whole):
            raise InvalidInputError(
                "what is spread over several processes cannot be saved whole; save(path, inductive=True) writes what "
                "new graphs need, and the folder of Trainer(checkpoint=) keeps a model, for any number of processes"
            )
        content = make()
        if over.rank == 0:
            save_tensors(content, path)


def load_model(path: PathLike) -> Model:
    """Read a model that :func:`save_model` wrote."""
    content = load_tensors(path)
    if str(content.get("format")).startswith("ensemble"):
        raise InvalidInputError(f"'{path}' holds an ensemble; read it with torch_gckm.select.GCKMEnsemble.load")
    if content.get("format") != FORMAT:
        raise InvalidInputError(f"'{path}' is not a model file of this version of torch_gckm")
    return model_from_content(content)


def model_content(model: Model) -> dict[str, Any]:
    """A model as settings and tensors; refuses what could not be loaded again."""
    settings = model.settings
    for propagation in (*(layer.propagation for layer in settings.layers), settings.propagation):
        if propagation.kind not in KINDS:
            raise InvalidInputError(
                f"a model with its own aggregation module cannot be saved whole: {propagation.kind}; "
                "save model.state_dict() instead"
            )
    for kernel in (*(layer.kernel for layer in settings.layers), settings.readout.kernel):
        kernel_from_config(kernel)
    return {
        "inductive": not hasattr(model, "data_id"),
        "in_channels": model.in_channels,
        "out_channels": model.out_channels,
        "settings": settings.to_dict(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "state": {name: to_csr(part) if part.is_sparse else part for name, part in model.state_dict().items()},
    }


@torch.inference_mode(False)
def model_from_content(content: dict[str, Any]) -> Model:
    """A model from what :func:`model_content` returned."""
    from torch_gckm.nn.gckm import GCKM
    from torch_gckm.nn.inductive import InductiveGCKM

    kind = InductiveGCKM if content["inductive"] else GCKM
    codes = content["state"]["readout.codes"]
    if codes.size(0) != content["out_channels"]:  # Before anything of that size is made.
        raise InvalidInputError(f"a model has {content['out_channels']} classes, but codes of {codes.size(0)}")
    settings = ModelSettings.from_dict(content["settings"])
    model: Model = kind.from_settings(settings, content["in_channels"], content["out_channels"])
    model.to(getattr(torch, content["dtype"]))
    model.load_state_dict(content["state"])
    return model
