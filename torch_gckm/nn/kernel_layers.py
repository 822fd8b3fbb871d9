"""Layers of the kernel machine, one upon the other, without labels."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import GraphMismatchError, InvalidInputError, NotFittedError
from torch_gckm.gram import GramLike
from torch_gckm.graph import Direction, Normalize, PreparedGraph, PropagationLike, Scaling, check_features, graph_of
from torch_gckm.graph.topology import EdgeIdentity
from torch_gckm.kernels import KernelLike, as_kernel
from torch_gckm.nn.extension import Record
from torch_gckm.nn.gckm_conv import GCKMConv
from torch_gckm.nn.inductive import Known, embed_graph
from torch_gckm.nn.kernel_layer import check_same_edges
from torch_gckm.partition import WHOLE, Partition, partition_of

M = TypeVar("M", bound="KernelLayers")


class KernelLayers(torch.nn.Module):
    """Hidden layers of a deep graph convolutional kernel machine: they embed nodes and see no labels.

    .. code-block:: python

        layers = KernelLayers(data.num_features, (64, 16)).initialize(data)
        layers.embed()          # embeddings of the fitted graph
        layers.transform(other) # embeddings of any other

    The arguments are those of :class:`~torch_gckm.GCKM`. Those that concern a layer may be one value for all of them or
    a sequence with one entry per layer; there is no further one for a readout.
    Wherever a ``Data`` object is taken, a graph that :meth:`prepare` made of it saves preparing it again.

    Attributes:
        in_channels: The number of input features; -1 takes it from the first graph.
        layers: The layers.
        scaling: How the input features are scaled.
        data_id: The identity of the fitted graph; zeros before a fit.
    """

    data_id: Tensor
    scaling: Scaling
    _how_to_fit = "layers.initialize(data)"
    _fewest_layers = 1

    @torch.inference_mode(False)  # Also there, parameters can be trained later.
    def __init__(
        self,
        in_channels: int,
        hidden_channels: int | Sequence[int] = (64, 16),
        kernel: KernelLike | Sequence[KernelLike] = "rbf",
        aggregation: PropagationLike | Sequence[PropagationLike] = "gcn",
        hops: int | Sequence[int] = 1,
        eta: float | Sequence[float] = 1.0,
        normalize: Normalize = None,
        loss_weights: float | Sequence[float] = 1.0,
        gram: GramLike | Sequence[GramLike] = "auto",
        direction: Direction | Sequence[Direction] = "in",
        power: float | Sequence[float] = 0.5,
    ) -> None:
        super().__init__()
        hidden = (hidden_channels,) if isinstance(hidden_channels, int) else tuple(hidden_channels)
        if len(hidden) < self._fewest_layers:
            raise InvalidInputError("'hidden_channels' must name at least one layer")
        depth = len(hidden)
        # A kernel that serves several layers is copied: each has a bandwidth of its own.
        kernels = [copy.deepcopy(as_kernel(k)) for k in per_layer(kernel, depth, "kernel")]
        arguments = (("aggregation", aggregation), ("hops", hops), ("eta", eta), ("gram", gram))
        columns = [per_layer(value, depth, name) for name, value in arguments]
        directions, powers = per_layer(direction, depth, "direction"), per_layer(power, depth, "power")
        widths = (in_channels, *hidden)[:depth]
        convs = [
            GCKMConv(*row[:-2], direction=row[-2], power=row[-1])
            for row in zip(widths, hidden, kernels, *columns, directions, powers, strict=True)
        ]
        self._assemble(in_channels, convs, Scaling(normalize), per_layer(loss_weights, depth, "loss_weights"))

    @classmethod
    def of(cls: type[M], convs: Sequence[GCKMConv], graph: PreparedGraph) -> M:
        """Layers that were fitted one after the other to a prepared graph."""
        layers = cls.__new__(cls)
        torch.nn.Module.__init__(layers)
        KernelLayers._assemble(layers, graph.x.size(1), convs, graph.scaling, [1.0] * len(convs))
        layers.data_id.copy_(torch.tensor(graph.identity))
        return layers

    def _assemble(
        self, in_channels: int, convs: Sequence[GCKMConv], scaling: Scaling, loss_weights: Sequence[float]
    ) -> None:
        self.in_channels, self.convs, self.scaling = in_channels, torch.nn.ModuleList(convs), scaling
        self.loss_weights = tuple(float(weight) for weight in loss_weights)
        self.register_buffer("data_id", torch.zeros(5, dtype=torch.long))

    def reset_parameters(self) -> None:
        """Forget the fit."""
        for conv in self.layers:
            conv.reset_parameters()
        self.data_id.zero_()

    @property
    def layers(self) -> list[GCKMConv]:
        """The hidden layers."""
        return cast(list[GCKMConv], list(self.convs))

    @property
    def is_initialized(self) -> bool:
        """Whether the layers have been fitted to a graph."""
        return all(conv.is_initialized for conv in self.layers) and bool(self.data_id.any())

    @property
    def hidden_channels(self) -> tuple[int, ...]:
        """The embedding dimensions of the layers."""
        return tuple(conv.out_channels for conv in self.layers)

    @property
    def normalize(self) -> Normalize:
        """How rows or columns of the input features are scaled."""
        return self.scaling.normalize

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the layers."""
        return self.layers[0].h.dtype

    @property
    def partition(self) -> Partition:
        """Which nodes of the fitted graph this process has."""
        return next((part.partition for part in self.modules() if isinstance(part, Record)), WHOLE)

    def prepare(self, data: Data | PreparedGraph) -> PreparedGraph:
        """A graph as the fitted layers see it."""
        return data if isinstance(data, PreparedGraph) else PreparedGraph.of(data, self.scaling, self.dtype)

    def prepare_for_fit(self, data: Data | PreparedGraph) -> PreparedGraph:
        """A graph as layers that are fitted to it see it: its own features decide how they are scaled."""
        if isinstance(data, PreparedGraph):
            return data
        over = partition_of(data)
        with over.agreed():
            x = graph_of(data)[0]
            check_features(x, None if self.in_channels == -1 else self.in_channels, over)
            parts: list[Any] = list(self.modules())
            for part in parts:
                if getattr(part, "in_channels", None) == -1:
                    part.in_channels = x.size(1)
            return PreparedGraph.of(data, self.scaling.fitted_to(x, over), self.dtype)

    def initialize(
        self: M, data: Data | PreparedGraph, *, method: Literal["kernel_pca", "random"] = "kernel_pca", seed: int = 0
    ) -> M:
        """Fit the layers one after the other.

        Under ``torch.no_grad()`` the factors of kernel matrices, which :meth:`loss` would use, are freed at once.

        Args:
            data: Features ``x`` and edges.
            method: ``"random"`` starts from a random point of the manifold instead of kernel PCA.
            seed: The seed of a random start.
        """
        for _ in self.initialize_each(self.prepare_for_fit(data), method=method, seed=seed):
            pass
        return self

    def initialize_each(
        self, graph: PreparedGraph, known: int = 0, *, method: Literal["kernel_pca", "random"], seed: int
    ) -> Iterator[int]:
        """As :meth:`initialize`; yields the number of fitted layers after each. The first ``known`` ones stay."""
        if not known:
            self.reset_parameters()  # If anything fails, no half of an old fit is left.
        h = self.layers[known - 1].z if known else None
        for number, conv in enumerate(self.layers[known:], start=known):
            with graph.partition.agreed():
                conv.initialize_on(graph, h, method=method, seed=seed + number)
            h = conv.z
            yield number + 1
        self.scaling = graph.scaling
        self.data_id.copy_(torch.tensor(graph.identity))

    def loss(self, data: Data | PreparedGraph) -> Tensor:
        r"""The objective :math:`J = \sum_l \gamma_l J_l / n`, differentiable in the embeddings."""
        self._require_init()
        graph = self.prepare(data)
        return self._hidden_loss(graph) / graph.num_nodes

    def embed(self, data: Data | PreparedGraph | None = None, layer: int = -1) -> Tensor:
        """Node embeddings of a layer, of the fitted graph or of any other."""
        self._require_init()
        graph = None if data is None else self.prepare(data)
        if graph is None or self.is_fitted_on(graph):
            return self.layers[layer].z.detach()
        return self._embeddings(graph)[layer]

    def transform(self, data: Data | PreparedGraph, known: Tensor | None = None, *, progress: bool = False) -> Tensor:
        """Embeddings of every node of another graph, ``[n, s]``, by the out-of-sample extension.

        Args:
            data: The complete new graph.
            known: Where the fitted nodes are in it, ``[n_fitted]``: entry ``i`` is the new
                number of fitted node ``i``. Their embeddings are then the fitted ones.
            progress: Show a progress bar for every layer.
        """
        return self._embeddings(data, known, progress)[-1]

    def is_fitted_on(self, data: Data | PreparedGraph) -> bool:
        """Whether this is the graph, with the weights and features, that the layers were fitted on."""
        graph = data if isinstance(data, PreparedGraph) else PreparedGraph.of(data, Scaling(), self.dtype)
        is_same = bool(self.data_id.any()) and tuple(self.data_id.tolist()) == graph.identity
        return is_same and graph.partition.offsets == self.partition.offsets  # Rows of others are not here.

    def _check_fitted_on(self, graph: PreparedGraph) -> None:
        """Raise unless this is the fitted graph."""
        check_same_edges(EdgeIdentity(*self.data_id[: len(EdgeIdentity._fields)].tolist()), graph.topology.identity)
        if not self.is_fitted_on(graph):
            raise GraphMismatchError("the model was fitted to other features; use model.scores(data), or fit again")

    def _embeddings(
        self, data: Data | PreparedGraph, known: Tensor | None = None, progress: bool = False
    ) -> list[Tensor]:
        self._require_init()
        maps = [conv.out_of_sample() for conv in self.layers]
        return embed_graph(maps, self.prepare(data), self._pinned(known), progress)

    def _pinned(self, known: Tensor | None) -> Known | None:
        return None if known is None else (known, [conv.z.detach() for conv in self.layers])

    def _hidden_loss(self, graph: PreparedGraph) -> Tensor:
        total = torch.zeros((), dtype=graph.dtype, device=graph.x.device)
        h = None
        for weight, conv in zip(self.loss_weights, self.layers, strict=False):
            total = total + weight * conv.loss_on(graph, h)
            h = conv.z
        return total

    def _require_init(self) -> None:
        if not self.is_initialized:
            raise NotFittedError(f"the model is not fitted; run {self._how_to_fit} first")


def per_layer(value: Any, count: int, name: str) -> list[Any]:
    """One entry per layer: the value itself for each, or the entries of a sequence."""
    if isinstance(value, str | torch.nn.Module) or not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise InvalidInputError(f"'{name}' needs {count} entries, one per layer, got {len(value)}")
    return list(value)
