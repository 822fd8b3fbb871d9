"""A model as plain values and tensors, so that loading executes no code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike, load_tensors, save_tensors
from torch_gckm.gram import gram_from_config
from torch_gckm.kernels import kernel_from_config
from torch_gckm.nn.aggregation import Aggregation
from torch_gckm.nn.extension import Extension
from torch_gckm.nn.fitted import FittedModule

if TYPE_CHECKING:
    from torch_gckm.nn.gckm import GCKM

FORMAT = 2


def save_model(model: GCKM, path: PathLike, inductive: bool) -> None:
    """Write a model to one file, whole or for new nodes only."""
    state = inductive_state(model) if inductive else model.state_dict()
    save_tensors({"format": FORMAT, "inductive": inductive, "config": model_config(model), "state": state}, path)


def read_model(path: PathLike) -> dict[str, Any]:
    """The content of a model's file, refused if it is another kind of file."""
    content = load_tensors(path)
    if str(content.get("format")).startswith("ensemble"):
        raise InvalidInputError(f"'{path}' holds an ensemble; read it with torch_gckm.select.GCKMEnsemble.load")
    if content.get("format") != FORMAT:
        raise InvalidInputError(f"'{path}' is not a model file of this version of torch_gckm")
    return content


def model_config(model: GCKM) -> dict[str, Any]:
    """The constructor's arguments of a model as numbers, strings, lists and tensors."""
    aggregations: list[Aggregation] = []
    for conv in model.layers:
        if not isinstance(conv.aggregation, Aggregation):
            raise InvalidInputError(
                f"a model with its own aggregation module cannot be saved whole: {conv.aggregation!r}; "
                "save model.state_dict() instead"
            )
        aggregations.append(conv.aggregation)
    readout = model.readout
    kernels = [*(conv.kernel.config() for conv in model.layers), readout.kernel.config()]
    for kernel in kernels:
        kernel_from_config(kernel)  # Refuses kernels that could not be loaded again.
    return {
        "in_channels": model.in_channels,
        "hidden_channels": list(model.hidden_channels),
        "out_channels": model.out_channels,
        "kernel": kernels,
        "aggregation": [a.kind for a in aggregations],
        "hops": [a.hops for a in aggregations],
        "eta": [*(conv.eta for conv in model.layers), readout.eta],
        "lambda1": readout.lambda1,
        "lambda2": readout.lambda2,
        "normalize": model.normalize,
        "loss_weights": list(model.loss_weights),
        "gram": [*(conv.gram.config() for conv in model.layers), readout.gram.config()],
        "direction": [a.direction for a in aggregations],
        "code": model.code,
        "class_weight": readout.class_weight,
    }


def arguments_from_config(config: dict[str, Any]) -> dict[str, Any]:
    """What to call the constructor with."""
    return {
        **config,
        "kernel": [kernel_from_config(kernel) for kernel in config["kernel"]],
        "gram": [gram_from_config(gram) for gram in config["gram"]],
    }


def inductive_state(model: GCKM) -> dict[str, Any]:
    """What a model needs for nodes it has not seen: kernels, and each layer's extension."""
    return {
        "dtype": str(model.readout.h.dtype).removeprefix("torch."),
        "inputs": model.inputs.state_dict(),
        "parts": [
            {"kernel": part.kernel.state_dict(), "extension": part.extension.state_dict()} for part in _parts(model)
        ],
    }


def load_inductive_state(model: GCKM, state: dict[str, Any]) -> None:
    """Make an unfitted model one for new nodes only."""
    model.to(getattr(torch, state["dtype"]))
    model.inputs.load_state_dict(state["inputs"])
    for part, content in zip(_parts(model), state["parts"], strict=True):
        part.kernel.load_state_dict(content["kernel"])
        part.fixed = Extension()
        part.fixed.load_state_dict(content["extension"])
    for above, below in zip(_parts(model)[1:], model.layers, strict=True):
        assert below.fixed is not None
        above.in_channels = below.fixed.weights.size(1)


def _parts(model: GCKM) -> list[FittedModule]:
    return [*model.layers, model.readout]
