"""Fitted layers as functions of any graph, apart from the graph they were fitted on."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_gckm.graph import PreparedGraph
from torch_gckm.kernels import DenseFeatures, Kernel, Rows, Views
from torch_gckm.nn.extension import Extension, check_known

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
    layers: Sequence[LayerMap],
    graph: PreparedGraph,
    known: Known | None = None,
    progress: bool = False,
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
