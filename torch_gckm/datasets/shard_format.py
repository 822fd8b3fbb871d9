"""What a folder of memory-mapped arrays contains, and whether it does."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from torch_gckm.datasets.npy import NpyFile
from torch_gckm.errors import InvalidInputError

FORMAT, VERSION = "torch_gckm shards", 1
META = "meta.json"
MASKS = ("train_mask", "val_mask", "test_mask")
IN_FILES = ("edge_indptr", "edge_sources", "edge_weights")
OUT_FILES = ("out_indptr", "out_targets", "out_weights")
_NAMES = ("names_indptr", "names_text")
_ANY, _WHOLE, _REAL = "biuf", "iu", "f"
# The number of rows (a fact, or none if it follows from nothing), the kinds of numbers, the most dimensions.
_ARRAYS: dict[str, tuple[str | None, str, int]] = {
    "x": ("num_nodes", _ANY, 2),
    "x_indptr": ("boundaries", _WHOLE, 1),
    "x_indices": (None, _WHOLE, 1),
    "x_data": (None, _ANY, 1),
    "edge_indptr": ("boundaries", _WHOLE, 1),
    "edge_sources": ("num_edges", _WHOLE, 1),
    "edge_weights": ("num_edges", _REAL, 1),
    "out_indptr": ("boundaries", _WHOLE, 1),
    "out_targets": ("num_edges", _WHOLE, 1),
    "out_weights": ("num_edges", _REAL, 1),
    "y": ("num_nodes", _ANY, 2),
    **dict.fromkeys(MASKS, ("num_nodes", "bf", 2)),
    "order": ("num_nodes", _WHOLE, 1),
    "boundaries": (None, _WHOLE, 1),
    "names_indptr": ("boundaries", _WHOLE, 1),
    "names_text": (None, _WHOLE, 1),
}
FILES = {META, *(f"{name}.npy" for name in _ARRAYS)}


@dataclass(frozen=True)
class ShardMeta:
    """The facts about a graph in a folder, as ``meta.json`` holds them.

    Args:
        num_nodes: The number of nodes.
        num_features: The number of features of a node.
        num_edges: The number of edges, each direction counted.
        dtype: The type of the features, as NumPy calls it.
        is_sparse: Whether features are stored in CSR form.
        is_directed: Whether edges are also stored by their sources.
        is_weighted: Whether edges have weights.
        masks: The masks that there are.
        num_classes: The number of classes, if labels are classes.
        class_names: What the classes are called.
        feature_names: What the features are called.
        arrays: The type and shape of the array in every file.
    """

    num_nodes: int
    num_features: int
    num_edges: int
    dtype: str
    is_sparse: bool
    is_directed: bool
    is_weighted: bool
    masks: list[str]
    num_classes: int | None
    class_names: list[str] | None
    feature_names: list[str] | None
    arrays: dict[str, list[Any]]

    def write(self, folder: Path) -> None:
        """Write ``meta.json``."""
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        (folder / META).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check ``meta.json``."""
        path = folder / META
        content = read_json(path)
        if content.get("format") != FORMAT:
            raise InvalidInputError(f"'{path}' does not describe a graph that write_shards wrote")
        if content.get("version") != VERSION:
            known = f"this version of torch_gckm reads version {VERSION}"
            raise InvalidInputError(f"'{path}' is of version {content.get('version')!r} of the format; {known}")
        facts: dict[str, Any] = {name: content.get(name) for name in cls.__annotations__}
        wrong = next((name for name, value in facts.items() if not _is_valid(name, value)), None)
        if wrong is not None:
            raise InvalidInputError(f"'{path}' is damaged: '{wrong}' is {str(facts[wrong])[:50]!r}")
        return cls(**facts)

    def open_arrays(self, folder: Path) -> dict[str, NpyFile]:
        """Read the headers of all files, and check them."""
        arrays = {name: NpyFile.open(folder / f"{name}.npy") for name in self.arrays if name in _ARRAYS}
        for name in [*self._required(), *self.arrays]:
            path = folder / f"{name}.npy"
            if name not in arrays:
                raise InvalidInputError(f"'{folder / META}' is damaged: it does not go with '{path.name}'")
            self._check(name, arrays[name])
        return arrays

    def _required(self) -> list[str]:
        features = ["x_indptr", "x_indices", "x_data"] if self.is_sparse else ["x"]
        edges = [*IN_FILES, *(OUT_FILES if self.is_directed else ())]
        kept = [name for name in edges if self.is_weighted or not name.endswith("weights")]
        return [*features, *kept, *self.masks, *(_NAMES if "names_text" in self.arrays else ())]

    def _check(self, name: str, found: NpyFile) -> None:
        fact, kinds, most = _ARRAYS[name]
        given = [found.dtype.str, list(found.shape)]
        rows = {"num_nodes": self.num_nodes, "boundaries": self.num_nodes + 1, "num_edges": self.num_edges}
        is_right = given == self.arrays[name] and found.dtype.kind in kinds and len(found.shape) <= most
        is_right &= fact is None or found.shape[0] == rows[fact]
        if name == "x":
            is_right &= found.shape == (self.num_nodes, self.num_features)
        if name in ("x", "x_data"):
            is_right &= found.dtype.name == self.dtype
        if not is_right:
            described = f"{found.dtype} {found.shape}"
            raise InvalidInputError(f"'{found.path}' holds {described}, which does not go with {META}; write it again")


def read_json(path: Path) -> Mapping[str, Any]:
    """The dictionary in a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInputError(f"'{path}' is missing: this is not a folder that write_shards wrote") from None
    except (ValueError, RecursionError, NotADirectoryError) as error:
        raise InvalidInputError(f"'{path}' is damaged, or not a file of torch_gckm") from error
    return content if isinstance(content, dict) else {}


def check_replaceable(folder: Path, overwrite: bool) -> None:
    """Raise unless a folder does not exist, or holds nothing but a graph of this format and may be overwritten."""
    if not os.path.lexists(folder):
        return
    if not overwrite:
        raise InvalidInputError(f"'{folder}' exists; name another folder, or allow to overwrite it")
    if not folder.is_dir():
        raise InvalidInputError(f"'{folder}' is not a folder")
    names = set(os.listdir(folder))
    if names and (not names <= FILES or read_json(folder / META).get("format") != FORMAT):
        raise InvalidInputError(f"'{folder}' holds other files, too, and is not overwritten; name another folder")


def _is_valid(name: str, value: Any) -> bool:
    """Whether a fact in ``meta.json`` is of the right type."""
    if name in ("class_names", "feature_names") or name == "masks":
        is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return (is_list and (name != "masks" or set(value) <= set(MASKS))) or (value is None and name != "masks")
    if name.startswith("is_"):
        return isinstance(value, bool)
    if name == "dtype":
        return isinstance(value, str)
    if name == "arrays":
        return isinstance(value, dict)
    if value is None:
        return name == "num_classes"
    return isinstance(value, int) and not isinstance(value, bool) and value >= (1 if name == "num_nodes" else 0)
