r"""How much of the features' variance the layers keep.

A layer's embedding are the top eigenvectors of its centred kernel matrix :math:`K_c`, whose trace is the variance of
all features, :math:`\sum_u |\phi(a_u) - \bar\phi|^2`. An eigenvalue over the trace is the share of one component.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_gckm.nn import GCKM, GCKMConv
from torch_gckm.plot.style import COLOURS, MARKERS, axes_of, frame
from torch_gckm.plot.subject import Subject

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXACT_UP_TO = 4096  # Nodes; of larger graphs so many are drawn to estimate the trace.
_BLOCK = 512
_STYLES = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)))


@torch.no_grad()
def centred_trace(conv: GCKMConv, most: int = EXACT_UP_TO, seed: int = 0) -> float:
    r"""The trace of a layer's centred kernel matrix, :math:`\mathrm{Tr} K - 1'K1/n`.

    On large graphs the mean over all pairs of nodes is estimated by that over the pairs of some.

    Args:
        conv: A fitted layer.
        most: The largest number of nodes to look at all pairs of.
        seed: The same seed draws the same nodes.
    """
    rows = conv.fit.rows()
    count = rows.num_rows
    diagonal = conv.kernel(rows, diag=True).double()
    chosen = torch.arange(count)
    if count > most:
        chosen = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most].sort().values
    used = rows.rows(chosen.to(rows.device)).to(torch.float64)  # Wide kernels are almost constant.
    total = torch.zeros((), dtype=torch.float64)
    for block in torch.arange(chosen.numel()).split(_BLOCK):
        total += conv.kernel(used.rows(block.to(rows.device)), used).sum().cpu()
    size = chosen.numel()
    if size < 2:
        return 0.0
    pairs = (float(total) - float(diagonal[chosen].sum())) / (size * (size - 1))
    return (count - 1) * (float(diagonal.mean()) - pairs)


def shares(model: GCKM) -> list[Tensor]:
    """For every hidden layer, the share of the variance that each component captures.

    Args:
        model: A model at step 0. Fine-tuning changes the kernel matrices of later layers, but
            not the eigenvalues that they remember.
    """
    found = []
    for conv in model.layers:
        values = conv.eigenvalues.detach().double().cpu()
        found.append(values / max(centred_trace(conv), 1e-30))
    return found


def eigenvalues(model: Any, ax: Axes | None = None) -> Axes:
    """Draw the decay of the eigenvalues of every hidden layer, as shares of the variance.

    A curve that is still high where it ends says that more channels would keep more; one that has fallen by many
    orders of magnitude, that fewer would do.

    Args:
        model: A ``GCKM`` at step 0, a ``GCKMEnsemble`` or a ``GCKMClassifier``.
        ax: Axes to draw on.
    """
    return decay([shares(member) for member in Subject.of(model).members], ax)


def decay(members: Sequence[Sequence[Tensor]], ax: Axes | None = None) -> Axes:
    """Draw shares that :func:`shares` found, for one or more models."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax = axes_of(ax)
    for layer in range(max(map(len, members))):
        curves = [member[layer] for member in members if len(member) > layer]
        captured = [min(100.0, 100 * float(curve.sum())) for curve in curves]  # Low-rank traces are a little off.
        low, high = f"{min(captured):.0f}", f"{max(captured):.0f}"
        text = f"layer {layer + 1}: {low} %" if low == high else f"layer {layer + 1}: {low} to {high} %"
        look: dict[str, Any] = {"color": COLOURS[layer % len(COLOURS)], "linestyle": _STYLES[layer % len(_STYLES)]}
        if len(members) == 1:
            look |= {"marker": MARKERS[layer % len(MARKERS)], "markersize": 4}
        for number, curve in enumerate(curves):
            ax.plot(range(1, curve.numel() + 1), curve.numpy(), label=text if number == 0 else None, **look)
    ax.set_yscale("log")
    bottom, top = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if top < 500 * bottom else (1.0,)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    frame(ax)
    ax.set(xlabel="component", ylabel="share of the variance, %")
    ax.legend(frameon=False, title="captured in all")
    return ax
