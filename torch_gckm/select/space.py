"""The settings to search among, drawn at random or by a study."""

import hashlib
import json
import math
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.graph import (
    DIRECTIONS,
    KINDS,
    WEIGHTS,
    Direction,
    Normalize,
    Propagation,
    Weighting,
    Weights,
    has_weights,
    is_directed,
    typical_weight,
    weights_of,
)
from torch_gckm.kernels import RBF, Kernel, Laplacian, NormalizedPolynomial, Polynomial
from torch_gckm.nn import LayerSettings, ModelSettings, PropagationSettings, ReadoutSettings
from torch_gckm.partition import partition_of
from torch_gckm.readout import ClassWeight

T = TypeVar("T")
Range = tuple[float, float]
_STRATA = 6  # Parts of a range of numbers.


class Chooser(Protocol):
    """What makes choices: a random generator, or a study that learns from earlier ones."""

    def choice(self, name: str, options: Sequence[T]) -> T:
        """One of the options."""

    def log_uniform(self, name: str, low: float, high: float) -> float:
        """A positive number; its logarithm is uniform."""


class StratifiedChooser:
    """Random choices that visit every option before one comes again, over draws with the numbers 0, 1, 2 and so on."""

    def __init__(self, seed: int, number: int) -> None:
        self.seed, self.number = seed, number

    def choice(self, name: str, options: Sequence[T]) -> T:
        return options[self._stratum(name, len(options))]

    def log_uniform(self, name: str, low: float, high: float) -> float:
        within = float(self._generator(name, self.number).random())
        return float(low * (high / low) ** ((self._stratum(name, _STRATA) + within) / _STRATA))

    def _stratum(self, name: str, count: int) -> int:
        cycle, place = divmod(self.number, count)
        return int(self._generator(name, cycle).permutation(count)[place])

    def _generator(self, name: str, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(name.encode()), number])


def described(module: torch.nn.Module) -> list[Any]:
    """A module as plain values: its name, its numbers and words, and a hash of its tensors."""
    plain = [
        sorted((key, repr(value)) for key, value in vars(part).items() if isinstance(value, bool | int | float | str))
        for part in module.modules()
    ]
    numbers = [
        tensor.detach().to_dense().to("cpu", torch.float64) for tensor in (*module.parameters(), *module.buffers())
    ]
    found = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in numbers))
    return [repr(module), json.dumps(plain), found.hexdigest()]


def check_propagations(propagations: Sequence[Any]) -> None:
    """Raise unless these are kinds with numbers of hops, or modules with names of their own."""
    modules = {id(part): repr(part) for part in propagations if isinstance(part, torch.nn.Module)}
    for part in propagations:
        if id(part) not in modules and not (isinstance(part, Sequence) and len(part) == 2 and part[0] in KINDS):
            known = ", ".join(KINDS)
            raise InvalidInputError(f"'propagations' are (kind, hops) with one of {known}, or modules, got {part!r}")
    names = Counter(modules.values())
    for name, count in names.items():
        if count > 1 or name in KINDS:
            raise InvalidInputError(
                f"a module among 'propagations' is called {name!r}, as another one is: settings know modules by their "
                "repr; write an extra_repr that tells them apart"
            )


def direction_kernel() -> Kernel:
    """Nearly the cosine, which does not see that propagated features of nodes with many neighbours are longer.

    Unlike the cosine itself, it has a value for rows of zeros.
    """
    return NormalizedPolynomial(1, "auto", scale=0.01)


PROPAGATIONS = (
    ("gcn", 1), ("gcn", 2), ("mean", 1), ("mean", 2), ("sum", 1), ("none", 1), ("ssgc", 4), ("ssgc", 16), ("ppr", 10)
)  # fmt: skip


@dataclass(frozen=True)
class Space:
    r"""The settings of a :class:`~torch_gckm.nn.GCKM` to choose from.

    After the paper's search space, with scaled rows or columns, more propagations, models without layers and powers of
    the spectrum besides. Bandwidths are relative to the features at hand (see ``scale`` of
    :class:`~torch_gckm.kernels.RBF`), so that the space suits any graph. The readout's scores depend only on
    :math:`\eta \lambda_1` and :math:`\lambda_2 / \lambda_1`: :math:`\lambda_1` stays 1.

    Options that occur more than once are drawn more often.

    Args:
        depth: The number of hidden layers.
        normalize: How rows or columns of ``x`` are scaled, see :class:`~torch_gckm.nn.GCKM`.
        kernels: The kernels of hidden layers, ``"rbf"``, ``"polynomial"`` or ``"direction"`` (nearly the cosine).
        channels: The embedding dimensions.
        propagations: How layers propagate, or without layers the input features: kinds and numbers of hops, or modules
            ``(x, edge_index, edge_weight) -> a`` of your own. Settings, checkpoints and studies know a module by its
            ``repr``, so its ``extra_repr`` must name what tells it from others. It sees edges as it likes, whatever
            ``directions`` and ``weights`` say. Models with one cannot be saved whole.
        powers: How much of the spectrum layers keep.
        directions: Which neighbours they receive from; by default all there is to choose from on a directed graph.
            Settings that did well on other graphs receive from both sides by default, and else take turns.
        weights: How they read edge weights, see :class:`~torch_gckm.graph.Propagation`; by default in all ways if the
            graph has weights. All layers of a model read them in the same way.
        unit: What weights are divided by before logarithms are taken; by default their geometric mean.
        bandwidth: The range of the hidden layers' relative squared bandwidths.
        degrees: The degrees of polynomial kernels.
        constant: The range of the relative constants of polynomial kernels.
        readout_bandwidth: The range of the readout's relative squared bandwidth.
        eta: The readout's regularisation; at exactly 1 narrow kernels make its system singular.
        lambda2: The range of the readout's weight of the labels.
        class_weight: How labels of different classes are weighted, see :class:`~torch_gckm.nn.GCKM`.
        view: The kernel that the readout multiplies by, on the input features: ``"rbf"``, ``"laplacian"`` or none.
        view_bandwidth: The range of its relative bandwidth.
        readouts: How many draws of the readout share the hidden layers.
    """

    depth: tuple[int, ...] = (0, 1, 1, 2)
    normalize: tuple[Normalize, ...] = (None, "l2", "columns")
    kernels: tuple[str, ...] = ("rbf", "polynomial", "direction")
    channels: tuple[int, ...] = (32, 64, 128)
    propagations: tuple[tuple[str, int] | torch.nn.Module, ...] = PROPAGATIONS
    powers: tuple[float, ...] = (0.0, 0.5, 0.5, 1.0)
    directions: tuple[Direction, ...] | None = None
    weights: tuple[Weights, ...] | None = None
    unit: float | None = None
    bandwidth: Range = (0.3, 100.0)
    degrees: tuple[int, ...] = (1, 2)
    constant: Range = (0.05, 20.0)
    readout_bandwidth: Range = (0.1, 50.0)
    eta: tuple[float, ...] = (1.01, 1.05, 1.15, 1.3)
    lambda2: Range = (0.02, 0.5)
    class_weight: tuple[ClassWeight, ...] = (None, "balanced")
    view: tuple[str | None, ...] = (None, None, "rbf", "laplacian", "laplacian")
    view_bandwidth: Range = (1.0, 100.0)
    readouts: int = 3

    def __post_init__(self) -> None:
        if self.readouts < 1:
            raise InvalidInputError(f"'readouts' must be positive, got {self.readouts}")
        if self.directions is not None and (not self.directions or not set(self.directions) <= set(DIRECTIONS)):
            raise InvalidInputError(f"'directions' must be some of {', '.join(DIRECTIONS)}, got {self.directions!r}")
        if self.weights is not None and (not self.weights or not set(self.weights) <= set(WEIGHTS)):
            raise InvalidInputError(f"'weights' must be some of {', '.join(WEIGHTS)}, got {self.weights!r}")
        if self.unit is not None and not 0.0 < self.unit < math.inf:
            raise InvalidInputError(f"'unit' must be a positive number, got {self.unit!r}")
        check_propagations(self.propagations)

    def on_graph(self, data: Data) -> Self:
        """The space with the directions and the edge weights that a graph has."""
        directions, ways, unit = self.directions, self.weights, self.unit
        weight, over = weights_of(data), partition_of(data)
        if directions is None:
            directions = DIRECTIONS if is_directed(data) else ("in",)
        if ways is None:
            ways = WEIGHTS if has_weights(weight, over) else ("given",)
        if unit is None and weight is not None and "log" in ways:
            unit = typical_weight(weight, over)
        return replace(self, directions=directions, weights=ways, unit=unit)

    @property
    def own(self) -> dict[str, torch.nn.Module]:
        """The propagations of the user's own, by the names that settings have for them."""
        modules = [part for part in self.propagations if isinstance(part, torch.nn.Module)]
        return {repr(module): module for module in modules if not isinstance(module, Propagation)}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, by which a search is known again; a module is its name and what it holds."""
        kinds = [described(part) if isinstance(part, torch.nn.Module) else list(part) for part in self.propagations]
        return {**asdict(replace(self, propagations=())), "propagations": kinds}

    @property
    def main_direction(self) -> Direction:
        """The direction that settings have which leave it open: both ways, if that is to choose from."""
        directions = self.directions or ("in",)
        return "both" if "both" in directions else directions[0]

    @property
    def weightings(self) -> tuple[Weighting, ...]:
        """What propagations make of edge weights, one way for each of :attr:`weights`."""
        unit = {"log": self.unit or 1.0}
        return tuple(Weighting(kind, unit.get(kind, 1.0)) for kind in self.weights or ("given",))

    def draw_propagation(self, chooser: Chooser, number: int) -> PropagationSettings:
        """How a layer propagates, or the input features of a model without layers."""
        directions = self.directions or ("in",)
        chosen = chooser.choice(f"propagation{number}", self.propagations)
        if isinstance(chosen, torch.nn.Module):
            return PropagationSettings.of(chosen)
        kind, hops = chosen
        direction = directions[0] if len(directions) == 1 else chooser.choice(f"direction{number}", directions)
        ways = self.weightings
        weighting = ways[0] if len(ways) == 1 else chooser.choice("weights", ways)
        return PropagationSettings(kind, hops).seeing(direction, weighting)

    def draw_layer(self, chooser: Chooser, number: int) -> LayerSettings:
        """The setting of one hidden layer."""
        kernel: Kernel
        kind = chooser.choice(f"kernel{number}", self.kernels)
        if kind == "direction":
            kernel = direction_kernel()
        elif kind == "rbf":
            kernel = RBF(scale=chooser.log_uniform(f"bandwidth{number}", *self.bandwidth))
        else:
            degree = chooser.choice(f"degree{number}", self.degrees)
            kernel = Polynomial(degree, "auto", scale=chooser.log_uniform(f"constant{number}", *self.constant))
        return LayerSettings(
            channels=chooser.choice(f"channels{number}", self.channels),
            kernel=kernel.config(),
            propagation=self.draw_propagation(chooser, number),
            power=chooser.choice(f"power{number}", self.powers),
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

    def draw(self, chooser: Chooser, readout: Chooser | None = None) -> ModelSettings:
        """A whole setting; the readout may be drawn by another chooser."""
        depth, normalize = chooser.choice("depth", self.depth), chooser.choice("normalize", self.normalize)
        layers = tuple(self.draw_layer(chooser, number) for number in range(1, depth + 1))
        last = PropagationSettings("none") if depth else self.draw_propagation(chooser, 1)
        return ModelSettings(layers, self.draw_readout(readout or chooser), normalize, last)

    def setting(self, number: int, seed: int) -> ModelSettings:
        """The random setting of a number.

        Fitting layers costs more than fitting a readout, so some neighbouring numbers share their layers. The first two
        dozen have every number of layers, scaling and view, and most powers and propagations.
        """
        return self.draw(StratifiedChooser(seed, number // self.readouts), StratifiedChooser(seed, number))
