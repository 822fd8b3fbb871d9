"""How many nodes of a graph, or rows, a classifier is right about."""

from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import column_or_1d
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm import panels
from torch_gckm.errors import InvalidInputError
from torch_gckm.estimators.inputs import is_labelled, of_own_type, to_matrix
from torch_gckm.estimators.tables import without_blanks
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


def score_rows(classifier: Any, X: Any, y: Any, sample_weight: Any, edges: tuple[Any, Any]) -> float:
    """The accuracy on the rows with a label; ``edges`` are those of a whole new graph, and their weights."""
    predicted = to_matrix(classifier.predict(X, edge_index=edges[0], edge_weight=edges[1]))
    y = column_or_1d(without_blanks(to_matrix(y)))
    labelled = is_labelled(y)
    if not labelled.any():
        raise InvalidInputError("none of the rows to score has a label")
    weight = None if sample_weight is None else column_or_1d(to_matrix(sample_weight))[labelled]
    return float(accuracy_score(of_own_type(y[labelled]), predicted[labelled], sample_weight=weight))
