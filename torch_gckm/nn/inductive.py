"""Fitted layers, readouts and models as functions of any graph, apart from the graph they were fitted on."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import panels
from torch_gckm.files import PathLike
from torch_gckm.graph import PreparedGraph, Scaling
from torch_gckm.kernels import DenseFeatures, Features, Kernel, Rows, Views, kernel_from_config
from torch_gckm.nn.extension import Extension, check_known
from torch_gckm.nn.settings import ModelSettings, save_model
from torch_gckm.readout import check_classes, class_codes, class_similarity, decode, is_values

Known = tuple[Tensor, Sequence[Tensor]]  # Places of fitted nodes in another graph, their embeddings after every layer.


def layer_rows(kernel: Kernel, aggregation: torch.nn.Module, graph: PreparedGraph, h: Tensor | None = None) -> Rows:
    """What a layer's kernel reads: propagated features as the view ``"h"``, and the layer's input as ``"x"``."""
    if h is None:
        propagated = graph.propagated(aggregation)
        return Views({"h": propagated, "x": graph.input}) if "x" in kernel.views else propagated
    h = h.to(graph.dtype)
    propagated = graph.propagate(aggregation, h)
    if "x" not in kernel.views:
        return propagated
    return Views({"h": propagated, "x": DenseFeatures(h.clone(), partition=graph.partition)})


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

    def forward(
        self,
        graph: PreparedGraph,
        h: Tensor | None = None,
        progress: str | None = None,
        nodes: Tensor | None = None,
    ) -> Tensor:
        """The embeddings of some nodes of a graph, by default of all, ``[n, s]``."""
        rows = layer_rows(self.kernel, self.aggregation, graph, h)
        return self.extension(self.kernel, rows if nodes is None else rows.rows(nodes), progress)


class ReadoutMap(_Map):
    """A fitted readout's map from features to scores."""

    codes: Tensor

    def __init__(self, kernel: Kernel, codes: Tensor, extension: Extension | None = None) -> None:
        super().__init__(kernel, extension)
        self.register_buffer("codes", codes)

    @property
    def known_codes(self) -> Tensor:
        """The codes of the classes; NaN for those that had no label."""
        return self.codes

    def forward(self, rows: Rows, progress: str | None = None) -> Tensor:
        """The scores of nodes with these features, ``[n, p]``."""
        return self.extension(self.kernel, rows, progress)


@torch.no_grad()
def embed_graph(
    layers: Sequence[LayerMap], graph: PreparedGraph, known: Known | None = None, progress: bool = False
) -> list[Tensor]:
    """The embeddings of a graph after every layer, ``[n, s]`` each."""
    new = None
    if known is not None:
        check_known(known[0], known[1][0].size(0), graph.num_nodes, graph.partition)
        is_known = torch.zeros(graph.num_nodes, dtype=torch.bool, device=known[0].device)
        new = panels.rows_where(~is_known.index_fill(0, known[0], True), graph.partition)
    embeddings: list[Tensor] = []
    with graph.partition.agreed():
        for number, layer in enumerate(layers):
            h = embeddings[-1] if embeddings else None
            h = layer(graph, h, f"layer {number + 1}" if progress else None, new)
            if known is not None and new is not None:
                whole = h.new_empty(graph.num_nodes, h.size(1))
                h = whole.index_copy(0, known[0], known[1][number].to(h)).index_copy(0, new, h)
            embeddings.append(h)
    return embeddings


def readout_rows(kernel: Kernel, propagation: torch.nn.Module, graph: PreparedGraph, h: Tensor | None) -> Rows:
    """What a model's readout reads: the propagated output of the last layer as the view ``"h"``, the input as ``"x"``.

    Without layers, ``h=None``, the view ``"h"`` is that of the propagated input features.
    """
    last = graph.propagated(propagation) if h is None else graph.propagate(propagation, h)
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
        propagation: torch.nn.Module,
        readout: ReadoutMap,
        scaling: Scaling,
    ) -> None:
        super().__init__()
        self.settings, self.in_channels, self.propagation = settings, in_channels, propagation
        self.layers, self.readout, self.scaling = torch.nn.ModuleList(layers), readout, scaling

    @classmethod
    def from_settings(cls, settings: ModelSettings, in_channels: int, out_channels: int) -> Self:
        """A model that is still to load its state."""
        layers = [LayerMap(kernel_from_config(layer.kernel), layer.propagation.build()) for layer in settings.layers]
        codes = class_codes(settings.readout.code, out_channels)
        readout = ReadoutMap(kernel_from_config(settings.readout.kernel), codes)
        return cls(settings, in_channels, layers, settings.propagation.build(), readout, Scaling(settings.normalize))

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
        with graph.partition.agreed():
            h = embed_graph(self._maps, graph, known, progress)[-1] if self._maps else None
            rows = readout_rows(self.readout.kernel, self.propagation, graph, h)
            return self.readout(rows, "readout" if progress else None)

    @torch.no_grad()
    def scores_beside(self, graph: PreparedGraph, known: Tensor, h: Features, progress: bool = False) -> Tensor:
        """The same without layers, where the features ``h`` that the readout reads of known nodes are given."""
        check_known(known, h.num_rows, graph.num_nodes, graph.partition)
        scores = self.scores_on(graph, progress=progress)
        with_input = "x" in self.readout.kernel.views
        scores[known] = self.readout(Views({"h": h, "x": graph.input.rows(known)}) if with_input else h)
        return scores

    def embed(self, data: Data | PreparedGraph, layer: int = -1) -> Tensor:
        """Embeddings of every node of a graph after a hidden layer, ``[n, s]``; without any, what the readout reads."""
        graph = self.prepare(data)
        return embed_graph(self._maps, graph)[layer] if self._maps else graph.propagated(self.propagation).dense()

    def predict(self, data: Data | PreparedGraph) -> Tensor:
        """Classes ``[n]`` of a graph; with ``code="values"``, the scores themselves."""
        scores = self.scores(data)
        return scores if is_values(self.settings.readout.code) else decode(scores, self.readout.codes)

    def predict_proba(self, data: Data | PreparedGraph) -> Tensor:
        """Class probabilities ``[n, out_channels]``: a softmax over the scores, not calibrated."""
        check_classes(self.settings.readout.code)
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
