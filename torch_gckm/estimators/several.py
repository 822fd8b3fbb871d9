"""Several labels per node: how a classifier takes and judges them."""

from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, average_precision_score, f1_score
from torch import Tensor
from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.estimators.inputs import to_matrix
from torch_gckm.partition import partition_of
from torch_gckm.readout import labels_of, pick_mask


def has_several_labels(X: Any, y: Any) -> bool:
    """Whether labels are a matrix with several columns."""
    labels = X.y if isinstance(X, Data) else y
    shape: Any = np.shape(labels) if isinstance(labels, list) else getattr(labels, "shape", ())
    return len(shape) == 2 and shape[1] > 1


def label_metrics(y: Any, predicted: Any, probabilities: Any) -> dict[str, float]:
    """How well several labels per node are predicted; unknown labels, -1, do not count.

    Args:
        y: The labels, ``[n, L]`` of 0, 1 and -1.
        predicted: What :meth:`GCKMClassifier.predict <torch_gckm.GCKMClassifier.predict>` returns, ``[n, L]``.
        probabilities: What ``predict_proba`` returns, ``[n, L]``.

    Returns:
        ``macro_f1`` and ``average_precision``, the means over labels, ``micro_f1``, over all known entries, and
        ``accuracy``, the share of nodes whose known labels are all right.
    """
    y, predicted, probabilities = (np.asarray(to_matrix(part)) for part in (y, predicted, probabilities))
    known = y >= 0
    if not known.any():
        raise InvalidInputError("none of the nodes to score has labels")
    columns = [
        (y[has, place], predicted[has, place], probabilities[has, place])
        for place, has in enumerate(known.T)
        if has.any()
    ]
    rows = known.any(axis=1)
    return {
        "macro_f1": float(np.mean([f1_score(true, found, zero_division=0.0) for true, found, _ in columns])),
        "micro_f1": float(f1_score(y[known], predicted[known], zero_division=0.0)),
        "average_precision": float(np.mean([average_precision_score(true, sure) for true, _, sure in columns])),
        "accuracy": float(((predicted == y) | ~known)[rows].all(axis=1).mean()),
    }


def score_several(
    classifier: Any, X: Any, y: Any, weight: Any, edges: tuple[Any, Any], mask: Tensor | str, split: int | None
) -> float:
    """The share of nodes whose labels are all right, as scikit-learn scores several labels."""
    partition_of(X).refuse("scores of several labels per node are", "collect predictions and labels, and score these")
    predicted = to_matrix(classifier.predict(X, edge_index=edges[0], edge_weight=edges[1]))
    if isinstance(X, Data):
        if y is not None or weight is not None:
            raise InvalidInputError("a Data object has its own labels; choose nodes of it with mask=")
        if isinstance(mask, str) and X.get(mask) is None:
            raise InvalidInputError(f"the graph has no '{mask}'; say with mask= which nodes to score")
        true = to_matrix(labels_of(X))
        used = to_matrix(pick_mask(X[mask] if isinstance(mask, str) else mask, X.num_nodes, split, "mask") > 0)
    else:
        true = np.asarray(to_matrix(y))
        used = np.ones(len(true), dtype=bool)
    used = used & (true >= 0).all(axis=1)
    if not used.any():
        raise InvalidInputError("none of the nodes to score has labels")
    return float(accuracy_score(true[used], predicted[used], sample_weight=None if weight is None else weight[used]))
