"""Label propagation, and smoothing of a perceptron's predictions, as PyG has them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import CorrectAndSmooth, LabelPropagation

LAYERS = 50
ALPHAS = (0.5, 0.8, 0.9, 0.95, 0.99)


def propagate_labels(data: Data, train: Tensor, alpha: float) -> Tensor:
    """Predicted classes by PyG's ``LabelPropagation``."""
    classes = int(data.y.max()) + 1
    known = torch.where(train, data.y, 0)  # Others are masked; their labels are out of sight for good measure.
    scores = LabelPropagation(LAYERS, alpha)(_one_hot(known, classes), data.edge_index, train, data.edge_weight)
    return scores.argmax(dim=1)


def correct_and_smooth(data: Data, train: Tensor, probabilities: Tensor, alpha: float) -> Tensor:
    """Predicted classes by PyG's ``CorrectAndSmooth`` of a perceptron's probabilities."""
    method = CorrectAndSmooth(LAYERS, alpha, LAYERS, alpha, autoscale=True)
    known = data.y[train]
    corrected = method.correct(probabilities, known, train, data.edge_index, data.edge_weight)
    return method.smooth(corrected, known, train, data.edge_index, data.edge_weight).argmax(dim=1)


def _one_hot(y: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(y, classes).float()
