"""The deep graph convolutional kernel machine."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.files import PathLike
from torch_gckm.gram import GramLike
from torch_gckm.kernels import KernelLike, as_kernel
from torch_gckm.nn.aggregation import AggregationLike, Direction, shared_aggregations
from torch_gckm.nn.coding import CodeLike, class_similarity, decode
from torch_gckm.nn.extension import check_known
from torch_gckm.nn.gckm_conv import GCKMConv
from torch_gckm.nn.graph import Adjacency
from torch_gckm.nn.inputs import Inputs
from torch_gckm.nn.labels import ClassWeight
from torch_gckm.nn.saving import arguments_from_config, load_inductive_state, read_model, save_model
from torch_gckm.nn.semi_sup_rkm import SemiSupRKMReadout


class GCKM(torch.nn.Module):
    r"""A deep graph convolutional kernel machine: :class:`GCKMConv` layers and a :class:`SemiSupRKMReadout`.

    From the `"Unsupervised Neighborhood Propagation Kernel Layers for Semi-supervised Node
    Classification" <https://arxiv.org/abs/2301.13764>`_ paper. Fit it with
    :class:`~torch_gckm.train.Trainer`:

    .. code-block:: python

        model = GCKM(data.num_features, (64, 16), num_classes)
        Trainer(model).fit(data)
        model.predict()

    Arguments that concern a layer may be one value for all of them or a
    sequence; ``kernel``, ``eta``, ``gram`` and ``loss_weights`` then have one
    entry a hidden layer and a last one for the readout. The readout's kernel
    reads the last embedding as the view ``"h"`` and the input features as
    ``"x"``: ``RBF(0.05) * RBF(10.0).on("x")`` is the paper's GCKM-MV.

    Args:
        in_channels: The number of input features.
        hidden_channels: The embedding dimensions of the hidden layers.
        out_channels: The number of classes.
        kernel: Kernels, their names, or functions of two matrices.
        aggregation: Aggregations of the hidden layers, see :class:`GCKMConv`.
        hops: How often each hidden layer aggregates.
        eta: The regularisations :math:`\eta`.
        lambda1: The readout's weight of the unsupervised term.
        lambda2: The readout's weight of the labels.
        normalize: ``"l2"`` scales the rows of the input features to unit length, ``"columns"`` the columns to unit
            spread on the fitted graph; in training and for new data.
        loss_weights: The weights :math:`\gamma_l` of the objective :math:`J = \sum_l \gamma_l J_l / n`; 1 by default.
        gram: How to represent kernel matrices.
        direction: Which neighbours to listen to on a directed graph.
        code: The readout's class code.
        class_weight: ``"balanced"`` gives the labels of every class the same weight in sum.
    """

    data_id: Tensor

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int | Sequence[int] = (64, 16),
        out_channels: int = 2,
        kernel: KernelLike | Sequence[KernelLike] = "rbf",
        aggregation: AggregationLike | Sequence[AggregationLike] = "gcn",
        hops: int | Sequence[int] = 1,
        eta: float | Sequence[float] = 1.0,
        lambda1: float = 1.0,
        lambda2: float = 0.1,
        normalize: Literal["l2", "columns"] | None = None,
        loss_weights: float | Sequence[float] | None = None,
        gram: GramLike | Sequence[GramLike] = "auto",
        direction: Direction | Sequence[Direction] = "in",
        code: CodeLike = "one_vs_all",
        class_weight: ClassWeight = None,
    ) -> None:
        super().__init__()
        hidden = (hidden_channels,) if isinstance(hidden_channels, int) else tuple(hidden_channels)
        if not hidden:
            raise InvalidInputError("'hidden_channels' must name at least one layer")
        depth = len(hidden)
        self.in_channels, self.hidden_channels, self.out_channels = in_channels, hidden, out_channels
        self.inputs, self.code = Inputs(normalize), code
        # A kernel that serves several layers is copied: each has a bandwidth of its own.
        kernels = [copy.deepcopy(as_kernel(k)) for k in _per_layer(kernel, depth + 1, "kernel")]
        etas, grams = _per_layer(eta, depth + 1, "eta"), _per_layer(gram, depth + 1, "gram")
        weights = _per_layer(1.0 if loss_weights is None else loss_weights, depth + 1, "loss_weights")
        self.loss_weights = tuple(float(weight) for weight in weights)
        aggregations = shared_aggregations(
            _per_layer(aggregation, depth, "aggregation"),
            _per_layer(hops, depth, "hops"),
            _per_layer(direction, depth, "direction"),
        )
        self.convs = torch.nn.ModuleList(
            GCKMConv(channels_in, channels_out, k, a, eta=e, gram=g)
            for channels_in, channels_out, k, a, e, g in zip(
                (in_channels, *hidden), hidden, kernels, aggregations, etas, grams, strict=False
            )
        )
        self.readout = SemiSupRKMReadout(
            hidden[-1], out_channels, kernels[-1], etas[-1], lambda1, lambda2, grams[-1], code, class_weight
        )
        self.register_buffer("data_id", torch.zeros(4, dtype=torch.long))
        self.register_load_state_dict_post_hook(_match_loaded_channels)

    def reset_parameters(self) -> None:
        """Forget the fit."""
        for conv in self.layers:
            conv.reset_parameters()
        self.readout.reset_parameters()
        self.data_id.zero_()

    @property
    def normalize(self) -> str | None:
        """How rows or columns of the input features are scaled."""
        return self.inputs.normalize

    @property
    def layers(self) -> list[GCKMConv]:
        """The hidden layers."""
        return cast(list[GCKMConv], list(self.convs))

    @property
    def is_fitted(self) -> bool:
        """Whether the model has been fitted to a graph and its labels."""
        return self.readout.is_fitted

    def initialize(
        self,
        data: Data,
        *,
        method: Literal["kernel_pca", "random"] = "kernel_pca",
        seed: int = 0,
        fine_tune: bool = True,
        first: Sequence[GCKMConv] = (),
    ) -> GCKM:
        """Fit the hidden layers one after the other; uses no labels.

        Args:
            data: Features ``x`` and edges.
            method: ``"random"`` starts from a random point of the manifold instead of kernel PCA.
            seed: The seed of a random start.
            fine_tune: Keep what every step of fine-tuning would otherwise compute again; ``False`` saves memory.
            first: Layers that were fitted to this graph in another model, to be taken over as the first ones.
        """
        self.inputs.fit(data)
        h, edge_index, edge_weight = self._graph(data)
        self.reset_parameters()  # If anything fails, no half of an old fit is left.
        for number, conv in enumerate(self.layers):
            if number < len(first):
                self.convs[number] = conv = first[number]
                conv.check_graph(h, edge_index, edge_weight)
            else:
                conv.initialize(h, edge_index, edge_weight, method=method, seed=seed + number)
            if not fine_tune:
                conv.release()
            h = conv.h  # The parameter itself, by which a layer knows its input again.
            self._match_channels()
        self.data_id.copy_(torch.tensor(self.inputs.identity(data)))
        return self

    def solve(self, data: Data, *, split: int | None = None, keep_gram: bool = False) -> Tensor:
        """Solve the readout for the labels of ``data.train_mask`` (all ``y >= 0`` without one); returns the scores.

        Args:
            data: The fitted graph with its labels.
            split: The column to use of masks ``[n, splits]``.
            keep_gram: Use the readout's kernel matrix of the last solve again; only labels have changed since.
        """
        self._require_init()
        if data.y is None:
            raise InvalidInputError("the data object has no labels 'y'; use -1 for unlabelled nodes")
        views, mask = self._readout_views(data), data.get("train_mask")
        scores: Tensor = self.readout(views, data.y, mask, split=split, keep_landmarks=True, keep_gram=keep_gram)
        return scores

    def loss(self, data: Data) -> Tensor:
        r"""The objective :math:`J = \sum_l \gamma_l J_l / n`, differentiable in the embeddings."""
        self._require_init()
        h, edge_index, edge_weight = self._graph(data)
        total = torch.zeros((), dtype=h.dtype, device=h.device)
        for weight, conv in zip(self.loss_weights, self.layers, strict=False):
            total = total + weight * conv.loss(h, edge_index, edge_weight)
            h = conv.h
        total = total + self.loss_weights[-1] * self.readout.loss(self._readout_views(data))
        return total / h.size(0)

    def observe(self, data: Data) -> None:
        """Bring what :meth:`transform` extends from up to date with the embeddings."""
        h, edge_index, edge_weight = self._graph(data)
        for conv in self.layers:
            conv.observe(h, edge_index, edge_weight)
            h = conv.h
        self.readout.observe(self._readout_views(data))

    def forward(self, x: Tensor, edge_index: Adjacency | None = None, edge_weight: Tensor | None = None) -> Tensor:
        """The scores of the last solve on the fitted graph, ``[n, p]``; ``x`` is not looked at."""
        self._require_fit()
        self.layers[0].check_graph(x, edge_index, edge_weight)
        return self.readout.scores

    def embed(self, data: Data | None = None, layer: int = -1) -> Tensor:
        """Node embeddings of a hidden layer, of the fitted graph or of any other."""
        if data is None or self.is_fitted_on(data):
            self._require_init()
            return self.layers[layer].h.detach()
        return self._extend(data, None)[layer]

    def transform(self, data: Data, known: Tensor | None = None, *, progress: bool = False) -> Tensor:
        """Scores of every node of another graph, ``[n, p]``, by the out-of-sample extension.

        With low-rank kernel matrices a node costs the same whatever the size of the fitted graph, and nodes are
        taken a block at a time.

        Args:
            data: The complete new graph.
            known: Where the fitted nodes are in it, ``[n_fitted]``: entry ``i`` is the new
                number of fitted node ``i``. Their embeddings are then the fitted ones.
            progress: Show a progress bar for every layer.
        """
        h = self._extend(data, known, progress)[-1]
        return self.readout.transform(self._with_input(h, data), progress="readout" if progress else None)

    def predict(self, data: Data | None = None) -> Tensor:
        """Classes ``[n]`` of the fitted graph, or of any other through :meth:`transform`."""
        return decode(self._scores(data), self.readout.codes)

    def predict_proba(self, data: Data | None = None) -> Tensor:
        """Class probabilities ``[n, out_channels]``: a softmax over the scores, not calibrated."""
        return class_similarity(self._scores(data), self.readout.codes).softmax(dim=1)

    def summary(self) -> str:
        """The fitted layers, a line each: channels, kernel, and what represents its matrix with which error."""
        self._require_fit()
        lines = [
            f"layer {number}: {conv.h.size(1)} channels, {conv.kernel!r}, {conv.gram_used}"
            for number, conv in enumerate(self.layers, start=1)
        ]
        readout = self.readout
        labels = f"{readout.labelled.numel()} labels, {readout.out_channels} classes"
        return "\n".join([*lines, f"readout: {labels}, {readout.kernel!r}, {readout.gram_used}"])

    def save(self, path: PathLike, *, inductive: bool = False) -> None:
        """Write the model to one file, atomically.

        Args:
            path: The file.
            inductive: Write only what new nodes and graphs need: with low-rank kernel matrices landmarks and
                small matrices, whatever the size of the fitted graph.
        """
        save_model(self, path, inductive or self.readout.fixed is not None)  # Loaded so, it has nothing else to write.

    @classmethod
    def load(cls, path: PathLike) -> GCKM:
        """Read a model that :meth:`save` wrote; executes no code from the file."""
        content = read_model(path)
        return cls.from_state(content["config"], content["state"], inductive=content["inductive"])

    @classmethod
    def from_state(cls, config: dict[str, Any], state: dict[str, Any], *, inductive: bool = False) -> GCKM:
        """A model from the parts of its file."""
        model = cls(**arguments_from_config(config))
        if inductive:
            load_inductive_state(model, state)
        else:
            model.to(state["readout.scores"].dtype)
            model.load_state_dict(state)
        return model

    def _match_channels(self) -> None:
        """A layer whose rank was deficient has fewer columns than planned; the next one reads as many."""
        for conv, below in zip(self.layers[1:], self.layers, strict=False):
            conv.in_channels = below.h.size(1)
        self.readout.in_channels = self.layers[-1].h.size(1)

    def _scores(self, data: Data | None) -> Tensor:
        if data is not None and not self.is_fitted_on(data):
            return self.transform(data)
        self._require_fit()
        return self.readout.scores

    def _extend(self, data: Data, known: Tensor | None, progress: bool = False) -> list[Tensor]:
        if self.readout.fixed is None or known is not None:
            self._require_init()
        if known is not None:
            check_known(known, self.layers[0].h.size(0), data.num_nodes)
        h, edge_index, edge_weight = self._graph(data)
        embeddings = []
        for number, conv in enumerate(self.layers, start=1):
            h = conv.transform(h, edge_index, edge_weight, progress=f"layer {number}" if progress else None)
            if known is not None:
                h[known] = conv.h.detach()
            embeddings.append(h)
        return embeddings

    def _readout_views(self, data: Data) -> dict[str, Tensor]:
        return self._with_input(self.layers[-1].h, data)

    def _with_input(self, h: Tensor, data: Data) -> dict[str, Tensor]:
        return {"h": h, "x": self.inputs.view(data, h.dtype)} if "x" in self.readout.kernel.views else {"h": h}

    def _graph(self, data: Data) -> tuple[Tensor, Adjacency | None, Tensor | None]:
        return self.inputs.of(data, self.layers[0].h.dtype)

    def is_fitted_on(self, data: Data) -> bool:
        """Whether this is the graph, with the weights and features, that the model was fitted on."""
        return bool(self.data_id.any()) and tuple(self.data_id.tolist()) == self.inputs.identity(data)

    def _require_init(self) -> None:
        self._require_graph()
        if not self.layers[-1].is_initialized:
            raise NotFittedError("the model is not fitted; run Trainer(model).fit(data) first")

    def _require_fit(self) -> None:
        self._require_graph()
        if not self.is_fitted:
            raise NotFittedError("the model is not fitted; run Trainer(model).fit(data) first")

    def _require_graph(self) -> None:
        if self.readout.fixed is not None:
            raise NotFittedError("the model was saved with inductive=True and knows no graph; pass it one")


def _match_loaded_channels(model: GCKM, _: Any) -> None:  # A function with a name can be pickled.
    model._match_channels()


def _per_layer(value: Any, count: int, name: str) -> list[Any]:
    if isinstance(value, str | torch.nn.Module) or not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise InvalidInputError(f"'{name}' needs {count} entries, one a layer, got {len(value)}")
    return list(value)
