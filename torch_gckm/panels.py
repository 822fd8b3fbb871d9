"""The one place where rows meet: every sum, mean, maximum, draw and gather over nodes.

Nodes are rows. The rest of the package computes row by row, on blocks of rows, or on small matrices, so what the
functions here return is all that processes holding different rows would have to exchange. Each function says what
it would send: ``R(k)`` stands for an all-reduce of ``k`` numbers, ``B(k)`` for a broadcast of ``k`` numbers from one
process. Functions that send nothing are here because they share the block policy.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_gckm.errors import InvalidInputError

BLOCK_ENTRIES = 2**21  # Arrays of this size stay in the allocator's hands; larger ones are mapped anew each time.
_STRIPE = 256  # Columns of a symmetric product at a time.
_FANOUT = 64  # Children of a node in the tree that rows are drawn from.


def blocks(num_rows: int, width: int, entries: int | None = None) -> Iterator[slice]:
    """Slices that cover all rows, such that ``width`` numbers per row make an array of moderate size. Sends nothing."""
    step = max(1, (BLOCK_ENTRIES if entries is None else entries) // max(width, 1))
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def total(x: Tensor) -> Tensor:
    """The sum of all entries; differentiable. R(1)."""
    return x.sum()


def mean(x: Tensor) -> Tensor:
    """The mean of all entries; differentiable. R(2)."""
    return x.mean()


def column_sums(x: Tensor) -> Tensor:
    """The sum of the rows, ``[d]``; differentiable. R(d)."""
    return x.sum(dim=0)


def column_means(x: Tensor) -> Tensor:
    """The mean row, ``[d]``; differentiable. R(d + 1)."""
    return x.mean(dim=0)


def centred(x: Tensor) -> Tensor:
    """The rows minus their mean; differentiable. R(d + 1)."""
    return x - column_means(x)


def column_spread(x: Tensor) -> Tensor:
    """The standard deviation of every column, ``[d]``. R(2 d + 1)."""
    return x.std(dim=0, correction=0)


def spread(x: Tensor) -> Tensor:
    """The standard deviation of all entries. R(3)."""
    return x.std()


def accumulate(parts: Iterable[Tensor]) -> Tensor:
    """The sum of what blocks of rows contribute, tensors of one shape. R(k), once, for ``k`` numbers."""
    return accumulate_each([part] for part in parts)[0]


def accumulate_each(parts: Iterable[Sequence[Tensor]]) -> list[Tensor]:
    """As :func:`accumulate`, for several tensors at a time. R(k), once, for ``k`` numbers in all."""
    iterator = iter(parts)
    result = [tensor.clone() for tensor in next(iterator)]
    for part in iterator:
        for place, tensor in zip(result, part, strict=True):
            place += tensor
    return result


def sums_by(groups: Tensor, values: Tensor, count: int) -> Tensor:
    """The sums of values ``[n]`` over the rows of each group, ``[count]``. R(count)."""
    return torch.zeros(count, dtype=values.dtype, device=values.device).index_add_(0, groups, values)


def counts(groups: Tensor, count: int = 0) -> Tensor:
    """How many rows belong to each group, ``[count]`` or as many as there are groups. R(count)."""
    return torch.bincount(groups, minlength=count)


def cross(a: Tensor, b: Tensor) -> Tensor:
    """``a' b``; differentiable. R(p q) for ``p`` and ``q`` columns."""
    return a.t() @ b


def row_dots(a: Tensor, b: Tensor) -> Tensor:
    """The inner products of equal rows, ``[n]``; unlike ``(a * b).sum(1)``, without a temporary. Sends nothing."""
    return torch.bmm(a.unsqueeze(1), b.unsqueeze(2)).view(-1)


def double_gram(x: Tensor) -> Tensor:
    """``x' x`` in double precision, without a copy of ``x``. R(s²)."""
    parts = (x[block].double() for block in blocks(*x.shape))
    return accumulate(part.t() @ part for part in parts)


def symmetric_product(panel: Tensor, weight: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    r""":math:`F' \mathrm{diag}(w) F` in double precision, from its lower half; weights have any sign. R(m²).

    Products within a block of rows have the precision ``dtype``, by default the panel's; their sums are double.
    """
    dtype = panel.dtype if dtype is None else dtype
    order = panel.size(1)
    result = torch.zeros(order, order, dtype=torch.float64, device=panel.device)
    part = torch.empty(order, order, dtype=dtype, device=panel.device)
    for block in blocks(panel.size(0), order):
        right = panel[block].to(dtype)
        left = right if weight is None else right * weight[block].to(dtype).unsqueeze(1)
        for stripe in blocks(order, 1, _STRIPE):
            torch.mm(left[:, stripe].t(), right[:, : stripe.stop], out=part[stripe, : stripe.stop])
            result[stripe, : stripe.stop] += part[stripe, : stripe.stop]
    return result.tril() + result.tril(-1).t()


def times_vector(panel: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """``panel' weight`` in double precision, ``[m]``; products within a block have the given precision. R(m)."""
    parts = blocks(panel.size(0), panel.size(1))
    return accumulate((panel[part].to(dtype).t() @ weight[part].to(dtype)).double() for part in parts)


def times(panel: Tensor, v: Tensor, dtype: torch.dtype) -> Tensor:
    """``panel @ v`` in blocks of the given precision, in the type of ``v``. Sends nothing."""
    result = v.new_empty(panel.size(0), v.size(1))
    for block in blocks(panel.size(0), panel.size(1)):
        result[block] = panel[block].to(dtype) @ v.to(dtype)
    return result


def times_upper(left: Tensor, upper: Tensor, out: Tensor) -> None:
    """``left @ upper`` for an upper triangular matrix, without the products with its zeros. Sends nothing."""
    for stripe in blocks(upper.size(1), 1, _STRIPE):
        torch.mm(left[:, : stripe.stop], upper[: stripe.stop, stripe], out=out[:, stripe])


def one_norm_estimate(matvec: Callable[[Tensor], Tensor], rmatvec: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    r"""Estimate :math:`\|A\|_1 = \max_j \sum_i |A_{ij}|` from a few products with :math:`A` and :math:`A'`.

    Hager's method: a lower bound, in practice within a few per cent of the norm. R(4) per product, at most five pairs
    of them. It starts with :math:`A` times ``start``, the mean of all columns or one of them; where columns cancel each
    other, their mean is rounding noise and would make the estimate a matter of chance.
    """
    x, estimate = start, start.new_zeros(())
    for _ in range(5):
        y = matvec(x)
        norm = total(y.abs())
        if norm <= estimate:
            break
        estimate = norm
        z = rmatvec(torch.where(y >= 0, 1.0, -1.0).to(y.dtype))
        peak = place_of_largest(z.abs())
        if z[peak].abs() <= z.dot(x):
            break
        x = torch.zeros_like(x).index_fill_(0, peak, 1.0)
    return estimate


def orthonormalize(x: Tensor) -> Tensor:
    r"""The closest orthonormal matrix, :math:`X (X'X)^{-1/2}`; it flips or mixes no columns. R(s²), B(s²)."""
    values, vectors = torch.linalg.eigh(double_gram(x))
    rotation = (vectors * values.rsqrt()) @ vectors.t()
    return torch.cat([(x[block].double() @ rotation).to(x.dtype) for block in blocks(*x.shape)])


def fix_signs(vectors: Tensor) -> Tensor:
    """Flip columns so that the entry of largest magnitude is positive. R(2 s), a maximum."""
    peak = vectors.abs().argmax(dim=0, keepdim=True)
    return vectors * torch.where(vectors.gather(0, peak) < 0, -1.0, 1.0).to(vectors.dtype)


def largest(x: Tensor) -> Tensor:
    """The largest entry. R(1), a maximum."""
    return x.max()


def smallest(x: Tensor) -> Tensor:
    """The smallest entry. R(1), a minimum."""
    return x.min()


def place_of_largest(x: Tensor) -> Tensor:
    """The row of the largest entry of ``[n]``. R(2), a maximum."""
    return x.argmax()


def lowest(x: Tensor, number: int) -> Tensor:
    """The rows of the smallest entries of ``[n]``, at most so many, in increasing order of them. R(number)."""
    return x.argsort(stable=True)[:number]


def mean_ranks(x: Tensor) -> Tensor:
    """The rank of every entry of ``[n]`` from 1 on; equal ones share the mean of theirs. R(n log n): a sort."""
    _, group, size = x.unique(return_inverse=True, return_counts=True)
    return (size.cumsum(dim=0) - (size - 1) / 2.0).double()[group]


def count(mask: Tensor) -> int:
    """How many entries are true, or not zero. R(1)."""
    return int(torch.count_nonzero(mask))


def holds_somewhere(mask: Tensor) -> bool:
    """Whether an entry is true. R(1), a maximum."""
    return bool(mask.any())


def holds_everywhere(mask: Tensor) -> bool:
    """Whether all entries are true. R(1), a minimum."""
    return bool(mask.all())


def first(mask: Tensor) -> int:
    """The first row that is true; there must be one. R(1), a minimum."""
    return int(mask.nonzero()[0, 0])


def check_finite(x: Tensor, name: str = "x") -> None:
    """Raise if ``x`` holds NaN or infinity, naming how many entries and the first row. R(1)."""
    if x.layout == torch.sparse_coo:
        x = x.coalesce()
    values = x.values() if x.layout != torch.strided else x
    # A sum is finite only if no entry is NaN; it may overflow, so a bad sum is looked at again.
    if bool(values.sum().isfinite()):
        return
    bad = ~values.isfinite()
    if holds_somewhere(bad):
        where = f", first in row {first(bad.view(x.size(0), -1).any(dim=1))}" if x.layout == torch.strided else ""
        raise InvalidInputError(f"'{name}' has {count(bad)} entries that are NaN or infinite{where}; fill or drop them")


def draw(weight: Tensor, number: int, generator: np.random.Generator) -> Tensor:
    """Rows drawn with replacement, proportionally to a weight ``[n]`` in double precision, ``[number]``.

    Drawn down a tree of sums: at every level each draw chooses one of up to 64 children by a random number of its own.
    So rounding hardly ever changes a row; in one cumulative sum it would. R(64 number) per level, ``log(n) / log(64)``.
    """
    levels = [weight.numpy()]
    while levels[-1].size > 1:
        levels.append(_children(levels[-1]).sum(axis=1))
    rows = np.zeros(number, dtype=np.int64)
    for level in reversed(levels[:-1]):
        shares = _children(level)[rows].cumsum(axis=1)
        chosen = (shares <= generator.random((number, 1)) * shares[:, -1:]).sum(axis=1)
        # Rounding may choose beyond the last child that has any weight: the first with the whole sum is the last.
        rows = _FANOUT * rows + np.minimum(chosen, (shares < shares[:, -1:]).sum(axis=1))
    return torch.from_numpy(rows)


def _children(level: NDArray[np.float64]) -> NDArray[np.float64]:
    """The numbers of a level, those with one parent in a row; the last row is filled with zeros."""
    return np.pad(level, (0, -level.size % _FANOUT)).reshape(-1, _FANOUT)


def random_normal(num_rows: int, num_columns: int, seed: int) -> Tensor:
    """Standard normal numbers in double precision, ``[n, d]``; the same seed gives the same ones. Sends nothing."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, num_columns, generator=generator, dtype=torch.float64)


def random_order(num_rows: int, seed: int) -> Tensor:
    """A random rank of every row in [0, 1), ``[n]``; the same seed gives the same ones. Sends nothing."""
    return torch.rand(num_rows, generator=torch.Generator().manual_seed(seed))


def rows_where(mask: Tensor) -> Tensor:
    """The numbers of the rows that are true, in increasing order. R(k) for ``k`` of them."""
    return mask.nonzero().squeeze(1)
