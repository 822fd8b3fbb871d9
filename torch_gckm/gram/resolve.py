"""From names and saved configurations to Gram representations."""

from collections.abc import Callable
from typing import Any, Union

from torch_gckm.errors import InvalidInputError
from torch_gckm.gram.auto import Auto
from torch_gckm.gram.dense import Dense
from torch_gckm.gram.gram import GramFactory
from torch_gckm.gram.low_rank import LowRank

GramLike = Union[str, GramFactory]

_BY_NAME: dict[str, type[GramFactory]] = {"auto": Auto, "dense": Dense, "low_rank": LowRank}
_BY_KIND: dict[str, Callable[..., GramFactory]] = {"Auto": Auto.from_arguments, "Dense": Dense, "LowRank": LowRank}


def as_gram(gram: GramLike) -> GramFactory:
    """A representation from its name (``"auto"``, ``"dense"``, ``"low_rank"``), or itself."""
    if isinstance(gram, GramFactory):
        return gram
    if gram not in _BY_NAME:
        raise InvalidInputError(f"unknown gram {gram!r}; choose from {', '.join(sorted(_BY_NAME))}, or pass Dense()")
    return _BY_NAME[gram]()


def gram_from_config(config: dict[str, Any]) -> GramFactory:
    """Rebuild a representation from :meth:`GramFactory.config`."""
    return _BY_KIND[config["kind"]](**config["arguments"])
