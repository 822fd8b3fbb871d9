"""A layer of the kernel machine on prepared graphs."""

import copy
import warnings
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import GraphMismatchError, InvalidInputError, LowRankError, LowRankWarning, NotFittedError
from torch_gckm.gram import Gram, GramLike, as_gram, gram_from_config
from torch_gckm.graph import Direction, PreparedGraph, PropagationLike, Topology, as_propagation
from torch_gckm.graph.topology import EdgeIdentity
from torch_gckm.kernels import KernelLike, Rows, as_kernel, kernel_from_config
from torch_gckm.manifold import StiefelParameter, random_stiefel
from torch_gckm.nn.extension import write
from torch_gckm.nn.fits import FittedModule
from torch_gckm.nn.inductive import LayerMap, layer_rows
from torch_gckm.nn.layer_fit import LayerFit, spectral_scale
from torch_gckm.nn.layer_function import layer_function
from torch_gckm.nn.settings import LayerSettings, OwnModules, PropagationSettings

L = TypeVar("L", bound="KernelLayer")


def check_same_edges(fitted: EdgeIdentity, given: EdgeIdentity) -> None:
    """Raise unless a graph is the fitted one."""
    if fitted != given:
        how = ", other ones or with other weights" if fitted[:2] == given[:2] else ""
        raise GraphMismatchError(
            f"the layer was fitted on a graph with {fitted.num_nodes} nodes and {fitted.num_edges} edges; the one "
            f"given has {given.num_nodes} nodes and {given.num_edges} edges{how}. "
            "Use transform for other graphs, n_id= for a sampled part of the fitted one, or initialize to fit again"
        )


class KernelLayer(FittedModule):
    """The state and the computations of :class:`~torch_gckm.GCKMConv`, which adds PyG's way of calling a layer.

    The input of a layer is a prepared graph and, above the first layer, the output :attr:`z` of the layer below.
    """

    fitted: LayerFit | None
    kind_of_fit = LayerFit

    @torch.inference_mode(False)  # Also there, parameters can be trained later.
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: KernelLike = "rbf",
        aggregation: PropagationLike = "gcn",
        hops: int = 1,
        eta: float = 1.0,
        gram: GramLike = "auto",
        num_nodes: int = -1,
        direction: Direction = "in",
        rank_deficient: Literal["reduce", "error"] = "reduce",
        power: float = 0.5,
    ) -> None:
        super().__init__()
        if not power >= 0:
            raise InvalidInputError(f"'power' must not be negative, got {power}")
        if in_channels < 1 and in_channels != -1:
            raise InvalidInputError(
                f"'in_channels' must be positive, or -1 for that of the first graph, got {in_channels}"
            )
        if out_channels < 1:
            raise InvalidInputError(f"'out_channels' must be positive, got {out_channels}")
        if not eta > 0:
            raise InvalidInputError(f"'eta' must be positive, got {eta}")
        if rank_deficient not in ("reduce", "error"):
            raise InvalidInputError(f"'rank_deficient' must be 'reduce' or 'error', got {rank_deficient!r}")
        self.in_channels, self.out_channels, self.num_nodes = in_channels, out_channels, num_nodes
        self.eta, self.power, self.rank_deficient = float(eta), float(power), rank_deficient
        self.kernel = copy.deepcopy(as_kernel(kernel))  # Its bandwidth is this layer's alone.
        self.aggregation = as_propagation(aggregation, hops, direction)
        self.gram = as_gram(gram)
        self.h = StiefelParameter(torch.empty(0, out_channels))
        self.register_module("fitted", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget the fit, and automatic hyperparameters of the kernel.

        With a known ``num_nodes``, the embedding becomes a random orthonormal matrix.
        """
        self.fitted = None
        self.kernel.reset_parameters()
        if self.num_nodes > 0:
            write(self.h, random_stiefel(self.num_nodes, self.out_channels, centred=True))
        else:
            write(self.h, self.h.new_empty(0, self.out_channels))

    @property
    def is_initialized(self) -> bool:
        """Whether the layer has been fitted to a graph."""
        return self.fitted is not None

    @property
    def fit(self) -> LayerFit:
        """What the fit found, beside the embedding; raises if there was none."""
        if self.fitted is None:
            raise NotFittedError("the layer is not fitted; call it, or initialize(x, edge_index), first")
        return self.fitted

    @property
    def eigenvalues(self) -> Tensor:
        """The eigenvalues of the centred kernel matrix found by :meth:`initialize`, ``[out_channels]``."""
        return self.fit.eigenvalues

    @property
    def z(self) -> Tensor:
        """The weighted embedding of the fitted graph, ``[n, out_channels]``: what other layers of a model read."""
        return self.h if self.power == 0 else self.h * self.fit.scale

    def fitted_output(self) -> Tensor:
        r"""The layer as a function of the fitted features: :math:`K_c H \Lambda^{-1}`, scaled as :attr:`z` is."""
        fit = self.fit
        if fit.gram is None or not fit.is_of(self.kernel):
            with torch.inference_mode(False), torch.no_grad():
                self.fitted = fit = fit.moved(self._matrix(fit.rows(), fit.known_landmarks))
        assert fit.gram is not None
        return layer_function(fit.gram, self.h, fit.eigenvalues, fit.scale)

    def initialize_on(
        self,
        graph: PreparedGraph,
        h: Tensor | None = None,
        *,
        method: Literal["kernel_pca", "random"] = "kernel_pca",
        seed: int = 0,
    ) -> None:
        """Fit the layer to a prepared graph, whose features are the input ``h`` by default; see :meth:`initialize`."""
        if self.num_nodes > 0 and graph.num_nodes != self.num_nodes:
            raise InvalidInputError(f"the layer was made for num_nodes={self.num_nodes}, got {graph.num_nodes} nodes")
        will_be_trained = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.no_grad():
            rows = layer_rows(self.kernel, self.aggregation, graph, h).detach()
            kernel = copy.deepcopy(self.kernel)  # If anything fails, the layer is as it was.
            kernel.reset_parameters()
            kernel.fit(rows)
            self.kernel.load_state_dict(kernel.state_dict())
            gram = self._matrix(rows)
            if method == "kernel_pca":
                values, embedding = self._kernel_pca(gram)
            elif method == "random":
                embedding = random_stiefel(
                    graph.num_rows, self.out_channels, seed=seed, centred=True, over=graph.partition
                ).to(self.h)
                values = panels.column_sums(embedding * gram.matmul(embedding), graph.partition)
            else:
                raise InvalidInputError(f"'method' must be 'kernel_pca' or 'random', got {method!r}")
            write(self.h, embedding)
            scale = spectral_scale(values, graph.num_nodes, self.power)
            self.fitted = LayerFit(gram, values, scale, graph.topology.identity, self.out_channels)
        if not will_be_trained or (graph.x if h is None else h).requires_grad:
            gram.release()  # Nothing will ask for this matrix again, or what is below changes it.

    def loss_on(self, graph: PreparedGraph, h: Tensor | None = None) -> Tensor:
        """The objective on a prepared graph; see :meth:`loss`, and :meth:`initialize_on` for the arguments."""
        fit = self.fit
        self.check_graph(graph.topology)
        rows = layer_rows(self.kernel, self.aggregation, graph, h)
        gram = fit.matrix_of(self.kernel, rows)
        if gram is None:
            gram = self._matrix(rows, fit.known_landmarks)
            self.fitted = fit.moved(gram)
        return gram.centred_quadratic(self.h) / (-2.0 * self.eta)

    def out_of_sample(self) -> LayerMap:
        """What the fit predicts for any graph, apart from the graph it was fitted on."""
        fit = self.fit
        extension = fit.extension(self.kernel, self.h, lambda rows: self._matrix(rows, fit.known_landmarks))
        return LayerMap(self.kernel, self.aggregation, extension)

    def check_graph(self, topology: Topology) -> None:
        """Raise unless these are the edges of the graph that the layer was fitted on."""
        check_same_edges(self.fit.edges, topology.identity)

    def _apply(self: L, fn: Any, recurse: bool = True) -> L:
        super()._apply(fn, recurse)
        self._mark()
        return self

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        channels = int(state_dict.get(f"{prefix}fitted.channels", self.out_channels))
        if channels != self.out_channels:
            raise InvalidInputError(
                f"the state is that of a layer with out_channels={channels}, not {self.out_channels}"
            )
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self._mark()

    def _mark(self) -> None:
        """Mark the embedding again where torch has put a plain Parameter in its place, as some of its options do."""
        if type(self.h) is torch.nn.Parameter:
            self.h.__class__ = StiefelParameter  # The object stays the one that optimisers hold.

    def settings(self, loss_weight: float = 1.0) -> LayerSettings:
        """The settings of the layer; ``loss_weight`` is its weight in the objective of a model."""
        propagation, gram = PropagationSettings.of(self.aggregation), self.gram.config()
        numbers = (self.power, self.eta, loss_weight)
        return LayerSettings(self.out_channels, self.kernel.config(), propagation, *numbers, gram)

    @classmethod
    def from_settings(
        cls: type[L], in_channels: int, settings: LayerSettings, gram: GramLike = "auto", own: OwnModules | None = None
    ) -> L:
        """A layer with these settings; ``gram`` is used where they leave it open, ``own`` propagations by name."""
        chosen = gram if settings.gram is None else gram_from_config(settings.gram)
        kernel, propagation = kernel_from_config(settings.kernel), settings.propagation.build(own)
        channels, power = settings.channels, settings.power
        return cls(in_channels, channels, kernel, propagation, eta=settings.eta, gram=chosen, power=power)

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

    def _matrix(self, rows: Rows, landmarks: Tensor | None = None) -> Gram:
        return self.gram.centred(self.kernel, rows, min_rank=2 * self.out_channels, landmarks=landmarks)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, kernel={self.kernel!r}, "
            f"aggregation={self.aggregation!r}, power={self.power:g}, eta={self.eta:g}, gram={self.gram!r})"
        )
