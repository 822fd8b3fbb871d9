"""The graphs of the paper, through PyG's own dataset classes."""

from torch_gckm.datasets.load import DATASETS, data_root, load

__all__ = ["DATASETS", "data_root", "load"]
