r"""Settings that did well on other graphs: what a search tries first.

They were fitted to development graphs with 1, 2, 5 and 20 labels per class. Their accuracies, standardised among many
settings for every graph and number of labels, say what a setting promises, on one of two kinds of graphs: smooth ones,
whose neighbours have similar features and often the same class, and others, where neighbours tell less, or tell it by
their number. The list is such that it has some of the best settings for every one of these graphs.
"""

import torch

from torch_gckm import panels
from torch_gckm.graph import Direction, Normalize
from torch_gckm.kernels import RBF, DenseFeatures, Kernel
from torch_gckm.nn import LayerSettings, ModelSettings, PropagationSettings, ReadoutSettings
from torch_gckm.select.space import direction_kernel
from torch_gckm.select.trial import PreparedGraphs

Hops = tuple[str, int]
Width = float | None  # The relative squared bandwidth of an RBF kernel; None: the kernel compares directions only.
Layer = tuple[Hops, Width, int, float]  # Propagation, bandwidth, channels, power.
Readout = tuple[Width, float, float]  # Bandwidth, eta, lambda2.
Entry = tuple[Normalize, tuple[Layer, ...] | Hops, Readout]

SMOOTH_FROM = 0.045  # Citation, co-author and co-purchase graphs have 0.06 to 0.16; others below 0.03.
# How far to go by smooth graphs where features are smooth, and where not. Features may be noise, and the graph good.
SHARE_OF_SMOOTH = {True: 0.9, False: 0.25}
_PROJECTED = 256  # Columns that features are projected to before neighbours are compared.
_MOST_PAIRS = 50_000

_NONE = ("none", 1)
_GCN = ("gcn", 1)
_GCN2 = ("gcn", 2)
_MEAN = ("mean", 1)
_MEAN2 = ("mean", 2)
_SUM = ("sum", 1)
_SSGC16 = ("ssgc", 16)
_PPR = ("ppr", 10)
_WIDE = (10.0, 1.05, 0.1)
_NARROW = (2.0, 1.05, 0.1)
_SOFT = (10.0, 1.01, 1.0)
_DIRECTION = (None, 1.05, 0.1)
_SOFT_DIRECTION = (None, 1.01, 1.0)

# Scaling, layers or propagation, readout; what it promises on smooth graphs, and on others.
PORTFOLIO: tuple[tuple[Normalize, tuple[Layer, ...] | Hops, Readout, tuple[float, float]], ...] = (
    ("l2", ((_PPR, None, 128, 1),), _NARROW, (0.99, 0.11)),
    ("l2", ((_GCN2, None, 32, 1),), _WIDE, (0.99, 0.03)),
    ("l2", _SSGC16, _DIRECTION, (0.91, 0.12)),
    ("columns", ((_NONE, 10, 32, 1),), _WIDE, (-1.51, 1.38)),
    (None, ((_NONE, 1, 32, 0.5),), _NARROW, (-0.95, 1.19)),
    ("columns", ((_NONE, 10, 32, 0.5),), _WIDE, (-1.2, 1.33)),
    (None, _NONE, _DIRECTION, (-0.93, 0.54)),
    ("l2", ((_SSGC16, 10, 128, 1),), _WIDE, (0.43, -0.05)),
    (None, _NONE, _SOFT_DIRECTION, (-0.81, 0.54)),
    ("columns", ((_NONE, 1, 32, 0.5),), _SOFT, (-2.04, 0.94)),
    ("l2", _NONE, _DIRECTION, (-0.94, 0.45)),
    (None, ((_PPR, 10, 32, 0.5), (_GCN2, 10, 32, 0.5)), _SOFT, (0.72, -0.21)),
    (None, ((_NONE, 1, 128, 1),), _NARROW, (-1.34, 0.95)),
    ("columns", _NONE, _NARROW, (-1.95, 0.06)),
    ("l2", _SUM, _SOFT_DIRECTION, (0.36, 0.03)),
    (None, ((_NONE, 10, 128, 1),), _SOFT, (-1.14, 0.75)),
    ("columns", ((_SUM, 10, 32, 1),), _SOFT, (-1.95, -0.65)),
    (None, ((_SSGC16, None, 32, 1),), _NARROW, (0.99, -0.05)),
    ("columns", _MEAN, _SOFT, (-0.7, -0.33)),
    ("columns", ((_PPR, 1, 32, 0.5),), _WIDE, (0.03, 0.6)),
    (None, _SSGC16, _DIRECTION, (0.89, -0.05)),
    ("columns", ((_PPR, 1, 64, 0), (_NONE, 1, 64, 0)), _WIDE, (-0.92, -0.05)),
    ("l2", ((_SSGC16, 10, 32, 1),), _WIDE, (0.41, -0.06)),
    ("columns", _GCN, _DIRECTION, (-0.08, -0.03)),
    ("l2", ((_GCN2, None, 128, 0.5),), _NARROW, (0.68, 0.14)),
    (None, ((_NONE, None, 128, 1),), _SOFT, (-0.84, 0.39)),
    ("columns", ((_SSGC16, 10, 32, 0.5), (_MEAN, 10, 32, 0.5)), _SOFT, (0.34, -0.32)),
    ("l2", ((_MEAN2, 10, 32, 1),), _WIDE, (0.99, -0.0)),
    ("columns", ((_NONE, 1, 128, 1),), _SOFT, (-2.99, 0.83)),
    (None, ((_PPR, 10, 128, 1),), _SOFT, (0.16, -0.3)),
    (None, ((_SSGC16, 1, 32, 0.5), (_GCN, 1, 32, 0.5)), _NARROW, (0.19, -0.11)),
    ("l2", ((_PPR, None, 32, 0.5),), _WIDE, (0.97, 0.01)),
    ("columns", _GCN2, _NARROW, (-0.33, 0.2)),
    ("columns", ((_PPR, 1, 128, 0.5),), _SOFT, (-0.64, 0.49)),
    ("columns", _SUM, _SOFT, (-1.45, -0.41)),
    ("l2", ((_SSGC16, None, 128, 1),), _SOFT, (0.78, -0.15)),
    ("columns", ((_NONE, None, 32, 1),), _WIDE, (-0.67, 0.17)),
    ("l2", ((_MEAN2, 10, 128, 1),), _SOFT, (0.77, -0.2)),
    ("l2", ((_NONE, 10, 128, 1),), _SOFT, (-0.91, 0.34)),
    (None, ((_MEAN, 1, 64, 0), (_MEAN, 1, 64, 0)), _WIDE, (-0.88, -0.29)),
    (None, ((_PPR, None, 128, 0.5),), _WIDE, (1.0, -0.08)),
    (None, ((_PPR, 1, 128, 0.5),), _NARROW, (0.23, 0.26)),
    ("l2", _SSGC16, _SOFT_DIRECTION, (0.8, -0.05)),
    (None, ((_PPR, None, 32, 1),), _SOFT, (0.9, -0.19)),
    ("columns", _GCN, _SOFT, (-0.97, -0.18)),
    ("l2", ((_NONE, None, 128, 0.5),), _WIDE, (-0.84, 0.37)),
    ("columns", _NONE, _WIDE, (-1.89, -0.49)),
    ("l2", ((_GCN2, 10, 32, 1),), _NARROW, (0.51, 0.19)),
)


def portfolio(graphs: PreparedGraphs, direction: Direction = "in") -> list[tuple[ModelSettings, float]]:
    """The settings to try first on a graph, in this order, and what they promise.

    The most promising ones and those that serve the most kinds of graphs take turns, so that a few are a good start.
    """
    share = SHARE_OF_SMOOTH[smoothness(graphs) >= SMOOTH_FROM]
    promises = [share * smooth + (1.0 - share) * other for *_, (smooth, other) in PORTFOLIO]
    promising = sorted(range(len(PORTFOLIO)), key=lambda place: -promises[place])
    order = dict.fromkeys(place for pair in zip(promising, range(len(PORTFOLIO)), strict=True) for place in pair)
    return [(settings_of(PORTFOLIO[place][:3], direction), promises[place]) for place in order]


def settings_of(entry: Entry, direction: Direction = "in") -> ModelSettings:
    """The settings that an entry of a list stands for."""
    normalize, body, (width, eta, lambda2) = entry
    readout = ReadoutSettings(kernel_of(width).config(), eta=eta, lambda2=lambda2)
    if isinstance(body[0], str):
        return ModelSettings((), readout, normalize, PropagationSettings(*body, direction))
    layers = [
        LayerSettings(channels, kernel_of(bandwidth).config(), PropagationSettings(*hops, direction), power)
        for hops, bandwidth, channels, power in body
    ]
    return ModelSettings(tuple(layers), readout, normalize)


def kernel_of(width: Width) -> Kernel:
    """The kernel that a bandwidth stands for."""
    return direction_kernel() if width is None else RBF(scale=width)


@torch.no_grad()
def smoothness(graphs: PreparedGraphs) -> float:
    """How much more similar the features of neighbours are than those of any two nodes; no label is looked at.

    The mean cosine over edges, minus that over random pairs, of features with columns of unit spread, centred.
    """
    graph = graphs.scaled("columns")
    edges = graph.topology.edges
    if edges.size(1) == 0:
        return 0.0
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(graph.x.size(1), _PROJECTED, generator=generator).to(graph.x)
    z = torch.nn.functional.normalize(panels.centred(graph.input.dot(DenseFeatures(directions.t()))), dim=1)
    joined = edges[:, torch.randint(edges.size(1), (_MOST_PAIRS,), generator=generator).to(edges.device)]
    random = torch.randint(graph.num_nodes, (2, _MOST_PAIRS), generator=generator).to(edges.device)
    near, far = (float(panels.mean(panels.row_dots(z[pair[0]], z[pair[1]]))) for pair in (joined, random))
    return near - far
