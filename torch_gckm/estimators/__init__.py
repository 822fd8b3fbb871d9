"""Estimators with scikit-learn manners (extra ``sklearn``)."""

from torch_gckm.estimators.classifier import GCKMClassifier

__all__ = ["GCKMClassifier"]
