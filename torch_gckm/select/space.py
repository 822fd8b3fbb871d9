"""The settings to search among, drawn at random or by a study."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

import numpy as np
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import DIRECTIONS, Direction, Normalize, is_directed
from torch_gckm.kernels import RBF, Kernel, Laplacian, Polynomial
from torch_gckm.nn import LayerSettings, ModelSettings, ReadoutSettings
from torch_gckm.readout import ClassWeight

T = TypeVar("T")
Range = tuple[float, float]


class Chooser(Protocol):
    """What makes choices: a random generator, or a study that learns from earlier ones."""

    def choice(self, name: str, options: Sequence[T]) -> T:
        """One of the options."""

    def log_uniform(self, name: str, low: float, high: float) -> float:
        """A positive number; its logarithm is uniform."""


class RandomChooser:
    """Independent random choices."""

    def __init__(self, *seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def choice(self, name: str, options: Sequence[T]) -> T:
        return options[int(self.generator.integers(len(options)))]

    def log_uniform(self, name: str, low: float, high: float) -> float:
        return float(math.exp(self.generator.uniform(math.log(low), math.log(high))))


@dataclass(frozen=True)
class Space:
    r"""The settings of a :class:`~torch_gckm.nn.GCKM` to choose from.

    After the paper's search space, with scaled rows or columns and several hops per layer besides. Bandwidths are
    relative to the features at hand (see ``scale`` of :class:`~torch_gckm.kernels.RBF`), so that the space suits any
    graph. The readout's scores depend only on :math:`\eta \lambda_1` and :math:`\lambda_2 / \lambda_1`:
    :math:`\lambda_1` stays 1.

    Options that occur more than once are drawn more often.

    Args:
        depth: The number of hidden layers.
        normalize: How rows or columns of ``x`` are scaled, see :class:`~torch_gckm.nn.GCKM`.
        kernels: The kernels of hidden layers, ``"rbf"`` or ``"polynomial"``.
        channels: The embedding dimensions.
        aggregations: How layers propagate.
        hops: How often they do.
        directions: Which neighbours they receive from; by default all there is to choose from on a directed graph.
        bandwidth: The range of the hidden layers' relative squared bandwidths.
        degrees: The degrees of polynomial kernels.
        constant: The range of the relative constants of polynomial kernels.
        readout_bandwidth: The range of the readout's relative squared bandwidth.
        eta: The readout's regularisation; at exactly 1 narrow kernels make its system singular.
        lambda2: The range of the readout's weight of the labels.
        class_weight: How labels of different classes are weighted, see :class:`~torch_gckm.nn.GCKM`.
        view: The kernel that the readout multiplies by, on the input features: ``"rbf"``, ``"laplacian"`` or none.
        view_bandwidth: The range of its relative bandwidth.
        branches: How many draws of the later layers share a first one, and how many of the readout share them.
    """

    depth: tuple[int, ...] = (1, 2, 2, 2, 3)
    normalize: tuple[Normalize, ...] = (None, "l2", "columns")
    kernels: tuple[str, ...] = ("rbf", "polynomial")
    channels: tuple[int, ...] = (16, 32, 64)
    aggregations: tuple[str, ...] = ("gcn", "mean", "mean", "sum")
    hops: tuple[int, ...] = (1, 2, 3)
    directions: tuple[Direction, ...] | None = None
    bandwidth: Range = (0.3, 100.0)
    degrees: tuple[int, ...] = (1, 2)
    constant: Range = (0.05, 20.0)
    readout_bandwidth: Range = (0.1, 50.0)
    eta: tuple[float, ...] = (1.01, 1.05, 1.15, 1.3)
    lambda2: Range = (0.02, 0.5)
    class_weight: tuple[ClassWeight, ...] = (None, "balanced")
    view: tuple[str | None, ...] = (None, None, "rbf", "laplacian", "laplacian")
    view_bandwidth: Range = (1.0, 100.0)
    branches: tuple[int, int] = (2, 6)

    def __post_init__(self) -> None:
        if min(self.branches) < 1:
            raise InvalidInputError(f"'branches' must be positive, got {self.branches}")
        if self.directions is not None and (not self.directions or not set(self.directions) <= set(DIRECTIONS)):
            raise InvalidInputError(f"'directions' must be some of {', '.join(DIRECTIONS)}, got {self.directions!r}")

    def on_graph(self, data: Data) -> Self:
        """The space with the directions that a graph has."""
        if self.directions is not None:
            return self
        return replace(self, directions=DIRECTIONS if is_directed(data) else ("in",))

    def draw_depth(self, chooser: Chooser) -> tuple[int, Normalize]:
        """The number of layers and what happens to the input."""
        return chooser.choice("depth", self.depth), chooser.choice("normalize", self.normalize)

    def draw_layer(self, chooser: Chooser, number: int) -> LayerSettings:
        """The setting of one hidden layer."""
        directions = self.directions or ("in",)
        kernel: Kernel
        if chooser.choice(f"kernel{number}", self.kernels) == "rbf":
            kernel = RBF(scale=chooser.log_uniform(f"bandwidth{number}", *self.bandwidth))
        else:
            degree = chooser.choice(f"degree{number}", self.degrees)
            kernel = Polynomial(degree, "auto", scale=chooser.log_uniform(f"constant{number}", *self.constant))
        return LayerSettings(
            channels=chooser.choice(f"channels{number}", self.channels),
            kernel=kernel.config(),
            aggregation=chooser.choice(f"aggregation{number}", self.aggregations),
            hops=chooser.choice(f"hops{number}", self.hops),
            direction=directions[0] if len(directions) == 1 else chooser.choice(f"direction{number}", directions),
        )

    def draw_readout(self, chooser: Chooser) -> ReadoutSettings:
        """The setting of the readout."""
        kernel: Kernel = RBF(scale=chooser.log_uniform("readout_bandwidth", *self.readout_bandwidth))
        view = chooser.choice("view", self.view)
        if view is not None:
            width = chooser.log_uniform("view_bandwidth", *self.view_bandwidth)
            kernel = kernel * (RBF(scale=width) if view == "rbf" else Laplacian(scale=math.sqrt(width))).on("x")
        return ReadoutSettings(
            kernel=kernel.config(),
            eta=chooser.choice("eta", self.eta),
            lambda2=chooser.log_uniform("lambda2", *self.lambda2),
            class_weight=chooser.choice("class_weight", self.class_weight),
        )

    def draw(self, chooser: Chooser) -> ModelSettings:
        """A whole setting."""
        depth, normalize = self.draw_depth(chooser)
        layers = [self.draw_layer(chooser, number) for number in range(1, depth + 1)]
        return ModelSettings(tuple(layers), self.draw_readout(chooser), normalize)

    @property
    def bundle(self) -> int:
        """How many neighbouring numbers of :meth:`draw_in_tree` share their first layer."""
        return self.branches[0] * self.branches[1]

    def draw_in_tree(self, number: int, seed: int) -> ModelSettings:
        """The random setting of a number; neighbouring numbers share their first layers.

        Fitting a layer costs more than fitting a readout. So each draw of the first layer
        is followed by several of the later layers, and each of those by several of the readout.
        """
        later = number // self.branches[1]
        trunk = RandomChooser(seed, 0, later // self.branches[0])
        depth, normalize = self.draw_depth(trunk)
        layers = [self.draw_layer(trunk, 1)]
        branch = RandomChooser(seed, 1, later)
        layers += [self.draw_layer(branch, layer) for layer in range(2, depth + 1)]
        return ModelSettings(tuple(layers), self.draw_readout(RandomChooser(seed, 2, number)), normalize)
