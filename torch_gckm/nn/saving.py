"""Models as plain values and tensors, so that loading executes no code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

import torch

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike, load_tensors, save_tensors
from torch_gckm.graph import KINDS
from torch_gckm.kernels import kernel_from_config
from torch_gckm.nn.settings import ModelSettings

if TYPE_CHECKING:
    from torch_gckm.nn.gckm import GCKM
    from torch_gckm.nn.inductive import InductiveGCKM

    Model = Union[GCKM, InductiveGCKM]

FORMAT = "model 3"


def save_model(model: Model, path: PathLike) -> None:
    """Write a model to one file."""
    save_tensors({"format": FORMAT, **model_content(model)}, path)


def load_model(path: PathLike) -> Model:
    """Read a model that :func:`save_model` wrote."""
    content = load_tensors(path)
    if str(content.get("format")).startswith("ensemble"):
        raise InvalidInputError(f"'{path}' holds an ensemble; read it with torch_gckm.select.GCKMEnsemble.load")
    if content.get("format") != FORMAT:
        raise InvalidInputError(f"'{path}' is not a model file of this version of torch_gckm")
    return model_from_content(content)


def model_content(model: Model) -> dict[str, Any]:
    """A model as settings and tensors; refuses what could not be loaded again."""
    settings = model.settings
    for layer in settings.layers:
        if layer.aggregation not in KINDS:
            raise InvalidInputError(
                f"a model with its own aggregation module cannot be saved whole: {layer.aggregation}; "
                "save model.state_dict() instead"
            )
    for kernel in (*(layer.kernel for layer in settings.layers), settings.readout.kernel):
        kernel_from_config(kernel)
    return {
        "inductive": not hasattr(model, "data_id"),
        "in_channels": model.in_channels,
        "out_channels": model.out_channels,
        "settings": settings.to_dict(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "state": model.state_dict(),
    }


def model_from_content(content: dict[str, Any]) -> Model:
    """A model from what :func:`model_content` returned."""
    from torch_gckm.nn.gckm import GCKM
    from torch_gckm.nn.inductive import InductiveGCKM

    kind = InductiveGCKM if content["inductive"] else GCKM
    settings = ModelSettings.from_dict(content["settings"])
    model: Model = kind.from_settings(settings, content["in_channels"], content["out_channels"])
    model.to(getattr(torch, content["dtype"]))
    model.load_state_dict(content["state"])
    return model
