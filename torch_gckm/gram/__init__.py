"""Kernel matrices as operators: the only place where an n x n array may exist."""

from torch_gckm.gram.dense import Dense, DenseGram
from torch_gckm.gram.gram import Gram, GramFactory, Panel, describe_matrix
from torch_gckm.gram.landmark_gram import CentredLowRankGram, LandmarkGram, LowRankGram
from torch_gckm.gram.low_rank import Auto, GramLike, LowRank, as_gram, gram_from_config

__all__ = [
    "Auto", "CentredLowRankGram", "Dense", "DenseGram", "Gram", "GramFactory", "GramLike", "LandmarkGram",
    "LowRank", "LowRankGram", "Panel", "as_gram", "describe_matrix", "gram_from_config"
]  # fmt: skip
