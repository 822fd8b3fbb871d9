"""Which nodes to label next."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError


def suggest_nodes(probabilities: Tensor, embedding: Tensor, candidates: Tensor, count: int) -> Tensor:
    r"""Nodes that the model is unsure of and that differ from each other.

    Of the least sure candidates, by the gap between the two most probable classes, one
    after the other is picked: always the one with the largest product of doubt and distance to
    the nodes picked before.

    Args:
        probabilities: Class probabilities, ``[n, num_classes]``.
        embedding: Node embeddings, ``[n, d]``.
        candidates: The nodes to choose from, boolean ``[n]``.
        count: The number of nodes.

    Returns:
        Node indices ``[count]``, the most informative first.
    """
    nodes = candidates.nonzero().squeeze(1)
    if not 0 < count <= nodes.numel():
        raise InvalidInputError(f"can suggest 1 to {nodes.numel()} unlabelled nodes, not {count}")
    top = probabilities[nodes].topk(min(2, probabilities.size(1)), dim=1).values
    doubt = 1.0 - (top[:, 0] - top[:, -1])
    shortlist = doubt.topk(min(nodes.numel(), max(20 * count, 100))).indices
    nodes, doubt = nodes[shortlist], doubt[shortlist]
    points = embedding[nodes].double()
    picked = [0]
    distance = (points - points[0]).norm(dim=1)
    while len(picked) < count:
        worth = doubt.double() * distance
        worth[picked] = -1.0
        picked.append(int(worth.argmax()))
        distance = torch.minimum(distance, (points - points[picked[-1]]).norm(dim=1))
    return nodes[torch.tensor(picked, device=nodes.device)]
