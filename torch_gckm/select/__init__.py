"""Choose settings and combine the best, without validation labels."""

from torch_gckm.select.ensemble import GCKMEnsemble
from torch_gckm.select.inductive_ensemble import InductiveEnsemble
from torch_gckm.select.result import SearchResult
from torch_gckm.select.search import search
from torch_gckm.select.space import Space
from torch_gckm.select.value_ensemble import InductiveValueEnsemble, ValueEnsemble

__all__ = [
    "GCKMEnsemble", "InductiveEnsemble", "InductiveValueEnsemble", "SearchResult", "Space", "ValueEnsemble", "search"
]  # fmt: skip
