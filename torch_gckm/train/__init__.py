"""Training: the trainer, its metrics and its history."""

from torch_gckm.train.history import History, Record
from torch_gckm.train.metrics import accuracy, balanced_accuracy, combined_score, cosine_score, roc_auc
from torch_gckm.train.trainer import Trainer

__all__ = [
    "History", "Record", "Trainer", "accuracy", "balanced_accuracy", "combined_score", "cosine_score", "roc_auc"
]  # fmt: skip
