"""Deep graph convolutional kernel machines for PyTorch Geometric."""

from typing import TYPE_CHECKING, Any

from torch_gckm._version import __version__
from torch_gckm.nn import GCKM, GCKMConv, SemiSupRKMReadout
from torch_gckm.optim import CayleyAdam
from torch_gckm.train import History, Trainer

if TYPE_CHECKING:
    from torch_gckm.estimators import GCKMClassifier, GCKMClustering, GCKMEmbedding, GCKMRegressor

__all__ = [
    "GCKM",
    "CayleyAdam",
    "GCKMClassifier",
    "GCKMClustering",
    "GCKMConv",
    "GCKMEmbedding",
    "GCKMRegressor",
    "History",
    "SemiSupRKMReadout",
    "Trainer",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # Estimators need scikit-learn, an extra: imported when first asked for.
    if name in ("GCKMClassifier", "GCKMClustering", "GCKMEmbedding", "GCKMRegressor"):
        from torch_gckm import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'torch_gckm' has no attribute '{name}'")
