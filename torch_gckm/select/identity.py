"""Whether two searches are the same one."""

from typing import Any

from torch_gckm.errors import GraphMismatchError
from torch_gckm.gram import GramLike, as_gram
from torch_gckm.select.space import Space
from torch_gckm.select.trial import Evaluator


def search_identity(evaluator: Evaluator, space: Space, gram: GramLike) -> dict[str, Any]:
    """What a search must have in common with an earlier one to go on with it, as plain values."""
    return {
        "space": space.to_dict(),
        "gram": as_gram(gram).config(),
        "graph": list(evaluator.fits.graphs.plain.identity),
        "num_classes": evaluator.fits.num_classes,
        "labels": evaluator.labels.identity,
    }


def check_identity(known: dict[str, Any], identity: dict[str, Any], where: str) -> None:
    """Refuse to go on with another search."""
    different = [name for name, value in identity.items() if known.get(name) != value]
    if different:
        raise GraphMismatchError(f"{where} belongs to another search: other {', '.join(different)}")
