"""Rows that other processes have, and this one's edges come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from torch_gckm.partition import WHOLE, Partition


class Halo:
    """The rows of other processes that a process reads, and its own rows that others read.

    One process by itself has none.

    Args:
        sources: The global numbers of rows that are read, each once, in increasing order.
        partition: Which rows are whose.
    """

    def __init__(self, sources: Tensor, partition: Partition) -> None:
        self._processes, world = partition.processes, partition.world
        self.sources = sources
        if partition.is_whole:
            return
        receives = torch.bincount(partition.owner(sources), minlength=world)
        self.receives: list[int] = receives.tolist()
        self.sends: list[int] = self._processes.trade(receives, [1] * world, [1] * world).tolist()
        self.rows = self._processes.trade(sources, self.receives, self.sends) - partition.start

    def extended(self, x: Tensor) -> Tensor:
        """The rows of this process, ``[n, ...]``, and then those that it reads of others; differentiable."""
        return x if self._processes.world == 1 else _Extended.apply(self, x)

    def extended_sparse(self, x: Any) -> Any:
        """The same for a CSR matrix of SciPy."""
        if self._processes.world == 1:
            return x
        sent = x[self.rows.numpy()]
        counts = torch.from_numpy(np.diff(sent.indptr).astype(np.int64))
        lengths = self._trade(counts)
        sends, receives = (
            [int(part.sum()) for part in sizes.split(rows)]
            for sizes, rows in ((counts, self.sends), (lengths, self.receives))
        )
        columns, values = (
            self._processes.trade(torch.from_numpy(part), sends, receives).numpy()
            for part in (sent.indices.astype(np.int64), sent.data)
        )
        pointers = np.concatenate([[0], lengths.numpy().cumsum()])
        received = scipy.sparse.csr_matrix((values, columns, pointers), shape=(len(lengths), x.shape[1]))
        return scipy.sparse.vstack([x, received], format="csr")

    def _trade(self, x: Tensor) -> Tensor:
        """Rows that others read, for those that this process reads."""
        return self._processes.trade(x, self.sends, self.receives)

    def _trade_back(self, x: Tensor) -> Tensor:
        return self._processes.trade(x, self.receives, self.sends)

    def __repr__(self) -> str:
        return f"Halo({self.sources.numel()} rows)"


NO_HALO = Halo(torch.empty(0, dtype=torch.long), WHOLE)


class _Extended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, halo: Halo, x: Tensor) -> Tensor:
        ctx.halo = halo
        return torch.cat([x, halo._trade(x[halo.rows])])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        halo: Halo = ctx.halo
        own = grads[0].size(0) - halo.sources.numel()
        back = halo._trade_back(grads[0][own:])
        return None, grads[0][:own].clone().index_add_(0, halo.rows, back)


def local_numbers(nodes: Tensor, own: int, partition: Partition) -> tuple[Tensor, Halo]:
    """Nodes by their rows in what :meth:`Halo.extended` returns, and that halo; a process has so many rows itself."""
    if partition.is_whole:
        return nodes, NO_HALO
    is_own = (nodes >= partition.start) & (nodes < partition.start + own)
    others = nodes[~is_own].unique()
    places = torch.where(is_own, nodes - partition.start, own + torch.searchsorted(others, nodes))
    return places, Halo(others, partition)


def sent_to_owners(nodes: Tensor, columns: list[Tensor], partition: Partition) -> list[Tensor]:
    """Rows of tensors, each sent to the process that has a node; those that are received."""
    if partition.is_whole:
        return columns
    owner = partition.owner(nodes)
    order = owner.argsort(stable=True)
    sends = torch.bincount(owner, minlength=partition.world)
    ones = [1] * partition.world
    receives = partition.processes.trade(sends, ones, ones).tolist()
    return [partition.processes.trade(column[order], sends.tolist(), receives) for column in columns]
