"""Numbers that tell a graph from any other."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.layouts import to_csr


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
    """A hash of the bytes of a matrix, dense or sparse, in its own precision."""
    digest = hashlib.blake2b(f"{tuple(x.shape)} {x.dtype}".encode(), digest_size=16)
    x = x.detach()
    if x.layout == torch.strided:
        for block in panels.blocks(x.size(0), x.size(1)):
            digest.update(x[block].cpu().contiguous().numpy())
    else:
        sparse = to_csr(x)
        for part in (sparse.crow_indices(), sparse.col_indices(), sparse.values()):
            digest.update(part.cpu().contiguous().numpy())
    value = digest.digest()
    return int.from_bytes(value[:8], "little", signed=True), int.from_bytes(value[8:], "little", signed=True)


def _mix(keys: Tensor) -> Tensor:
    """Scatter integers over all 64 bits (the finaliser of splitmix64, wrapping on overflow)."""
    keys = (keys ^ (keys >> 30)) * -4658895280553007687
    keys = (keys ^ (keys >> 27)) * -7723592293110705685
    return keys ^ (keys >> 31)
