"""Labelling of nodes by hand: what to ask for next, what the answers say, and a local page (extra ``app``)."""

from torch_gckm.label.label_file import LabelFile
from torch_gckm.label.session import LabellingSession

__all__ = ["LabelFile", "LabellingSession"]
