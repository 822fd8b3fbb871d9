"""Estimators with the interface of scikit-learn (extra ``sklearn``)."""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("estimators need scikit-learn; install it with: pip install 'torch_gckm[sklearn]'") from error

from torch_gckm.estimators.classifier import GCKMClassifier
from torch_gckm.estimators.clustering import GCKMClustering
from torch_gckm.estimators.embedding import GCKMEmbedding
from torch_gckm.estimators.regressor import GCKMRegressor
from torch_gckm.estimators.several import label_metrics

__all__ = ["GCKMClassifier", "GCKMClustering", "GCKMEmbedding", "GCKMRegressor", "label_metrics"]
