"""Numbers that tell a graph from any other."""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.layouts import SPARSE_BELOW, to_csr, to_scipy


class EdgeIdentity(NamedTuple):
    """The number of nodes and of edges, and a hash of the weighted edges."""

    num_nodes: int
    num_edges: int
    digest: int


def edge_identity(edges: Tensor, weight: Tensor | None, num_nodes: int) -> EdgeIdentity:
    """The identity of weighted edges; it does not depend on their order, or on the format that they were given in."""
    weight = torch.ones(edges.size(1), device=edges.device) if weight is None else weight.detach()
    keys = _mix(edges[0] * num_nodes + edges[1] + 1) + weight.double().contiguous().view(torch.int64)
    return EdgeIdentity(num_nodes, edges.size(1), int(panels.total(_mix(keys))))


def matrix_identity(x: Tensor) -> tuple[int, int]:
    """A hash of the numbers of a matrix; it depends neither on their type nor on the layout, dense or sparse."""
    digest = hashlib.blake2b(str(tuple(x.shape)).encode(), digest_size=16)
    for part in _contents(x.detach().cpu()):
        digest.update(part.contiguous().numpy().data)
    value = digest.digest()
    return int.from_bytes(value[:8], "little", signed=True), int.from_bytes(value[8:], "little", signed=True)


def _contents(x: Tensor) -> Iterator[Tensor]:
    """The numbers of a matrix by blocks of rows; where few of them are not zero, their places and values instead."""
    is_dense = x.layout == torch.strided
    sparse = x if is_dense else to_csr(x)
    if panels.count(x if is_dense else sparse.values()) < SPARSE_BELOW * x.numel():
        sparse = to_csr(sparse)
        places = torch.repeat_interleave(sparse.crow_indices().diff()).long() * x.size(1) + sparse.col_indices()
        stored = sparse.values() != 0
        yield places[stored]
        yield _shortest(sparse.values()[stored])
        return
    for block in panels.blocks(x.size(0), x.size(1)):
        yield _shortest(x[block] if is_dense else torch.from_numpy(to_scipy(sparse)[block].toarray()))


def _shortest(x: Tensor) -> Tensor:
    """Numbers in single precision if it holds them exactly, else in double; zeros lose their sign."""
    single = x.float()
    return (single if single is x or torch.equal(single.to(x.dtype), x) else x.double()) + 0.0


def _mix(keys: Tensor) -> Tensor:
    """Scatter integers over all 64 bits (the finaliser of splitmix64, wrapping on overflow)."""
    keys = (keys ^ (keys >> 30)) * -4658895280553007687
    keys = (keys ^ (keys >> 27)) * -7723592293110705685
    return keys ^ (keys >> 31)
