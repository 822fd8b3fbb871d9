"""A fitted model for other graphs only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.files import PathLike
from torch_gckm.graph import PreparedGraph, Propagation, Scaling
from torch_gckm.kernels import kernel_from_config
from torch_gckm.nn.layer_map import Known, LayerMap, ReadoutMap, embed_graph, readout_rows
from torch_gckm.nn.saving import save_model
from torch_gckm.nn.settings import ModelSettings
from torch_gckm.readout import class_codes, class_similarity, decode


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
        readout = settings.readout
        codes = class_codes(readout.code, out_channels)
        return cls(settings, in_channels, layers, ReadoutMap(kernel_from_config(readout.kernel), codes),
                   Scaling(settings.normalize))  # fmt: skip

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
        """Scores of every node of a prepared graph; see :func:`~torch_gckm.nn.layer_map.embed_graph`."""
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
