"""Ensembles from the contents of their files."""

from typing import Any

import torch

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike
from torch_gckm.nn import InductiveGCKM
from torch_gckm.nn.settings import FORMAT as MODEL_FORMAT
from torch_gckm.nn.settings import model_from_content
from torch_gckm.readout import is_values
from torch_gckm.select.ensemble import GCKMEnsemble
from torch_gckm.select.inductive_ensemble import FORMAT, Calibration, InductiveEnsemble
from torch_gckm.select.value_ensemble import values_from


def ensemble_from(content: dict[str, Any], path: PathLike) -> GCKMEnsemble | InductiveEnsemble:
    """An ensemble from the content of its file.

    A single model's file is read as that of an ensemble of one, a classifier's as that of its ensemble.
    """
    content = content.get("ensemble", content)
    if content.get("format") == MODEL_FORMAT:
        content = {"format": FORMAT, "members": [content], "spread": torch.ones(1), "temperature": torch.ones(())}
        content["offset"] = torch.zeros(0)
    if content.get("format") != FORMAT:
        raise InvalidInputError(f"'{path}' is not an ensemble file of this version of torch_gckm")
    members: list[Any] = [model_from_content(member) for member in content["members"]]
    numbers = content["spread"].tolist(), float(content["temperature"]), content["offset"].tolist()
    calibration = Calibration(*numbers)
    if is_values(members[0].settings.readout.code):
        return values_from(members, content)
    if isinstance(members[0], InductiveGCKM):
        return InductiveEnsemble(members, calibration)
    return GCKMEnsemble(members, calibration, content.get("labelled"))
