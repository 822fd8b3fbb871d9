"""The deep graph convolutional kernel machine."""

import copy
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.files import PathLike
from torch_gckm.gram import GramLike
from torch_gckm.graph import (
    Adjacency,
    Direction,
    Normalize,
    PreparedGraph,
    PropagationLike,
    Scaling,
    Topology,
    as_propagation,
)
from torch_gckm.kernels import KernelLike, Rows, as_kernel
from torch_gckm.nn.extension import check_known
from torch_gckm.nn.gckm_conv import GCKMConv
from torch_gckm.nn.inductive import InductiveGCKM, readout_rows
from torch_gckm.nn.kernel_layers import KernelLayers, per_layer
from torch_gckm.nn.prediction_sets import PredictsSets
from torch_gckm.nn.semi_sup_rkm import SemiSupRKMReadout
from torch_gckm.nn.settings import ModelSettings, PropagationSettings, load_model, save_model
from torch_gckm.readout import ClassWeight, CodeLike, Machine, Targets, check_classes, class_similarity, kind_of_targets


class GCKM(PredictsSets, KernelLayers):
    r"""A deep graph convolutional kernel machine: :class:`GCKMConv` layers and a :class:`SemiSupRKMReadout`.

    From the `"Unsupervised Neighborhood Propagation Kernel Layers for Semi-supervised Node
    Classification" <https://arxiv.org/abs/2301.13764>`_ paper. Fit it with a :class:`~torch_gckm.train.Trainer`:

    .. code-block:: python

        model = GCKM(data.num_features, (64, 16), num_classes)
        Trainer(model).fit(data)
        model.predict()

    Arguments that concern a layer may be one value for all of them or a sequence; ``kernel``, ``eta``, ``gram`` and
    ``loss_weights`` then have one entry per hidden layer and a last one for the readout. The readout's kernel reads the
    last embedding as the view ``"h"`` and the input features as ``"x"``: ``RBF(0.05) * RBF(10.0).on("x")`` is the
    paper's GCKM-MV. Where a ``Data`` object is taken, a graph that :meth:`prepare` made of it saves preparing it again.

    Without hidden layers, ``hidden_channels=()``, the model is the readout on the propagated input features;
    ``aggregation``, ``hops`` and ``direction`` then say how these are propagated. There is nothing to fine-tune.

    Args:
        in_channels: The number of input features; -1 takes it from the first graph.
        hidden_channels: The embedding dimensions of the hidden layers.
        out_channels: The number of classes.
        kernel: Kernels, their names, or functions of two matrices.
        aggregation: Propagations of the hidden layers, see :class:`GCKMConv`.
        hops: How often each hidden layer propagates.
        eta: The regularisations :math:`\eta`.
        lambda1: The readout's weight of the unsupervised term.
        lambda2: The readout's weight of the labels.
        normalize: ``"l2"`` scales the rows of the input features to unit length, ``"columns"`` the columns to unit
            spread on the fitted graph; in training and for new data.
        loss_weights: The weights :math:`\gamma_l` of the objective :math:`J = \sum_l \gamma_l J_l / n`; 1 by default.
        gram: How to represent kernel matrices.
        direction: Which neighbours to receive from on a directed graph.
        code: The readout's class code; ``"values"`` for real targets, of which ``out_channels`` is the number.
        class_weight: ``"balanced"`` gives the labels of every class the same weight in sum.
        power: How much the outputs of hidden layers keep of the spectrum, see :class:`GCKMConv`; 0 in the paper.
    """

    readout: SemiSupRKMReadout
    _fewest_layers = 0
    _how_to_fit = "Trainer(model).fit(data)"

    @torch.inference_mode(False)
    def __init__(
        self,
        in_channels: int,
        hidden_channels: int | Sequence[int] = (64, 16),
        out_channels: int = 2,
        kernel: KernelLike | Sequence[KernelLike] = "rbf",
        aggregation: PropagationLike | Sequence[PropagationLike] = "gcn",
        hops: int | Sequence[int] = 1,
        eta: float | Sequence[float] = 1.0,
        lambda1: float = 1.0,
        lambda2: float = 0.1,
        normalize: Normalize = None,
        loss_weights: float | Sequence[float] | None = None,
        gram: GramLike | Sequence[GramLike] = "auto",
        direction: Direction | Sequence[Direction] = "in",
        code: CodeLike = "one_vs_all",
        class_weight: ClassWeight = None,
        power: float | Sequence[float] = 0.5,
    ) -> None:
        hidden = (hidden_channels,) if isinstance(hidden_channels, int) else tuple(hidden_channels)
        count = len(hidden) + 1  # The readout has the last entry.
        kernels = per_layer(kernel, count, "kernel")
        etas, grams = per_layer(eta, count, "eta"), per_layer(gram, count, "gram")
        weights = per_layer(1.0 if loss_weights is None else loss_weights, count, "loss_weights")
        own_input: list[Any] = ["none"]
        if not hidden:
            arguments = (("aggregation", aggregation), ("hops", hops), ("direction", direction))
            own_input = [per_layer(value, 1, name)[0] for name, value in arguments]
            aggregation, hops, direction = "gcn", 1, "in"
        layers = (kernels[:-1], aggregation, hops, etas[:-1], normalize, weights[:-1], grams[:-1], direction, power)
        super().__init__(in_channels, hidden, *layers)
        self.propagation = as_propagation(*own_input)
        own = copy.deepcopy(as_kernel(kernels[-1]))
        options = (etas[-1], lambda1, lambda2, grams[-1], code, class_weight)
        self.readout = SemiSupRKMReadout((in_channels, *hidden)[-1], out_channels, own, *options)
        self.loss_weights += (float(weights[-1]),)

    @classmethod
    def with_readout(
        cls, convs: Sequence[GCKMConv], graph: PreparedGraph, propagation: torch.nn.Module, readout: SemiSupRKMReadout
    ) -> Self:
        """A model of layers that were fitted to a prepared graph, and a readout that is still to be solved."""
        model = cls.of(convs, graph)
        model.propagation, model.readout = propagation, readout
        model.loss_weights += (1.0,)
        return model

    @classmethod
    def from_settings(
        cls, settings: ModelSettings, in_channels: int, out_channels: int, gram: GramLike = "auto"
    ) -> Self:
        """An unfitted model with these settings; ``gram`` is used where they leave it open."""
        layers = settings.layers
        widths = [in_channels, *(layer.channels for layer in layers)]
        model = cls.__new__(cls)
        torch.nn.Module.__init__(model)
        convs = [GCKMConv.from_settings(width, layer, gram) for width, layer in zip(widths, layers, strict=False)]
        weights = [*(layer.loss_weight for layer in layers), settings.readout.loss_weight]
        model._assemble(in_channels, convs, Scaling(settings.normalize), weights)
        model.propagation = settings.propagation.build()
        model.readout = SemiSupRKMReadout.from_settings(widths[-1], out_channels, settings.readout, gram)
        return model

    def reset_parameters(self) -> None:
        """Forget the fit."""
        super().reset_parameters()
        self.readout.reset_parameters()

    @property
    def out_channels(self) -> int:
        """The number of classes."""
        return self.readout.out_channels

    @property
    def settings(self) -> ModelSettings:
        """The settings of the model, from which :meth:`from_settings` builds one like it."""
        layers = (conv.settings(weight) for conv, weight in zip(self.layers, self.loss_weights, strict=False))
        readout, propagation = self.readout.settings(self.loss_weights[-1]), PropagationSettings.of(self.propagation)
        return ModelSettings(tuple(layers), readout, self.normalize, propagation)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the model."""
        return self.readout.h.dtype

    @property
    def is_fitted(self) -> bool:
        """Whether the model has been fitted to a graph and its labels."""
        return self.readout.is_fitted

    def solve(self, data: Data, *, split: int | None = None) -> Tensor:
        """Solve the readout for the labels of ``data.train_mask`` (all known ones without); returns the scores.

        Args:
            data: The fitted graph with its labels.
            split: The column to use of masks ``[n, splits]``.
        """
        self._require_init()
        kind = kind_of_targets(self.readout.code)
        return self.solve_on(self.prepare(data), kind.of(data, self.out_channels, split, warn=True))

    def solve_on(self, graph: PreparedGraph, targets: Targets) -> Tensor:
        """Solve the readout on the prepared graph; landmarks of an earlier solve on it are used again."""
        with graph.partition.agreed():
            fit = self.readout.fitted
            rows = self._readout_rows(graph)
            return self.readout.solve_on(rows, targets.to(rows.device), None if fit is None else fit.known_landmarks)

    def embed(self, data: Data | PreparedGraph | None = None, layer: int = -1) -> Tensor:
        """Node embeddings of a layer, of the fitted graph or any other; without layers what the readout reads."""
        if self.layers:
            return super().embed(data, layer)
        self._require_init()
        return self.readout.fit.rows().view("h").dense() if data is None else self._embeddings(data)[-1]

    def _embeddings(
        self, data: Data | PreparedGraph, known: Tensor | None = None, progress: bool = False
    ) -> list[Tensor]:
        if self.layers:
            return super()._embeddings(data, known, progress)
        self._require_init()
        graph = self.prepare(data)
        h = graph.propagated(self.propagation).dense()
        if known is None:
            return [h]
        check_known(known, self.embed().size(0), graph.num_nodes, graph.partition)
        return [h.index_copy(0, known, self.embed())]

    def loss(self, data: Data | PreparedGraph) -> Tensor:
        r"""The objective :math:`J = \sum_l \gamma_l J_l / n`, differentiable in the embeddings."""
        self._require_init()
        graph = self.prepare(data)
        of_readout = self.readout.loss_on(self._readout_rows(graph))
        return (self._hidden_loss(graph) + self.loss_weights[-1] * of_readout) / graph.num_nodes

    def forward(self, x: Tensor, edge_index: Adjacency | None = None, edge_weight: Tensor | None = None) -> Tensor:
        """The scores of the last solve on the fitted graph, ``[n, p]``; raises if this is another one."""
        self._require_fit()
        graph = PreparedGraph(x, Topology(edge_index, edge_weight, x.size(0)), Scaling(), self.dtype)
        self._check_fitted_on(graph)
        return self.readout.scores

    def scores(
        self, data: Data | PreparedGraph | None = None, known: Tensor | None = None, *, progress: bool = False
    ) -> Tensor:
        """Scores ``[n, p]`` of the fitted graph, or of any other by the out-of-sample extension.

        With low-rank kernel matrices a node costs the same whatever the size of the fitted graph, and nodes are
        taken a block at a time.

        Args:
            data: The complete new graph; by default the fitted one.
            known: Where the fitted nodes are in it, ``[n_fitted]``: entry ``i`` is the new
                number of fitted node ``i``. Their embeddings are then the fitted ones.
            progress: Show a progress bar for every layer.
        """
        self._require_fit()
        if data is None:
            if known is not None:
                raise InvalidInputError("'known' says where fitted nodes are in another graph; pass the graph, too")
            return self.readout.scores
        graph = self.prepare(data)
        if known is None and self.is_fitted_on(graph):
            return self.readout.scores
        if known is None or self.layers:
            return self._out_of_sample().scores_on(graph, self._pinned(known), progress)
        return self._out_of_sample().scores_beside(graph, known, self.readout.fit.rows().view("h"), progress)

    def predict(self, data: Data | PreparedGraph | None = None) -> Tensor:
        """Classes ``[n]`` of the fitted graph, or of any other; with ``code="values"``, the scores themselves."""
        return self.readout.predict(self.scores(data))

    def predict_proba(self, data: Data | PreparedGraph | None = None) -> Tensor:
        """Class probabilities ``[n, out_channels]``: a softmax over the scores, not calibrated."""
        check_classes(self.readout.code)
        return class_similarity(self.scores(data), self.readout.known_codes).softmax(dim=1)

    def _machines(self, per_class: bool) -> tuple[list[Machine], Tensor]:
        return self.readout._machines(per_class)

    def inductive(self) -> InductiveGCKM:
        """A copy of the model for other graphs only: landmarks and small matrices, apart from the fitted graph."""
        return copy.deepcopy(self._out_of_sample())

    def _out_of_sample(self) -> InductiveGCKM:
        """The same, made of this model's own kernels and extensions."""
        self._require_fit()
        maps = [conv.out_of_sample() for conv in self.layers]
        readout = self.readout.out_of_sample()
        return InductiveGCKM(self.settings, self.in_channels, maps, self.propagation, readout, self.scaling)

    def _readout_rows(self, graph: PreparedGraph) -> Rows:
        return readout_rows(self.readout.kernel, self.propagation, graph, self.layers[-1].z if self.layers else None)

    def summary(self) -> str:
        """The fitted layers, a line each: channels, kernel, and what represents its matrix with which error."""
        self._require_fit()
        lines = [] if self.layers else [f"features: {self.in_channels}, {PropagationSettings.of(self.propagation)}"]
        lines += [
            f"layer {number}: {conv.h.size(1)} channels, {conv.kernel!r}, {conv.fit.description}"
            for number, conv in enumerate(self.layers, start=1)
        ]
        readout = self.readout
        what = "columns" if readout.fit.has_values else "classes"
        labels = f"{int(readout.fit.counts.sum())} labels, {readout.out_channels} {what}"
        return "\n".join([*lines, f"readout: {labels}, {readout.kernel!r}, {readout.fit.description}"])

    def save(self, path: PathLike, *, inductive: bool = False) -> None:
        """Write one file, atomically. ``inductive``: only what new graphs need, also if several processes fitted it."""
        save_model(self.inductive() if inductive else self, path, self.partition)

    @classmethod
    def load(cls, path: PathLike) -> Any:
        """Read a model that :meth:`save` wrote, a :class:`GCKM` or an :class:`InductiveGCKM`; executes no code."""
        return load_model(path)

    def _require_fit(self) -> None:
        if not self.is_fitted:
            raise NotFittedError(f"the model is not fitted; run {self._how_to_fit} first")
