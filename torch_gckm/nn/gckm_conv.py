"""The graph convolutional kernel machine layer, called as PyG's layers are."""

import warnings
from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import DetachedInputWarning, InvalidInputError
from torch_gckm.graph import (
    Adjacency,
    PreparedGraph,
    Propagation,
    RememberedGraph,
    Scaling,
    Topology,
    check_features,
)
from torch_gckm.nn.extension import widen
from torch_gckm.nn.inductive import layer_rows
from torch_gckm.nn.kernel_layer import KernelLayer
from torch_gckm.nn.layer_function import CallChecks


class GCKMConv(KernelLayer):
    r"""The graph convolutional kernel machine layer from the `"Unsupervised Neighborhood Propagation
    Kernel Layers for Semi-supervised Node Classification" <https://arxiv.org/abs/2301.13764>`_ paper.

    Kernel PCA on aggregated features. The layer's parameter is the embedding itself, the dual variables :math:`H` of

    .. math::
        \min_H -\frac{1}{2 \eta} \mathrm{Tr}(H' K_c H) \quad \textrm{s.t.} \quad H'H = I,
        \qquad K_{uv} = k(a_u, a_v), \quad a = \psi(x),

    with :math:`K_c` the doubly centred kernel matrix and :math:`\psi` an propagation over neighbours.
    :meth:`initialize` finds the minimum, the top eigenvectors; in a deeper model :meth:`loss` and
    :class:`~torch_gckm.optim.CayleyAdam` tune it together with other terms.

    The output weighs its columns by the eigenvalues :math:`\lambda` that the initialisation found,

    .. math::
        Z = K_c H \Lambda^{-1} (\lambda / \lambda_1)^{power} \sqrt n,

    which is :math:`H (\lambda / \lambda_1)^{power} \sqrt n` while :math:`H` holds the eigenvectors. With ``power=0.5``
    these are the coordinates of kernel PCA; with ``power=0`` columns are of equal length, as in the paper, where the
    last direction counts as much as the first. The product with :math:`K_c` makes the output a function of the
    aggregated features: a step of training that moves some nodes moves nodes with similar features along with them.

    .. note::
        :meth:`forward` is for the graph and the features that the layer was fitted to. Layers below learn only through
        :meth:`loss`. For another graph use :meth:`transform`.

    A network is trained by :class:`~torch_gckm.optim.CayleyAdam`, which keeps :math:`H` on the manifold and is Adam
    for the rest. The layer may be called for the first time after the optimiser was made:

    .. code-block:: python

        optimizer = CayleyAdam(model.parameters(), lr=0.01, weight_decay=5e-4)

    The kernel reads the aggregated features as the view ``"h"``, and the layer's input before aggregation as ``"x"``.

    Args:
        in_channels: The number of input features; -1 takes it from the first graph.
        out_channels: The number of embedding dimensions :math:`s`.
        kernel: A kernel, its name, or a function of two matrices.
        aggregation: ``"gcn"``, ``"sum"``, ``"mean"``, ``"ssgc"``, ``"ppr"``, ``"none"``, see
            :class:`~torch_gckm.graph.Propagation`, or a module ``(x, edge_index, edge_weight) -> a``.
        hops: How often to propagate.
        eta: The regularisation :math:`\eta > 0`.
        gram: How to represent the kernel matrix: ``"auto"``, ``"dense"`` or an object such as ``Dense()``.
        num_nodes: The number of nodes, if known; -1 takes it from the first graph.
        direction: Which neighbours to receive from on a directed graph: ``"in"``, ``"out"`` or ``"both"``.
        rank_deficient: What to do if :math:`K_c` has fewer than :math:`s` positive eigenvalues:
            ``"reduce"`` the dimension with a warning, or raise an ``"error"``.
        power: The power of the eigenvalues in the output.

    Shapes:
        - **input:** features ``[n, in_channels]``, edges ``[2, E]`` or sparse, edge weights ``[E]`` *(optional)*
        - **output:** ``[n, out_channels]``; in double precision if ``x`` was when the layer was fitted

    Attributes:
        h: The dual variables :math:`H`, ``[n, out_channels]``, a Parameter on the Stiefel manifold.
        fitted: The rest of what the fit found, a :class:`~torch_gckm.nn.layer_fit.LayerFit`; ``None`` before.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._graphs, self._checks = RememberedGraph(), CallChecks()

    def initialize(
        self,
        x: Tensor,
        edge_index: Adjacency | None = None,
        edge_weight: Tensor | None = None,
        *,
        method: Literal["kernel_pca", "random"] = "kernel_pca",
        seed: int = 0,
    ) -> Self:
        """Fit the layer to a graph by kernel PCA on the aggregated features.

        Under ``torch.no_grad()`` the factor of the kernel matrix, which :meth:`loss` would use, is freed at once.

        Args:
            x: Node features.
            edge_index: Edges.
            edge_weight: Edge weights.
            method: ``"random"`` starts from a random point of the manifold instead.
            seed: The seed of the random start.
        """
        check_features(x, self._columns)
        widen(self, x.dtype)
        graph = self._new_graph(x, edge_index, edge_weight)  # Not the remembered one: a fit begins anew.
        self.initialize_on(graph, method=method, seed=seed)
        self.in_channels, self._checks = x.size(1), CallChecks()
        self._graphs.put(graph, x, edge_index, edge_weight, self.h.dtype)
        return self

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # A compiled network fits it by its first call, too.
    def forward(
        self,
        x: Tensor,
        edge_index: Adjacency | None = None,
        edge_weight: Tensor | None = None,
        n_id: Tensor | None = None,
    ) -> Tensor:
        """The output on the fitted graph, ``[n, out_channels]``; fits the layer on the first call.

        Args:
            x: Node features, those that the layer was fitted to.
            edge_index: Edges.
            edge_weight: Edge weights.
            n_id: Return these nodes only; ``x`` and ``edge_index`` may then be a sampled subgraph.
        """
        if getattr(self.aggregation, "explain", None):
            self._checks.explanation()
        if n_id is not None:
            _ = self.fit  # The first graph to be seen must be the whole one.
        elif self.fitted is None:
            self.initialize(x, edge_index, edge_weight)
            if not torch.is_grad_enabled():
                return self.z  # The same, without the matrix, which has been freed.
        else:
            self._check_call(x, edge_index, edge_weight)
        self._checks.embedding(self.h, self.fit.partition)
        if x.requires_grad and torch.is_grad_enabled():
            warnings.warn(
                "GCKMConv returns its own embedding and passes no gradient to its input; "
                "add conv.loss(x, edge_index) to the objective to train the layers below",
                DetachedInputWarning,
                stacklevel=2,
            )
        output = self.fitted_output()
        return output if n_id is None else output[self._places(n_id)]

    def loss(self, x: Tensor, edge_index: Adjacency | None = None, edge_weight: Tensor | None = None) -> Tensor:
        r"""The objective :math:`-\frac{1}{2 \eta} \mathrm{Tr}(H' K_c H)`, differentiable in :math:`H` and ``x``.

        The features seen here become the ones that :meth:`transform` extends from.
        """
        _ = self.fit
        if x.requires_grad:
            self._checks.features_are_trained()
        return self.loss_on(self._graphs.get(x, edge_index, edge_weight, self.h.dtype))

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

        with :math:`H_c` the embedding minus its mean, and columns weighted as those of :math:`Z`. On the fitted graph,
        right after kernel PCA, it returns :math:`Z`. With a low-rank kernel matrix a node costs the same whatever the
        size of the fitted graph.

        Args:
            x: Node features.
            edge_index: Edges.
            edge_weight: Edge weights.
            progress: The title of a progress bar; ``None`` shows none.
        """
        _ = self.fit
        check_features(x, self._columns)
        return self.out_of_sample()(self._new_graph(x, edge_index, edge_weight), progress=progress)

    def _check_call(self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None) -> None:
        """Raise unless this is the fitted graph; warn if these are not its features."""
        if isinstance(x, Tensor) and self._graphs.knows(x, edge_index, edge_weight, self.h.dtype):
            return  # It was checked by the last call.
        check_features(x, self._columns)
        graph = self._graphs.get(x, edge_index, edge_weight, self.h.dtype)
        self.check_graph(graph.topology)
        if not x.requires_grad:  # Else another warning says that layers below do not learn.
            with torch.no_grad():
                given = layer_rows(self.kernel, self.aggregation, graph)
                self._checks.features(self.fit.rows(), given, self.kernel.views)

    def _places(self, n_id: Tensor) -> Tensor:
        """Checked numbers of fitted nodes."""
        size = self.h.size(0)
        if n_id.dtype == torch.bool or n_id.is_floating_point() or n_id.dim() != 1:
            raise InvalidInputError(f"'n_id' must be numbers of nodes, [m], got {n_id.dtype} {tuple(n_id.shape)}")
        if n_id.numel():
            low, high = int(panels.smallest(n_id)), int(panels.largest(n_id))
            if not 0 <= low <= high < size:
                raise InvalidInputError(f"'n_id' names nodes {low} to {high}; fitted ones are 0 to {size - 1}")
        return n_id

    @property
    def _columns(self) -> int | None:
        return None if self.in_channels == -1 else self.in_channels

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self._checks = CallChecks()
        if self.in_channels == -1 and self.fitted is not None and isinstance(self.aggregation, Propagation):
            self.in_channels = next(iter(self.fitted.views.values())).size(1)  # Propagations keep the columns.

    def _new_graph(self, x: Tensor, edge_index: Adjacency | None, edge_weight: Tensor | None) -> PreparedGraph:
        return PreparedGraph(x, Topology(edge_index, edge_weight, x.size(0)), Scaling(), self.h.dtype)
