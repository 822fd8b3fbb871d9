"""Which nodes to label next."""

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError


@torch.no_grad()
def suggest(probabilities: Tensor, embeddings: Sequence[Tensor], labelled: Tensor, count: int) -> Tensor:
    """Nodes whose labels would tell most: the model doubts them, and they are far from labelled ones and each other.

    Greedy: each next node has the largest product of its doubt, one minus the gap between its two largest
    probabilities, and its squared distance to the nearest labelled or suggested node, over directions of embeddings.

    Args:
        probabilities: Calibrated class probabilities, ``[n, num_classes]``.
        embeddings: Embeddings of the nodes, one ``[n, s]`` per model.
        labelled: The labelled nodes.
        count: The number of nodes to suggest.

    Returns:
        Nodes ``[count]``, the most informative first.
    """
    candidates = probabilities.size(0) - labelled.numel()
    if not 0 < count <= candidates:
        raise InvalidInputError(f"can suggest 1 to {candidates} unlabelled nodes, not {count}")
    top = probabilities.topk(2, dim=1).values
    doubt = 1.0 - (top[:, 0] - top[:, 1])
    doubt = doubt.index_fill(0, labelled, -1.0)
    directions = torch.cat([torch.nn.functional.normalize(panels.centred(h), dim=1) for h in embeddings], dim=1)
    directions = directions.to(doubt.dtype) / len(embeddings) ** 0.5
    nearest = torch.full_like(doubt, torch.inf)
    for part in labelled.split(256):
        nearest = torch.minimum(nearest, (1.0 - directions @ directions[part].t()).amin(dim=1))
    chosen = []
    for _ in range(count):
        node = int(panels.place_of_largest(doubt * nearest.clamp(min=1e-6)))
        chosen.append(node)
        doubt[node] = -1.0
        nearest = torch.minimum(nearest, 1.0 - directions @ directions[node])
    return torch.tensor(chosen)
