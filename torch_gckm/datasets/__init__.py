"""Graphs through PyG's own dataset classes, and splits."""

from torch_gckm.datasets.load import DATASETS, data_root, load
from torch_gckm.datasets.splits import FewLabelSplit, FixedSplit, PercentageSplit, PerClassSplit

__all__ = ["DATASETS", "FewLabelSplit", "FixedSplit", "PerClassSplit", "PercentageSplit", "data_root", "load"]
