"""Nodes as points in the plane, also of large graphs within a second."""

import torch
from torch import Tensor

from torch_gckm.blocks import blocks
from torch_gckm.plot.common import Array
from torch_gckm.plot.embedding import Method, method_for, plane

_LANDMARKS = 600  # t-SNE of so many takes some half a second.
_STEPS = 500  # Groups hardly move any more.
_NEAREST = 4  # Landmarks that a node is placed between.


def arrange(h: Tensor, method: Method = "auto") -> Array:
    """Points ``[n, 2]`` that show an embedding ``[n, s]``.

    t-SNE places some landmarks, chosen at random; every other node is put between those that are nearest to it, the
    nearer the more.
    """
    count = h.size(0)
    if method_for(method, min(count, _LANDMARKS)) == "pca" or count <= _LANDMARKS:
        return plane(h, method, steps=_STEPS)
    chosen = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:_LANDMARKS].sort().values
    landmarks = h[chosen]
    known = torch.from_numpy(plane(landmarks, "tsne", steps=_STEPS)).double()
    points = torch.empty(count, 2, dtype=torch.float64)
    for block in blocks(count, _LANDMARKS):
        distance, place = torch.cdist(h[block], landmarks).double().topk(_NEAREST, dim=1, largest=False)
        share = (distance.clamp(min=1e-12) ** -2).clamp(max=1e20)
        share = share / share.sum(dim=1, keepdim=True)
        points[block] = (share.unsqueeze(2) * known[place]).sum(dim=1)
    return points.numpy()
