"""How many nodes of a graph a classifier is right about."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.estimators.inputs import to_matrix
from torch_gckm.partition import partition_of
from torch_gckm.readout import labels_of, pick_mask


def score_nodes(
    classifier: Any, graph: Data, y: Any, sample_weight: Any, mask: Tensor | str, split: int | None
) -> float:
    """The accuracy on some nodes of a graph, by its own labels; of all processes, if each has a part of it."""
    if y is not None or sample_weight is not None:
        raise InvalidInputError("a Data object has its own labels; choose nodes of it with mask=")
    if isinstance(mask, str) and graph.get(mask) is None:
        raise InvalidInputError(f"the graph has no '{mask}'; say with mask= which nodes to score")
    chosen, over = graph[mask] if isinstance(mask, str) else mask, partition_of(graph)
    numbers = labels_of(graph).reshape(-1)
    where = (pick_mask(chosen, graph.num_nodes, split, "mask") > 0) & (numbers >= 0)
    if not panels.holds_somewhere(where, over):
        raise InvalidInputError("none of the nodes to score has a label")
    names = dict(enumerate(classifier.class_names_ or ()))
    true = np.array([names.get(number, number) for number in numbers[where].tolist()], dtype=object)
    right = true == to_matrix(classifier.predict(graph))[to_matrix(where)]
    return float(panels.mean(torch.from_numpy(right.astype(np.float64)), over))
