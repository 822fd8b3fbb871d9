"""Fit many models to one graph; models that begin alike share their first layers."""

from collections import OrderedDict

import torch
from torch_geometric.data import Data

from torch_gckm.gram import GramLike
from torch_gckm.graph import Normalize, PreparedGraph, Scaling
from torch_gckm.nn import GCKM, GCKMConv, ModelSettings, SemiSupRKMReadout


class PreparedGraphs:
    """One graph, prepared once for every way to scale its features; edges and their matrices are shared."""

    def __init__(self, data: Data) -> None:
        self.plain = PreparedGraph.of(data, Scaling(), torch.get_default_dtype())
        self._scaled: dict[Normalize, PreparedGraph] = {None: self.plain}

    def scaled(self, normalize: Normalize) -> PreparedGraph:
        """The graph with its features scaled like this."""
        if normalize not in self._scaled:
            self._scaled[normalize] = self.plain.scaled(Scaling(normalize).fitted_to(self.plain.given))
        return self._scaled[normalize]


class SharedFits:
    """Models fitted to one graph at step 0, layers and inputs reused.

    The hidden layers of a model do not depend on labels. Settings that share
    their first layers share the fitted modules themselves, which must not be
    trained further.

    Args:
        graphs: The graph.
        num_classes: The number of classes.
        gram: How to represent kernel matrices.
        max_bytes: Forget the layers that were used longest ago beyond this size.
    """

    def __init__(
        self, graphs: PreparedGraphs, num_classes: int, gram: GramLike = "auto", max_bytes: float = 1e9
    ) -> None:
        self.graphs, self.num_classes, self.gram, self.max_bytes = graphs, num_classes, gram, max_bytes
        self._layers: OrderedDict[str, GCKMConv] = OrderedDict()

    def graph(self, settings: ModelSettings) -> PreparedGraph:
        """The graph as a model with these settings sees it."""
        return self.graphs.scaled(settings.normalize)

    @torch.no_grad()
    def fit(self, settings: ModelSettings) -> GCKM:
        """A model with fitted hidden layers; its readout is still to be solved."""
        graph = self.graph(settings)
        width, device = graph.x.size(1), graph.x.device
        convs: list[GCKMConv] = []
        for layer, key in zip(settings.layers, settings.layer_keys(), strict=True):
            conv = self._layers.get(key)
            if conv is None:
                conv = GCKMConv.from_settings(width, layer, self.gram).to(device)
                conv.initialize_on(graph, convs[-1].h if convs else None)
                conv.requires_grad_(False)  # Others will use it, too.
                self._layers[key] = conv
            self._layers.move_to_end(key)
            convs.append(conv)
            width = layer.channels
        self._forget()
        readout = SemiSupRKMReadout.from_settings(width, self.num_classes, settings.readout, self.gram)
        return GCKM.with_readout(convs, graph, readout.to(device))

    def _forget(self) -> None:
        while len(self._layers) > 3 and sum(map(_size, self._layers.values())) > self.max_bytes:
            self._layers.popitem(last=False)


def _size(module: torch.nn.Module) -> int:
    return sum(t.element_size() * (t.numel() if t.layout == torch.strided else 3 * t.values().numel())
               for t in (*module.parameters(), *module.buffers()))  # fmt: skip
