"""The settings of a model as plain values.

Models are built from them, files and checkpoints written and compared with them; searches draw them, tables and
reports print them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from torch_gckm.graph import Direction, Normalize
from torch_gckm.kernels import kernel_from_config
from torch_gckm.readout import ClassWeight

Config = dict[str, Any]


@dataclass(frozen=True)
class LayerSettings:
    """The settings of a :class:`~torch_gckm.GCKMConv`.

    Attributes:
        channels: The number of embedding dimensions.
        kernel: What :meth:`~torch_gckm.kernels.Kernel.config` returns.
        aggregation: The kind of propagation.
        hops: How often to propagate.
        direction: Which neighbours to receive from.
        eta: The regularisation.
        loss_weight: The weight of the layer in the objective.
        gram: What :meth:`~torch_gckm.gram.GramFactory.config` returns; ``None`` leaves it to whoever builds the model.
    """

    channels: int
    kernel: Config
    aggregation: str = "gcn"
    hops: int = 1
    direction: Direction = "in"
    eta: float = 1.0
    loss_weight: float = 1.0
    gram: Config | None = None

    @property
    def propagation(self) -> str:
        """How the layer propagates, in a few words."""
        hops = "" if self.aggregation == "none" or self.hops == 1 else f"^{self.hops}"
        return f"{self.aggregation}{hops}" + ("" if self.direction == "in" else f" {self.direction}")

    def __str__(self) -> str:
        return f"{kernel_from_config(self.kernel)!r} {self.propagation} {self.channels}"


@dataclass(frozen=True)
class ReadoutSettings:
    """The settings of a :class:`~torch_gckm.SemiSupRKMReadout`, see there.

    Attributes:
        kernel: What :meth:`~torch_gckm.kernels.Kernel.config` returns.
        eta: The regularisation.
        lambda1: The weight of the unsupervised term.
        lambda2: The weight of the labels.
        class_weight: How labels of different classes are weighted.
        code: The class code.
        loss_weight: The weight of the readout in the objective.
        gram: See :class:`LayerSettings`.
    """

    kernel: Config
    eta: float = 1.0
    lambda1: float = 1.0
    lambda2: float = 0.1
    class_weight: ClassWeight = None
    code: str | Tensor = "one_vs_all"
    loss_weight: float = 1.0
    gram: Config | None = None

    def __str__(self) -> str:
        text = f"{kernel_from_config(self.kernel)!r} eta={self.eta:g} lambda2={self.lambda2:.3g}"
        return text + (f" {self.class_weight}" if self.class_weight else "")


@dataclass(frozen=True)
class ModelSettings:
    """The settings of a :class:`~torch_gckm.GCKM`; the numbers of features and classes come with the data.

    Attributes:
        layers: The settings of the hidden layers.
        readout: The settings of the readout.
        normalize: How the input features are scaled.
    """

    layers: tuple[LayerSettings, ...]
    readout: ReadoutSettings
    normalize: Normalize = None

    def to_dict(self) -> Config:
        """Numbers, strings, lists and dicts, as files hold them; a class code may be a tensor."""
        return {**asdict(self), "layers": [asdict(layer) for layer in self.layers]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ModelSettings:
        """From what :meth:`to_dict` returned."""
        layers = tuple(LayerSettings(**layer) for layer in content["layers"])
        return cls(layers, ReadoutSettings(**content["readout"]), content["normalize"])

    def layer_keys(self) -> list[str]:
        """For every depth, a text that two settings share if they agree so far on input and layers."""
        layers = [asdict(layer) for layer in self.layers]
        return [json.dumps([self.normalize, layers[:depth]]) for depth in range(1, len(layers) + 1)]

    def __str__(self) -> str:
        return " | ".join(map(str, (*([self.normalize] if self.normalize else []), *self.layers, self.readout)))


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
