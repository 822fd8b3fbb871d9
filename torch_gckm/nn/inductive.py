"""Fitted layers, readouts and models as functions of any graph, apart from the graph they were fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.files import PathLike
from torch_gckm.graph import PreparedGraph, Propagation, Scaling
from torch_gckm.kernels import DenseFeatures, Kernel, Rows, Views, kernel_from_config
from torch_gckm.nn.extension import Extension, check_known
from torch_gckm.nn.saving import save_model
from torch_gckm.nn.settings import ModelSettings
from torch_gckm.readout import class_codes, class_similarity, decode

Known = tuple[Tensor, Sequence[Tensor]]  # Places of fitted nodes in another graph, their embeddings after every layer.


def layer_rows(kernel: Kernel, aggregation: torch.nn.Module, graph: PreparedGraph, h: Tensor | None = None) -> Rows:
    """What a layer's kernel reads: propagated features as the view ``"h"``, and the layer's input as ``"x"``."""
    if h is None:
        propagated = graph.propagated(aggregation)
        return Views({"h": propagated, "x": graph.input}) if "x" in kernel.views else propagated
    h = h.to(graph.dtype)
    propagated = graph.propagate(aggregation, h)
    return Views({"h": propagated, "x": DenseFeatures(h.clone())}) if "x" in kernel.views else propagated


class _Map(torch.nn.Module):
    """A kernel and what a fit predicts for any node."""

    extension: Extension

    def __init__(self, kernel: Kernel, extension: Extension | None) -> None:
        super().__init__()
        self.kernel = kernel
        self.register_module("extension", extension)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        self.register_module("extension", Extension.from_state(state_dict, prefix + "extension."))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class LayerMap(_Map):
    """A fitted layer's map from a graph, and the layer's input on it, to embeddings."""

    def __init__(self, kernel: Kernel, aggregation: torch.nn.Module, extension: Extension | None = None) -> None:
        super().__init__(kernel, extension)
        self.aggregation = aggregation

    def forward(self, graph: PreparedGraph, h: Tensor | None = None, progress: str | None = None) -> Tensor:
        """The embeddings of all nodes of a graph, ``[n, s]``."""
        return self.extension(self.kernel, layer_rows(self.kernel, self.aggregation, graph, h), progress)


class ReadoutMap(_Map):
    """A fitted readout's map from features to scores."""

    codes: Tensor

    def __init__(self, kernel: Kernel, codes: Tensor, extension: Extension | None = None) -> None:
        super().__init__(kernel, extension)
        self.register_buffer("codes", codes)

    def forward(self, rows: Rows, progress: str | None = None) -> Tensor:
        """The scores of nodes with these features, ``[n, p]``."""
        return self.extension(self.kernel, rows, progress)


@torch.no_grad()
def embed_graph(
    layers: Sequence[LayerMap], graph: PreparedGraph, known: Known | None = None, progress: bool = False
) -> list[Tensor]:
    """The embeddings of a graph after every layer, ``[n, s]`` each."""
    if known is not None:
        check_known(known[0], known[1][0].size(0), graph.num_nodes)
    embeddings: list[Tensor] = []
    for number, layer in enumerate(layers):
        h = embeddings[-1] if embeddings else None
        h = layer(graph, h, progress=f"layer {number + 1}" if progress else None)
        if known is not None:
            h[known[0]] = known[1][number]
        embeddings.append(h)
    return embeddings


def readout_rows(kernel: Kernel, h: Tensor, graph: PreparedGraph) -> Rows:
    """What a model's readout reads: the last embedding as the view ``"h"``, the input features as ``"x"``."""
    last = DenseFeatures(h)
    return Views({"h": last, "x": graph.input}) if "x" in kernel.views else last


class InductiveGCKM(torch.nn.Module):
    """What a fitted :class:`~torch_gckm.GCKM` needs for nodes and graphs that it has not seen, and nothing else.

    ``model.save(path, inductive=True)`` writes one, ``GCKM.load(path)`` reads it.
    """

    def __init__(
        self,
        settings: ModelSettings,
        in_channels: int,
        layers: Sequence[LayerMap],
        readout: ReadoutMap,
        scaling: Scaling,
    ) -> None:
        super().__init__()
        self.settings, self.in_channels = settings, in_channels
        self.layers, self.readout, self.scaling = torch.nn.ModuleList(layers), readout, scaling

    @classmethod
    def from_settings(cls, settings: ModelSettings, in_channels: int, out_channels: int) -> InductiveGCKM:
        """A model that is still to load its state."""
        layers = [
            LayerMap(kernel_from_config(layer.kernel), Propagation(layer.aggregation, layer.hops, layer.direction))
            for layer in settings.layers
        ]
        codes = class_codes(settings.readout.code, out_channels)
        readout = ReadoutMap(kernel_from_config(settings.readout.kernel), codes)
        return cls(settings, in_channels, layers, readout, Scaling(settings.normalize))

    @property
    def out_channels(self) -> int:
        """The number of classes."""
        return self.readout.codes.size(0)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of embeddings and scores."""
        return self.readout.codes.dtype

    def scores(self, data: Data | PreparedGraph, *, progress: bool = False) -> Tensor:
        """Scores of every node of a graph, ``[n, p]``."""
        return self.scores_on(self.prepare(data), progress=progress)

    @torch.no_grad()
    def scores_on(self, graph: PreparedGraph, known: Known | None = None, progress: bool = False) -> Tensor:
        """Scores of every node of a prepared graph; see :func:`embed_graph`."""
        h = embed_graph(self._maps, graph, known, progress)[-1]
        scores: Tensor = self.readout(readout_rows(self.readout.kernel, h, graph), "readout" if progress else None)
        return scores

    def embed(self, data: Data | PreparedGraph, layer: int = -1) -> Tensor:
        """Embeddings of every node of a graph after a hidden layer, ``[n, s]``."""
        return embed_graph(self._maps, self.prepare(data))[layer]

    def predict(self, data: Data | PreparedGraph) -> Tensor:
        """Classes ``[n]`` of a graph."""
        return decode(self.scores(data), self.readout.codes)

    def predict_proba(self, data: Data | PreparedGraph) -> Tensor:
        """Class probabilities ``[n, out_channels]``: a softmax over the scores, not calibrated."""
        return class_similarity(self.scores(data), self.readout.codes).softmax(dim=1)

    def prepare(self, data: Data | PreparedGraph) -> PreparedGraph:
        """A graph as the model sees it."""
        return data if isinstance(data, PreparedGraph) else PreparedGraph.of(data, self.scaling, self.dtype)

    def save(self, path: PathLike) -> None:
        """Write the model to one file, atomically."""
        save_model(self, path)

    @property
    def _maps(self) -> list[LayerMap]:
        return cast(list[LayerMap], list(self.layers))

    def __repr__(self) -> str:
        return f"InductiveGCKM({self.in_channels}, {self.settings}, {self.out_channels} classes)"
