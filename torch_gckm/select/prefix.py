"""Fit many models to one graph; models that begin alike share their first layers."""

from __future__ import annotations

import itertools
import json
from collections import OrderedDict
from typing import Any

import torch
from torch_geometric.data import Data

from torch_gckm.gram import GramLike
from torch_gckm.kernels import kernel_from_config
from torch_gckm.nn import GCKM, GCKMConv
from torch_gckm.nn.aggregation import Aggregation, AggregationLike, Direction
from torch_gckm.nn.inputs import Inputs
from torch_gckm.select.space import Setting


class SharedFits:
    """Models fitted to one graph at step 0, layers and inputs reused.

    The hidden layers of a model do not depend on labels. Settings that share
    their first layers share the fitted modules themselves, which must not be
    trained further.

    Args:
        data: The graph.
        num_classes: The number of classes.
        gram: How to represent kernel matrices.
        max_bytes: Forget the layers that were used longest ago beyond this size.
    """

    def __init__(self, data: Data, num_classes: int, gram: GramLike = "auto", max_bytes: float = 1e9) -> None:
        self.data, self.num_classes, self.gram, self.max_bytes = data, num_classes, gram, max_bytes
        self._layers: OrderedDict[str, GCKMConv] = OrderedDict()
        self._aggregations: dict[tuple[str, int, Direction], Aggregation] = {}
        self._inputs: dict[str | None, Inputs] = {}

    @property
    def identity(self) -> tuple[int, ...]:
        """Numbers that tell this graph from any other."""
        return self._inputs.setdefault(None, Inputs()).identity(self.data)

    def fit(self, setting: Setting) -> GCKM:
        """A model with fitted hidden layers; its readout is still to be solved."""
        model = self.build(setting)
        model.inputs = self._inputs.setdefault(model.normalize, model.inputs)
        keys = [json.dumps([model.normalize, setting["layers"][: n + 1]]) for n in range(len(model.layers))]
        known = [self._layers[key] for key in itertools.takewhile(self._layers.__contains__, keys)]
        model.initialize(self.data, fine_tune=False, first=known)
        for key, conv in zip(keys, model.layers, strict=True):
            conv.requires_grad_(False)  # Others will use it, too.
            self._layers[key] = conv
            self._layers.move_to_end(key)
        self._forget()
        return model

    def build(self, setting: Setting) -> GCKM:
        """An unfitted model, whose aggregations are shared with the others."""
        model = build_model(setting, self.data.num_features, self.num_classes, self.gram, self.aggregation)
        return model.to(self.data.x.device)

    def aggregation(self, kind: str, hops: int, direction: Direction) -> AggregationLike:
        """The module that aggregates like this, one for all models."""
        key = (kind, hops, direction)
        if key not in self._aggregations:
            self._aggregations[key] = Aggregation(*key)
        return self._aggregations[key]

    def _forget(self) -> None:
        while len(self._layers) > 3 and sum(map(_size, self._layers.values())) > self.max_bytes:
            self._layers.popitem(last=False)


def build_model(
    setting: Setting, in_channels: int, num_classes: int, gram: GramLike, aggregation: Any = Aggregation
) -> GCKM:
    """An unfitted model from a setting."""
    layers, readout = setting["layers"], setting["readout"]
    return GCKM(
        in_channels,
        [layer["channels"] for layer in layers],
        num_classes,
        kernel=[kernel_from_config(part["kernel"]) for part in (*layers, readout)],
        aggregation=[aggregation(layer["aggregation"], layer["hops"], layer["direction"]) for layer in layers],
        eta=[*(1.0 for _ in layers), readout["eta"]],
        lambda2=readout["lambda2"],
        class_weight=readout["class_weight"],
        normalize=setting["normalize"],
        gram=gram,
    )


def _size(module: torch.nn.Module) -> int:
    return sum(t.element_size() * (t.numel() if t.layout == torch.strided else 3 * t.values().numel())
               for t in (*module.parameters(), *module.buffers()))  # fmt: skip
