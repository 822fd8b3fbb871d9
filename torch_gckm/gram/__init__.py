"""Kernel matrices as operators: the only place where an n x n array may exist."""

from torch_gckm.gram.auto import Auto
from torch_gckm.gram.dense import Dense, DenseGram
from torch_gckm.gram.gram import Gram, GramFactory, ReadoutProblem, ReadoutSolution
from torch_gckm.gram.low_rank import LowRank, LowRankGram
from torch_gckm.gram.resolve import GramLike, as_gram, gram_from_config

__all__ = [
    "Auto",
    "Dense",
    "DenseGram",
    "Gram",
    "GramFactory",
    "GramLike",
    "LowRank",
    "LowRankGram",
    "ReadoutProblem",
    "ReadoutSolution",
    "as_gram",
    "gram_from_config",
]
