r"""Settings that did well on other graphs: what a search tries first.

They were fitted to development graphs with 1, 2, 5 and 20 labels per class (``benchmarks/portfolio.py``). Their
accuracies, standardised among many settings for every graph and number of labels, say what a setting promises, on one
of two kinds of graphs: smooth ones, whose neighbours have similar features and often the same class, and others, where
neighbours tell less, or tell it by their number. The list, ``portfolio.jsonl``, is such that it has some of the best
settings for every one of these graphs, and the first few serve as many of them as they can.
"""

import json
from collections.abc import Sequence
from itertools import cycle, product
from pathlib import Path

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.blocks import row_dots
from torch_gckm.graph import AS_GIVEN, Direction, Weighting
from torch_gckm.graph.halo import local_numbers
from torch_gckm.kernels import DenseFeatures
from torch_gckm.nn import ModelSettings
from torch_gckm.select.trial import PreparedGraphs

PORTFOLIO = Path(__file__).with_name("portfolio.jsonl")
SMOOTH_FROM = 0.045  # Citation, co-author and co-purchase graphs have 0.06 to 0.16; others below 0.03.
# How far to go by smooth graphs where features are smooth, and where not. Features may be noise, and the graph good.
SHARE_OF_SMOOTH = {True: 0.9, False: 0.25}
_PROJECTED = 256  # Columns that features are projected to before neighbours are compared.
_MOST_PAIRS = 50_000


def portfolio(
    graphs: PreparedGraphs, directions: Sequence[Direction] = ("in",), weightings: Sequence[Weighting] = (AS_GIVEN,)
) -> list[tuple[ModelSettings, float]]:
    """The settings to try first on a graph, in this order, and what they promise.

    The most promising ones and those that serve the most kinds of graphs take turns, so that a few are a good start.
    So do directions, and ways to read edge weights: each setting is tried with one of each.
    """
    share = SHARE_OF_SMOOTH[smoothness(graphs) >= SMOOTH_FROM]
    entries = [json.loads(line) for line in PORTFOLIO.read_text().splitlines()]
    settings = [ModelSettings.from_dict(entry["settings"]) for entry in entries]
    promises = [share * entry["promise"]["smooth"] + (1.0 - share) * entry["promise"]["other"] for entry in entries]
    promising = sorted(range(len(entries)), key=lambda place: -promises[place])
    order = dict.fromkeys(place for pair in zip(promising, range(len(entries)), strict=True) for place in pair)
    ways = cycle(product(directions, weightings))
    used = [settings[place].seeing(*next(ways)) if settings[place].sees_edges else settings[place] for place in order]
    return [(setting, promises[place]) for setting, place in zip(used, order, strict=True)]


@torch.no_grad()
def smoothness(graphs: PreparedGraphs) -> float:
    """How much more similar the features of neighbours are than those of any two nodes; no label is looked at.

    The mean cosine over edges, minus that over random pairs, of features with columns of unit spread, centred.
    """
    graph = graphs.scaled("columns")
    edges, over = graph.topology.edges, graph.partition
    edges = edges[:, edges[0] != edges[1]]
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(graph.x.size(1), _PROJECTED, generator=generator).to(graph.x)
    z = torch.nn.functional.normalize(panels.centred(graph.input.dot(DenseFeatures(directions.t())), over), dim=1)
    counts = over.processes.gather(torch.tensor(edges.size(1)))
    total = int(counts.sum())
    if total == 0:
        return 0.0
    drawn = torch.randint(total, (_MOST_PAIRS,), generator=generator).to(edges.device) - int(counts[: over.rank].sum())
    joined = edges[:, drawn[(drawn >= 0) & (drawn < edges.size(1))]]
    random = torch.randint(graph.num_nodes, (2, _MOST_PAIRS), generator=generator).to(edges.device)
    random = random[:, over.own(random[1], z.size(0))[0]]

    def similarity(pairs: Tensor) -> float:  # Each process compares its own nodes with any.
        places, halo = local_numbers(pairs[0], z.size(0), over)
        return float(panels.mean(row_dots(halo.extended(z)[places], z[pairs[1] - over.start]), over))

    return similarity(joined) - similarity(random)
