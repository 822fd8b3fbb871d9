"""Deep graph convolutional kernel machines for PyTorch Geometric."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch_gckm._version import __version__

if TYPE_CHECKING:
    from torch_gckm.estimators import GCKMClassifier, GCKMClustering, GCKMEmbedding, GCKMRegressor
    from torch_gckm.nn import GCKM, GCKMConv, SemiSupRKMReadout
    from torch_gckm.optim import CayleyAdam
    from torch_gckm.train import History, Trainer

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
_OWNERS = {
    "estimators": ("GCKMClassifier", "GCKMClustering", "GCKMEmbedding", "GCKMRegressor"),
    "nn": ("GCKM", "GCKMConv", "SemiSupRKMReadout"),
    "optim": ("CayleyAdam",),
    "train": ("History", "Trainer"),
}
_PACKAGES = (
    "datasets",
    "errors",
    "estimators",
    "gram",
    "graph",
    "kernels",
    "nn",
    "optim",
    "readout",
    "select",
    "train",
)


def __getattr__(name: str) -> Any:
    # Imported when first asked for: torch takes seconds, and estimators need scikit-learn, an extra.
    if name in _PACKAGES:
        return import_module(f"torch_gckm.{name}")
    for package, names in _OWNERS.items():
        if name in names:
            return getattr(import_module(f"torch_gckm.{package}"), name)
    raise AttributeError(f"module 'torch_gckm' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
