"""The graph convolutional kernel machine layer."""

from __future__ import annotations

import warnings
from typing import Literal

import torch
from torch import Tensor

from torch_gckm.cache import LastCall
from torch_gckm.errors import (
    DetachedInputWarning,
    GraphMismatchError,
    InvalidInputError,
    LowRankError,
    LowRankWarning,
    NotFittedError,
)
from torch_gckm.gram import Gram, GramLike, as_gram
from torch_gckm.kernels import DenseFeatures, KernelLike, Rows, Views, as_kernel
from torch_gckm.manifold import random_stiefel
from torch_gckm.nn.aggregation import Aggregation, AggregationLike, Direction, as_aggregation
from torch_gckm.nn.extension import Extension
from torch_gckm.nn.fitted import FittedModule
from torch_gckm.nn.graph import Adjacency, graph_fingerprint
from torch_gckm.numerics import check_finite


class GCKMConv(FittedModule):
    r"""The graph convolutional kernel machine layer from the `"Unsupervised Neighborhood Propagation
    Kernel Layers for Semi-supervised Node Classification" <https://arxiv.org/abs/2301.13764>`_ paper.

    Kernel PCA on aggregated features. The layer's parameter is the embedding
    itself, the dual variables :math:`H` of

    .. math::
        \min_H -\frac{1}{2 \eta} \mathrm{Tr}(H' K_c H) \quad \textrm{s.t.} \quad H'H = I,
        \qquad K_{uv} = k(a_u, a_v), \quad a = \psi(x),

    with :math:`K_c` the doubly centred kernel matrix and :math:`\psi` an
    aggregation over neighbours. :meth:`initialize` finds the minimum, the top
    eigenvectors; in a deeper model :meth:`loss` and
    :class:`~torch_gckm.optim.CayleyAdam` tune it together with other terms.

    .. note::
        On the graph it was fitted on, :meth:`forward` returns the parameter
        :math:`H` and does not look at ``x``. Layers below learn only through
        :meth:`loss`. For another graph use :meth:`transform`.

    The kernel reads the aggregated features as the view ``"h"``, and the layer's
    input before aggregation as ``"x"``.

    Args:
        in_channels: The number of input features.
        out_channels: The number of embedding dimensions :math:`s`.
        kernel: A kernel, its name, or a function of two matrices.
        aggregation: ``"gcn"``, ``"sum"``, ``"mean"``, ``"none"``, or a module ``(x, edge_index, edge_weight) -> a``.
        hops: How often to aggregate.
        eta: The regularisation :math:`\eta > 0`.
        gram: How to represent the kernel matrix: ``"auto"``, ``"dense"`` or an object such as ``Dense()``.
        num_nodes: The number of nodes, if known; -1 takes it from the first graph.
        direction: Which neighbours to listen to on a directed graph: ``"in"``, ``"out"`` or ``"both"``.
        rank_deficient: What to do if :math:`K_c` has fewer than :math:`s` positive eigenvalues:
            ``"reduce"`` the dimension with a warning, or raise an ``"error"``.

    Shapes:
        - **input:** features ``[n, in_channels]``, edges ``[2, E]`` or sparse, edge weights ``[E]`` *(optional)*
        - **output:** ``[n, out_channels]``

    Attributes:
        h: The dual variables :math:`H`, ``[n, out_channels]``, a Parameter on the Stiefel manifold.
        eigenvalues: The eigenvalues of :math:`K_c` found by :meth:`initialize`, ``[out_channels]``.
    """

    stiefel_parameters = ("h",)
    fitted_tensors = ("h", "eigenvalues", "landmarks")
    eigenvalues: Tensor
    graph: Tensor
    landmarks: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: KernelLike = "rbf",
        aggregation: AggregationLike = "gcn",
        hops: int = 1,
        eta: float = 1.0,
        gram: GramLike = "auto",
        num_nodes: int = -1,
        direction: Direction = "in",
        rank_deficient: Literal["reduce", "error"] = "reduce",
    ) -> None:
        super().__init__()
        if out_channels < 1:
            raise InvalidInputError(f"'out_channels' must be positive, got {out_channels}")
        if not eta > 0:
            raise InvalidInputError(f"'eta' must be positive, got {eta}")
        if rank_deficient not in ("reduce", "error"):
            raise InvalidInputError(f"'rank_deficient' must be 'reduce' or 'error', got {rank_deficient!r}")
        self.in_channels, self.out_channels, self.num_nodes = in_channels, out_channels, num_nodes
        self.eta, self.rank_deficient = float(eta), rank_deficient
        self.kernel = as_kernel(kernel)
        self.aggregation = as_aggregation(aggregation, hops, direction)
        self.gram = as_gram(gram)
        self.h = torch.nn.Parameter(torch.empty(0, out_channels))
        self.register_buffer("eigenvalues", torch.empty(0))
        self.register_buffer("landmarks", torch.empty(0, dtype=torch.long))
        self.register_buffer("graph", torch.zeros(3, dtype=torch.long))
        self._gram_cache: LastCall[Gram] = LastCall()
        self._graph_cache: LastCall[tuple[int, int, int]] = LastCall()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget the fit. With a known ``num_nodes``, the embedding becomes a random orthonormal matrix."""
        self._store("eigenvalues", self.eigenvalues.new_empty(0))
        self._store("landmarks", self.landmarks.new_empty(0))
        self._described = None
        self._store("graph", torch.zeros_like(self.graph))
        self.support.set({})
        self._gram_cache.clear()
        if self.num_nodes > 0:
            self._store("h", random_stiefel(self.num_nodes, self.out_channels, centred=True))
        else:
            self._store("h", self.h.new_empty(0, self.out_channels))

    @property
    def is_initialized(self) -> bool:
        """Whether the layer has been fitted to a graph."""
        return not self.support.is_empty

    def initialize(
        self,
        x: Tensor,
        edge_index: Adjacency | None = None,
        edge_weight: Tensor | None = None,
        *,
        method: Literal["kernel_pca", "random"] = "kernel_pca",
        seed: int = 0,
    ) -> GCKMConv:
        """Fit the layer to a graph by kernel PCA on the aggregated features.

        Args:
            x: Node features.
            edge_index: Edges.
            edge_weight: Edge weights.
            method: ``"random"`` starts from a random point of the manifold instead.
            seed: The seed of the random start.
        """
        self._check(x)
        if self.num_nodes > 0 and x.size(0) != self.num_nodes:
            raise InvalidInputError(f"the layer was made for num_nodes={self.num_nodes}, got {x.size(0)} nodes")
        with torch.inference_mode(False), torch.no_grad():
            rows = self._rows(x, edge_index, edge_weight)
            self.kernel.fit(rows)
            gram = self.gram(self.kernel, rows, centred=True, min_rank=2 * self.out_channels)
            if method == "kernel_pca":
                values, h = self._kernel_pca(gram)
            elif method == "random":
                h = random_stiefel(x.size(0), self.out_channels, seed=seed, centred=True).to(self.h)
                values = (h * gram.matmul(h)).sum(dim=0)
            else:
                raise InvalidInputError(f"'method' must be 'kernel_pca' or 'random', got {method!r}")
        self._store("h", h)
        self._store("eigenvalues", values)
        self._store("graph", torch.tensor(self._fingerprint(x, edge_index, edge_weight)))
        marks = gram.landmarks
        self._described = gram.describe()
        self._store("landmarks", self.landmarks.new_empty(0) if marks is None else marks)
        self._keep(gram, x)
        if x.requires_grad:
            gram.release()  # What is below will be trained: this matrix will change.
        self._gram_cache.get(self._key(x, edge_index, edge_weight), lambda: gram)
        return self

    def release(self) -> None:
        """Free the factor of the kernel matrix, which :meth:`loss` uses again and again; it can do without."""
        gram = self._gram_cache.last
        if gram is not None:
            gram.release()

    def forward(
        self,
        x: Tensor,
        edge_index: Adjacency | None = None,
        edge_weight: Tensor | None = None,
        n_id: Tensor | None = None,
    ) -> Tensor:
        """The embedding of the fitted graph; fits the layer on the first call.

        Args:
            x: Node features; only looked at by the first call.
            edge_index: Edges.
            edge_weight: Edge weights.
            n_id: Return these nodes only; ``x`` and ``edge_index`` may then be a sampled subgraph.
        """
        if n_id is not None:
            self._require_fit()  # The first graph to be seen must be the whole one.
        elif not self.is_initialized:
            self.initialize(x, edge_index, edge_weight)
        else:
            self.check_graph(x, edge_index, edge_weight)
        if x.requires_grad and torch.is_grad_enabled():
            warnings.warn(
                "GCKMConv returns its own embedding and passes no gradient to its input; "
                "add conv.loss(x, edge_index) to the objective to train the layers below",
                DetachedInputWarning,
                stacklevel=2,
            )
        return self.h if n_id is None else self.h[n_id]

    def loss(self, x: Tensor, edge_index: Adjacency | None = None, edge_weight: Tensor | None = None) -> Tensor:
        r"""The objective :math:`-\frac{1}{2 \eta} \mathrm{Tr}(H' K_c H)`, differentiable in :math:`H` and ``x``.

        The features seen here become the ones that :meth:`transform` extends from.
        """
        self._require_fit()
        self.check_graph(x, edge_index, edge_weight)
        return self._bind(x, edge_index, edge_weight).centred_quadratic(self.h) / (-2.0 * self.eta)

    @torch.no_grad()
    def transform(
        self,
        x: Tensor,
        edge_index: Adjacency | None = None,
        edge_weight: Tensor | None = None,
        *,
        progress: str | None = None,
    ) -> Tensor:
        r"""Embeddings of any graph, by the out-of-sample extension.

        .. math::
            \hat H = \tfrac{1}{\eta} \left( K_{\textrm{new}} H_c - \tfrac{1}{n} 1 1' K H_c \right) \Lambda^{-1},
            \qquad \Lambda = \tfrac{1}{\eta} H' K_c H,

        with :math:`H_c` the embedding minus its mean. On the fitted graph, right
        after kernel PCA, it returns :math:`H`. With a low-rank kernel matrix a node costs
        the same whatever the size of the fitted graph.

        Args:
            x: Node features.
            edge_index: Edges.
            edge_weight: Edge weights.
            progress: The title of a progress bar; ``None`` shows none.
        """
        extension = self.extension
        self._check(x)
        return extension(self.kernel, self._rows(x, edge_index, edge_weight), progress)

    def _extend(self) -> Extension:
        gram = self._gram_of(self.support.rows().to(torch.float64))
        centred = self.h.detach().double()
        centred = centred - centred.mean(dim=0)
        product = gram.matmul(centred)
        spectrum = centred.t() @ product

        def turn(values: Tensor) -> Tensor:
            turned: Tensor = torch.linalg.solve(spectrum, values, left=False)
            return turned

        return self._extension_of(gram, centred, turn, -turn(product.mean(dim=0, keepdim=True))[0])

    def observe(self, x: Tensor, edge_index: Adjacency | None = None, edge_weight: Tensor | None = None) -> None:
        """Make these features the ones that :meth:`transform` extends from."""
        with torch.no_grad():
            self._bind(x, edge_index, edge_weight)

    def check_graph(self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None = None) -> None:
        """Raise unless this is the graph that the layer was fitted on."""
        fitted, given = tuple(self.graph.tolist()), self._fingerprint(x, edge_index, edge_weight)
        if fitted != given:
            how = ", other ones or with other weights" if fitted[:2] == given[:2] else ""
            raise GraphMismatchError(
                f"the layer was fitted on a graph with {fitted[0]} nodes and {fitted[1]} edges; the one given has "
                f"{given[0]} nodes and {given[1]} edges{how}. "
                "Use transform for other graphs, or initialize to fit again"
            )

    def _kernel_pca(self, gram: Gram) -> tuple[Tensor, Tensor]:
        values, h = gram.eigenvectors(self.out_channels)
        if h.size(1) < self.out_channels:
            message = (
                f"the centred kernel matrix has rank {h.size(1)}, below out_channels={self.out_channels}; "
                "use a narrower kernel, more features or fewer channels"
            )
            if self.rank_deficient == "error" or h.size(1) == 0:
                raise LowRankError(message)
            warnings.warn(message, LowRankWarning, stacklevel=4)
        return values, h

    def _bind(self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None) -> Gram:
        """The kernel matrix of these inputs, kept while they are the same and nothing below is trained."""
        tracked = any(isinstance(t, Tensor) and t.requires_grad for t in (x, edge_index, edge_weight))
        own_module = not isinstance(self.aggregation, Aggregation)  # May change with its parameters or mode.
        if self.kernel.is_learned or own_module or (tracked and torch.is_grad_enabled()):
            gram = self._build(x, edge_index, edge_weight)
        else:
            key = self._key(x, edge_index, edge_weight)
            gram = self._gram_cache.get(key, lambda: self._build(x, edge_index, edge_weight))
        self._keep(gram, x)
        return gram

    def _build(self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None) -> Gram:
        return self._gram_of(self._rows(x, edge_index, edge_weight))

    def _gram_of(self, rows: Rows) -> Gram:
        marks = self.landmarks if self.landmarks.numel() else None
        return self.gram(self.kernel, rows, landmarks=marks, centred=True, min_rank=2 * self.out_channels)

    def _key(self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None) -> tuple[object, ...]:
        return (x, edge_index, edge_weight, self.h.dtype, *self.kernel.parameters(), *self.kernel.buffers())

    def _keep(self, gram: Gram, x: Tensor) -> None:
        """Remember the features for :meth:`transform`; never the caller's own tensor, which may be written to."""
        tensors = gram.rows.tensors(self.kernel.views)
        self.support.set({name: t.clone() if t is x else t for name, t in tensors.items()})

    def _rows(self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None) -> Rows:
        x = x.to(self.h.dtype)
        if isinstance(self.aggregation, Aggregation):
            aggregated = self.aggregation.features(x, edge_index, edge_weight)
        else:
            aggregated = DenseFeatures(self.aggregation(x, edge_index, edge_weight))
        return Views({"h": aggregated, "x": x}) if "x" in self.kernel.views else aggregated

    def _fingerprint(self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None) -> tuple[int, int, int]:
        inputs = (edge_index, edge_weight, x.size(0))
        return self._graph_cache.get(inputs, lambda: graph_fingerprint(*inputs))

    def _check(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise InvalidInputError("'x' must be one tensor; bipartite graphs are not supported")
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise InvalidInputError(f"'x' must have shape [n, {self.in_channels}], got {tuple(x.shape)}")
        if x.is_floating_point():
            check_finite(x)

    def _require_fit(self) -> None:
        if not self.is_initialized:
            raise NotFittedError("the layer is not fitted; call it, or initialize(x, edge_index), first")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, kernel={self.kernel!r}, "
            f"aggregation={self.aggregation!r}, eta={self.eta:g}, gram={self.gram!r})"
        )
