"""Deep graph convolutional kernel machines for PyTorch Geometric."""

from torch_gckm._version import __version__
from torch_gckm.nn import GCKM, GCKMConv, SemiSupRKMReadout
from torch_gckm.optim import CayleyAdam
from torch_gckm.train import History, Trainer

__all__ = ["GCKM", "CayleyAdam", "GCKMConv", "History", "SemiSupRKMReadout", "Trainer", "__version__"]
