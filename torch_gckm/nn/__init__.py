"""Layers: the kernel machine layer, several of them, the readout, and the deep model made of them."""

from torch_gckm.graph import Propagation
from torch_gckm.nn.gckm import GCKM
from torch_gckm.nn.gckm_conv import GCKMConv
from torch_gckm.nn.inductive import InductiveGCKM
from torch_gckm.nn.kernel_layers import KernelLayers
from torch_gckm.nn.semi_sup_rkm import SemiSupRKMReadout
from torch_gckm.nn.settings import LayerSettings, ModelSettings, PropagationSettings, ReadoutSettings

__all__ = [
    "GCKM", "GCKMConv", "InductiveGCKM", "KernelLayers", "LayerSettings", "ModelSettings", "Propagation",
    "PropagationSettings", "ReadoutSettings", "SemiSupRKMReadout"
]  # fmt: skip
