"""Layers: aggregation, the kernel machine layer, the readout, and the deep model made of them."""

from torch_gckm.nn.aggregation import Aggregation
from torch_gckm.nn.gckm import GCKM
from torch_gckm.nn.gckm_conv import GCKMConv
from torch_gckm.nn.semi_sup_rkm import SemiSupRKMReadout

__all__ = ["Aggregation", "GCKM", "GCKMConv", "SemiSupRKMReadout"]
