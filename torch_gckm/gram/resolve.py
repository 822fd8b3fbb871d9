"""From names and saved configurations to Gram representations."""

from __future__ import annotations

from typing import Any, Union

from torch_gckm.errors import InvalidInputError
from torch_gckm.gram.dense import Dense
from torch_gckm.gram.gram import GramFactory

GramLike = Union[str, GramFactory]

_BY_NAME: dict[str, type[Dense]] = {"auto": Dense, "dense": Dense}
_BY_KIND: dict[str, type[Dense]] = {"Dense": Dense}


def as_gram(gram: GramLike) -> GramFactory:
    """A representation from its name (``"auto"``, ``"dense"``), or itself."""
    if isinstance(gram, GramFactory):
        return gram
    if gram not in _BY_NAME:
        raise InvalidInputError(f"unknown gram {gram!r}; choose from {', '.join(sorted(_BY_NAME))}, or pass Dense()")
    return _BY_NAME[gram]()


def gram_from_config(config: dict[str, Any]) -> GramFactory:
    """Rebuild a representation from :meth:`GramFactory.config`."""
    return _BY_KIND[config["kind"]](**config["arguments"])
