"""Class codes: how a class is written as a vector of plus and minus ones."""

import math
from typing import Union

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError

CodeLike = Union[str, Tensor]


def class_codes(code: CodeLike, num_classes: int) -> Tensor:
    """The code of every class, ``[num_classes, p]``.

    ``"one_vs_all"`` has one column per class, ``"binary"`` is the class number in binary, with as few columns as
    possible; any other is given as a matrix of plus and minus ones with distinct rows.
    """
    if isinstance(code, Tensor):
        codes = code.to(torch.get_default_dtype())
        if codes.dim() != 2 or codes.size(0) != num_classes:
            raise InvalidInputError(f"class codes must have shape [{num_classes}, p], got {tuple(code.shape)}")
        if not bool((codes.abs() == 1).all()) or torch.unique(codes, dim=0).size(0) != num_classes:
            raise InvalidInputError("class codes must consist of +1 and -1, with a different row for every class")
        return codes
    if code == "one_vs_all":
        return 2.0 * torch.eye(num_classes) - 1.0
    if code == "binary":
        bits = max(1, math.ceil(math.log2(num_classes)))
        numbers = torch.arange(num_classes).unsqueeze(1)
        return 2.0 * ((numbers >> torch.arange(bits)) & 1) - 1.0
    raise InvalidInputError(f"unknown class code {code!r}; choose 'one_vs_all', 'binary' or pass a matrix")


def class_similarity(scores: Tensor, codes: Tensor) -> Tensor:
    """A score for every class, ``[n, num_classes]``; the predicted class has the highest.

    For one-vs-all codes these are the scores themselves. For all others, the number of agreeing signs counts
    (Hamming decoding), and the correlation with the code breaks ties.
    """
    codes = codes.to(scores)
    if is_one_vs_all(codes):
        return scores
    agreement = torch.where(scores >= 0, 1.0, -1.0).to(scores.dtype) @ codes.t()
    correlation = scores @ codes.t()
    # Agreements differ by 2 at least; squashing keeps the correlation from outvoting a sign.
    return agreement + 0.999 * torch.tanh(correlation)


def decode(scores: Tensor, codes: Tensor) -> Tensor:
    """The class whose code is closest, ``[n]``."""
    return class_similarity(scores, codes).argmax(dim=1)


def is_one_vs_all(codes: Tensor) -> bool:
    """Whether every class has a column of its own, in order."""
    return codes.size(0) == codes.size(1) and torch.equal(codes > 0, torch.eye(codes.size(0)).to(codes) > 0)
