"""Where the state of a fit is kept, for a fit that goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torch_gckm.checkpoints import ShardedState, load_sharded, save_sharded
from torch_gckm.errors import GraphMismatchError, InvalidInputError
from torch_gckm.files import PathLike, load_tensors, save_tensors
from torch_gckm.graph import PreparedGraph
from torch_gckm.nn import GCKM
from torch_gckm.nn.extension import VIEW
from torch_gckm.nn.inductive import layer_rows, readout_rows
from torch_gckm.nn.settings import differences
from torch_gckm.optim import CayleyAdam
from torch_gckm.train.history import FITTED, History, Snapshot, parts_of
from torch_gckm.train.labelling import Labelling

FORMAT = "training 2"
_TENSOR = "tensor of this name"


class Checkpoint:
    """The state of a fit: a file, or over several processes a folder, where each has written its own rows.

    A folder may be read by any number of processes, also by one. It does without the features that fits read: these
    are computed again from the graph and the embeddings.

    Args:
        path: The file or folder.
        model: The model that is fitted.
        graph: The graph.
        labels: Its labels.
        settings: What the fit that goes on must agree on with the one that wrote the checkpoint.
    """

    def __init__(
        self, path: PathLike, model: GCKM, graph: PreparedGraph, labels: Labelling, settings: dict[str, Any]
    ) -> None:
        self.path, self.model, self.graph, self.over = Path(path), model, graph, graph.partition
        self.is_folder = not self.over.is_whole or self.path.is_dir()
        self.made_with = {"settings": settings, "graph": list(graph.identity), "labels": labels.identity}

    def save_layers(self, number: int) -> None:
        """Write the state in the initialisation, when so many layers are fitted."""
        prefixes = tuple(f"convs.{fitted}." for fitted in range(number))
        state = {name: tensor for name, tensor in self.model.state_dict().items() if name.startswith(prefixes)}
        self._write({"layers": number, "model": state})

    def save(self, history: History, best: Snapshot, optimizer: CayleyAdam) -> None:
        """Write the state after a step."""
        content = {
            "history": history.to_dict(),
            "model": self.model.state_dict(),
            "best": best.to_state(),
            "optimizer": {"state": optimizer.state_dict()["state"]},
        }
        self._write(content, {f"optimizer/state/{number}/{name}" for number, name in optimizer.state_over_rows()})

    def load(self) -> dict[str, Any] | None:
        """What was written last, if anything was; the model is brought to its state."""
        content = self._read()
        if content is None:
            return None
        if content.get("format") != FORMAT:
            raise InvalidInputError(f"'{self.path}' is not a checkpoint of a Trainer of this version")
        made, hint = f"the checkpoint '{self.path}' was made", "resume with the same ones or choose another place"
        for name, known, value in differences(content["settings"], self.made_with["settings"]):
            raise InvalidInputError(f"{made} with {name}={known!r}, not {value!r}; {hint}")
        if content["graph"] != self.made_with["graph"]:
            raise GraphMismatchError(f"{made} on another graph")
        if content["labels"] != self.made_with["labels"]:
            raise InvalidInputError(f"{made} with other labels, other masks or another split; {hint}")
        if self.is_folder:
            for state in (content[name] for name in ("model", "best") if name in content):
                self._add_features(state)
        self.model.load_state_dict(content["model"], strict="layers" not in content)
        for part in parts_of(self.model).values():
            if part.fitted is not None:
                part.fitted.partition = self.over
        return content

    def _write(self, content: dict[str, Any], over_nodes: Collection[str] = ()) -> None:
        content = {"format": FORMAT, **self.made_with, **content}
        if not self.is_folder:
            save_tensors(content, self.path)
            return
        parts = parts_of(self.model)
        own = {f"{name}.{tensor}" for name, part in parts.items() for tensor in part.names_over_nodes()}
        features = tuple(f"{name}{FITTED}{VIEW}" for name in parts)
        for kind in ("model", "best"):
            if kind in content:
                kept = {name: tensor for name, tensor in content[kind].items() if not name.startswith(features)}
                content[kind] = kept
        state = ShardedState()
        names = {*over_nodes, *(f"{kind}/{name}" for kind in ("model", "best") for name in own)}
        state.plain.update(_split(content, names, state))
        save_sharded(self.path, state, self.over)

    def _read(self) -> dict[str, Any] | None:
        if not self.is_folder:
            return load_tensors(self.path) if self.path.exists() else None
        state = load_sharded(self.path, self.over)
        return None if state is None else _joined(state.plain, state.replicated | state.sharded)

    @torch.no_grad()
    def _add_features(self, state: dict[str, Tensor]) -> None:
        """The features that the fits of a state read, as they were."""
        h = None
        for number, conv in enumerate(self.model.layers):
            name = f"convs.{number}"
            if f"{name}.h" not in state:
                return
            rows = layer_rows(conv.kernel, conv.aggregation, self.graph, h)
            _add_views(state, name, rows.tensors(conv.kernel.views))
            h = (state[f"{name}.h"] * state[f"{name}{FITTED}scale"]).to(self.graph.x.device)
        if "readout.h" in state:
            readout = self.model.readout
            rows = readout_rows(readout.kernel, self.model.propagation, self.graph, h)
            _add_views(state, "readout", rows.tensors(readout.kernel.views))


def _add_views(state: dict[str, Tensor], name: str, views: Mapping[str, Tensor]) -> None:
    state.update({f"{name}{FITTED}{VIEW}{view}": tensor.detach() for view, tensor in views.items()})


def _split(value: Any, over_nodes: Collection[str], state: ShardedState, name: str = "") -> Any:
    """Plain values as JSON knows them, with the names of tensors, which go to the state."""
    if isinstance(value, Tensor):
        (state.sharded if name in over_nodes else state.replicated)[name] = value
        return {_TENSOR: name}
    prefix = f"{name}/" if name else ""
    if isinstance(value, Mapping):
        return {str(key): _split(inner, over_nodes, state, f"{prefix}{key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_split(inner, over_nodes, state, f"{prefix}{place}") for place, inner in enumerate(value)]
    return value


def _joined(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The reverse of :func:`_split`, except for tuples and numbers as keys."""
    if isinstance(value, list):
        return [_joined(inner, tensors) for inner in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {_TENSOR}:
        return tensors[value[_TENSOR]]
    return {key: _joined(inner, tensors) for key, inner in value.items()}
