"""The one place where rows meet: every sum, mean, maximum, draw and gather over nodes.

Nodes are rows. The rest of the package computes row by row, on blocks of rows, or on small matrices. The functions here
take the rows of a process and return what is the same on all of them; ``over`` says which rows these are, and with whom
to exchange: by default they are all rows. Each function says what it sends: ``R(k)`` stands for an all-reduce of ``k``
numbers, ``B(k)`` for a broadcast of ``k`` numbers from one process, ``G(k)`` for ``k`` numbers from every process.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from torch_gckm.blocks import STRIPE, Matrix, blocks
from torch_gckm.errors import InvalidInputError
from torch_gckm.partition import WHOLE, Partition

_FANOUT = 64  # Children of a node in the tree that rows are drawn from.


def total(x: Tensor, over: Partition = WHOLE) -> Tensor:
    """The sum of all entries; differentiable. R(1)."""
    return over.processes.sum(x.sum())


def mean(x: Tensor, over: Partition = WHOLE) -> Tensor:
    """The mean of all entries, NaN if there are none; differentiable. R(2)."""
    if over.is_whole:
        return x.mean()
    summed, number = over.processes.sums([x.sum().double(), torch.tensor(x.numel(), dtype=torch.float64)])
    return (summed / number).to(x.dtype)


def column_sums(x: Tensor, over: Partition = WHOLE) -> Tensor:
    """The sum of the rows, ``[d]``; differentiable. R(d)."""
    return over.processes.sum(x.sum(dim=0))


def column_means(x: Tensor, over: Partition = WHOLE) -> Tensor:
    """The mean row, ``[d]``; differentiable. R(d)."""
    return column_sums(x, over) / over.all_rows(x.size(0))


def centred(x: Tensor, over: Partition = WHOLE) -> Tensor:
    """The rows minus their mean; differentiable. R(d), and again for the gradient."""
    return x - over.processes.shared(column_means(x, over))


def column_spread(x: Tensor, over: Partition = WHOLE) -> Tensor:
    """The standard deviation of every column, ``[d]``. R(2 d)."""
    if over.is_whole:
        return x.std(dim=0, correction=0)
    middle = accumulate((x[block].double().sum(dim=0) for block in blocks(*x.shape)), over) / over.all_rows(x.size(0))
    parts = ((x[block] - middle).square().sum(dim=0) for block in blocks(*x.shape))
    return (accumulate(parts, over) / over.all_rows(x.size(0))).sqrt().to(x.dtype)


def spread(x: Tensor, over: Partition = WHOLE) -> Tensor:
    """The standard deviation of all entries. R(4)."""
    if over.is_whole:
        return x.std()
    squares, number = total((x - mean(x, over)).square(), over), total(torch.tensor(x.numel()), over)
    return (squares / (number - 1)).sqrt()


def accumulate(parts: Iterable[Tensor], over: Partition = WHOLE) -> Tensor:
    """The sum of what blocks of rows contribute, tensors of one shape. R(k), once, for ``k`` numbers."""
    return accumulate_each(([part] for part in parts), over)[0]


def accumulate_each(parts: Iterable[Sequence[Tensor]], over: Partition = WHOLE) -> list[Tensor]:
    """As :func:`accumulate`, for several tensors at a time. R(k), once for each, for ``k`` numbers in all."""
    iterator = iter(parts)
    result = [tensor.clone() for tensor in next(iterator)]
    for part in iterator:
        for place, tensor in zip(result, part, strict=True):
            place += tensor
    return over.processes.sums(result)


def sums_by(groups: Tensor, values: Tensor, count: int, over: Partition = WHOLE) -> Tensor:
    """The sums of values ``[n]`` over the rows of each group, ``[count]``. R(count)."""
    return over.processes.sum(values.new_zeros(count).index_add_(0, groups, values))


def counts(groups: Tensor, count: int = 0, over: Partition = WHOLE) -> Tensor:
    """How many rows belong to each group, ``[count]`` or as many as there are groups. R(count)."""
    if not count and not over.is_whole:
        count = int(over.processes.largest(torch.tensor(int(groups.max()) + 1 if groups.numel() else 0)))
    return over.processes.sum(torch.bincount(groups, minlength=count))


def cross(a: Tensor, b: Tensor, over: Partition = WHOLE) -> Tensor:
    """``a' b``; differentiable. R(p q) for ``p`` and ``q`` columns."""
    return over.processes.sum(a.t() @ b)


def crosses(pairs: Sequence[tuple[Tensor, Tensor]], over: Partition = WHOLE) -> list[Tensor]:
    """``a' b`` of several pairs; differentiable. R(p q), once, for all of them."""
    return over.processes.sums([a.t() @ b for a, b in pairs])


def double_gram(x: Tensor, over: Partition = WHOLE) -> Tensor:
    """``x' x`` in double precision, without a copy of ``x``. R(s²)."""
    return accumulate((part.t() @ part for part in (x[block].double() for block in blocks(*x.shape))), over)


def moments(
    panel: Matrix, weight: Tensor | None = None, dtype: torch.dtype | None = None, over: Partition = WHOLE
) -> tuple[Tensor, Tensor]:
    r""":math:`F' \mathrm{diag}(w) F`, ``[m, m]``, and :math:`F' w`, ``[m]`` (zeros without weights), in double.

    From the lower half; weights have any sign. Products within a block of rows have the precision ``dtype``, by default
    the panel's; their sums are double. R(m² + m).
    """
    dtype = panel.dtype if dtype is None else dtype
    order = panel.size(1)
    result = torch.zeros(order, order, dtype=torch.float64, device=panel.device)
    part = torch.empty(order, order, dtype=dtype, device=panel.device)
    sums = torch.zeros(order, dtype=torch.float64, device=panel.device)
    for block in blocks(panel.size(0), order):
        right = panel[block].to(dtype)
        if weight is not None:
            sums += right.t() @ weight[block].to(dtype)
        left = right if weight is None else right * weight[block].to(dtype).unsqueeze(1)
        for stripe in blocks(order, 1, STRIPE):
            torch.mm(left[:, stripe].t(), right[:, : stripe.stop], out=part[stripe, : stripe.stop])
            result[stripe, : stripe.stop] += part[stripe, : stripe.stop]
    result, sums = over.processes.sums([result, sums])
    return result.tril() + result.tril(-1).t(), sums


def one_norm_estimate(
    matvec: Callable[[Tensor], Tensor], rmatvec: Callable[[Tensor], Tensor], start: Tensor, over: Partition = WHOLE
) -> Tensor:
    r"""Estimate :math:`\|A\|_1 = \max_j \sum_i |A_{ij}|` from a few products with :math:`A` and :math:`A'`.

    Hager's method: a lower bound, in practice within a few per cent of the norm, from at most five pairs of products.
    R(2) and G(2) for each pair. It starts with :math:`A` times ``start``, the mean of all columns or one of them; where
    columns cancel each other, their mean is rounding noise and would make the estimate a matter of chance.
    """
    x, estimate = start, start.new_zeros(())
    for _ in range(5):
        y = matvec(x)
        norm = total(y.abs(), over)
        if norm <= estimate:
            break
        estimate = norm
        z = rmatvec(torch.where(y >= 0, 1.0, -1.0).to(y.dtype))
        height, peak = _peak(z.abs(), over)
        if height <= total(z * x, over):
            break
        x = over.unit(x, peak)
    return estimate


def orthonormalize(x: Tensor, over: Partition = WHOLE) -> Tensor:
    r"""The closest orthonormal matrix, :math:`X (X'X)^{-1/2}`; it flips or mixes no columns. R(s²), B(s²)."""
    gram = double_gram(x, over)

    def rotation() -> list[Tensor]:
        values, vectors = torch.linalg.eigh(gram)
        return [(vectors * values.rsqrt()) @ vectors.t()]

    (turn,) = over.processes.once(rotation)
    return torch.cat([(x[block].double() @ turn).to(x.dtype) for block in blocks(*x.shape)])


def fix_signs(vectors: Tensor, over: Partition = WHOLE) -> Tensor:
    """Flip columns so that the entry of largest magnitude is positive. G(s)."""
    peaks = over.processes.gather(vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True)).squeeze(0))
    peak = peaks.gather(0, peaks.abs().argmax(dim=0, keepdim=True))
    return vectors * torch.where(peak < 0, -1.0, 1.0).to(vectors.dtype)


def largest(x: Tensor, over: Partition = WHOLE) -> Tensor:
    """The largest entry. R(1), a maximum."""
    return over.processes.largest(x.max())


def smallest(x: Tensor, over: Partition = WHOLE) -> Tensor:
    """The smallest entry. R(1), a minimum."""
    return over.processes.smallest(x.min())


def place_of_largest(x: Tensor, over: Partition = WHOLE) -> Tensor:
    """The row of the largest entry of ``[n]``, by its global number. G(2)."""
    return _peak(x, over)[1]


def _peak(x: Tensor, over: Partition) -> tuple[Tensor, Tensor]:
    """The largest entry of ``[n]``, and its row. G(2)."""
    place = x.argmax()
    if over.is_whole:
        return x[place], place
    found = over.processes.gather(torch.stack([x[place].double(), (place + over.start).double()]))
    height, row = found[found[:, 0].argmax()]
    return height.to(x.dtype), row.long()


def lowest(x: Tensor, number: int) -> Tensor:
    """The rows of the smallest entries of ``[n]``, at most so many, in increasing order of them."""
    return x.argsort(stable=True)[:number]


def mean_ranks(x: Tensor) -> Tensor:
    """The rank of every entry of ``[n]`` from 1 on; equal ones share the mean of theirs."""
    _, group, size = x.unique(return_inverse=True, return_counts=True)
    return (size.cumsum(dim=0) - (size - 1) / 2.0).double()[group]


def count(mask: Tensor, over: Partition = WHOLE) -> int:
    """How many entries are true, or not zero. R(1)."""
    return int(over.processes.sum(torch.count_nonzero(mask)))


def holds_somewhere(mask: Tensor, over: Partition = WHOLE) -> bool:
    """Whether an entry is true. R(1), a maximum."""
    return not over.processes.everywhere(not bool(mask.any()))


def holds_everywhere(mask: Tensor, over: Partition = WHOLE) -> bool:
    """Whether all entries are true. R(1), a minimum."""
    return over.processes.everywhere(bool(mask.all()))


def first(mask: Tensor, over: Partition = WHOLE) -> int:
    """The first row that is true, by its global number; there must be one. R(1), a minimum."""
    if over.is_whole:
        return int(mask.nonzero()[0, 0])
    own = over.start + int(mask.int().argmax()) if bool(mask.any()) else over.offsets[-1]
    return int(over.processes.smallest(torch.tensor(own)))


def check_finite(x: Tensor, name: str = "x", over: Partition = WHOLE) -> None:
    """Raise if ``x`` holds NaN or infinity, naming how many entries and the first row. Each process for its own rows.

    It sends nothing: whoever calls it sees to it that an error is raised by all processes.
    """
    if x.layout == torch.sparse_coo:
        x = x.coalesce()
    values = x.values() if x.layout != torch.strided else x
    # A sum is finite only if no entry is NaN; it may overflow, so a bad sum is looked at again.
    if bool(values.sum().isfinite()):
        return
    bad = ~values.isfinite()
    if holds_somewhere(bad):
        row = over.start + first(bad.view(x.size(0), -1).any(dim=1)) if x.layout == torch.strided else None
        where = "" if row is None else f", first in row {row}"
        raise InvalidInputError(f"'{name}' has {count(bad)} entries that are NaN or infinite{where}; fill or drop them")


def draw(weight: Tensor, number: int, generator: np.random.Generator, over: Partition = WHOLE) -> Tensor:
    """Rows drawn with replacement, proportionally to a weight ``[n]`` in double precision, ``[number]``.

    Drawn down a tree of sums: at every level each draw chooses one of up to 64 children by a random number of its own.
    So rounding hardly ever changes a row; in one cumulative sum it would. R(64 number) per level, ``log(n) / log(64)``.
    """
    levels, starts, size = [weight.numpy()], [over.start], over.all_rows(weight.numel())
    while size > 1:
        levels.append(_children(levels[-1], starts[-1] % _FANOUT).sum(axis=1))
        starts.append(starts[-1] // _FANOUT)
        size = -(-size // _FANOUT)
    rows = np.zeros(number, dtype=np.int64)
    for level, start in zip(reversed(levels[:-1]), reversed(starts[:-1]), strict=True):
        families, own = _children(level, start % _FANOUT), rows - start // _FANOUT
        is_own = (own >= 0) & (own < len(families))
        part = np.where(is_own[:, None], families[np.where(is_own, own, 0)], 0.0)
        shares = over.processes.sum(torch.from_numpy(part)).numpy().cumsum(axis=1)
        chosen = (shares <= generator.random((number, 1)) * shares[:, -1:]).sum(axis=1)
        # Rounding may choose beyond the last child that has any weight: the first with the whole sum is the last.
        rows = _FANOUT * rows + np.minimum(chosen, (shares < shares[:, -1:]).sum(axis=1))
    return torch.from_numpy(rows)


def _children(level: NDArray[np.float64], skip: int) -> NDArray[np.float64]:
    """The numbers of a level, those with one parent in a row, filled with zeros; the first row lacks so many."""
    return np.pad(level, (skip, -(skip + level.size) % _FANOUT)).reshape(-1, _FANOUT)


def random_normal(num_rows: int, num_columns: int, seed: int, over: Partition = WHOLE) -> Tensor:
    """Standard normal numbers in double precision, ``[n, d]``; a seed gives every row the same ones. Sends nothing."""
    bits = np.random.PCG64(seed).advance(over.start * num_columns)
    uniform = np.random.Generator(bits).random((num_rows, num_columns))
    return torch.from_numpy(ndtri(np.maximum(uniform, np.finfo(float).tiny)))


def random_order(num_rows: int, seed: int) -> Tensor:
    """A random rank of every row in [0, 1), ``[n]``; the same seed gives the same ones."""
    return torch.rand(num_rows, generator=torch.Generator().manual_seed(seed))


def rows_where(mask: Tensor, over: Partition = WHOLE) -> Tensor:
    """The global numbers of the rows that are true, in increasing order. G(k) for ``k`` of them."""
    return over.processes.gather_rows(mask.nonzero().squeeze(1) + over.start)
