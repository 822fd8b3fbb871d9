"""Tensors whose rows are spread over processes, written and read as safetensors by ``torch.distributed.checkpoint``.

DTensors describe equal parts of the rows only; others would be written to wrong places. The planners here say what is
written where, for any contiguous ranges of rows. The library pickles what is no tensor, so only tensors get here.
"""

import importlib.util
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from torch_gckm.errors import InvalidInputError

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
                  torch.float16, torch.bfloat16, torch.float32, torch.float64)
}  # fmt: skip


def check_storage() -> None:
    """Raise unless torch can write parts of tensors as safetensors."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < (2, 9) or importlib.util.find_spec("safetensors") is None:
        raise ImportError("sharded checkpoints need torch 2.9 and safetensors: pip install 'torch_gckm[distributed]'")


def write_tensors(
    folder: Path,
    replicated: dict[str, Tensor],
    sharded: dict[str, Tensor],
    *,
    rank: int,
    offsets: tuple[int, ...],
    group: dist.ProcessGroup | None,
) -> dict[str, tuple[int, int] | None]:
    """Write one file of replicated tensors, and one per process and sharded tensor; every process calls this.

    Tensors without elements are not written.

    Returns:
        The files that this process wrote, with the range of rows in them, ``None`` in that of replicated tensors.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    start, stop = offsets[rank], offsets[rank + 1]
    # Copies, since a file of safetensors cannot hold two tensors that share memory.
    own = {name: tensor.clone() for name, tensor in replicated.items() if rank == 0 and tensor.numel() > 0}
    rows = {name: tensor for name, tensor in sharded.items() if tensor.numel() > 0}
    numbers = dict.fromkeys(replicated, 1) | {name: number for number, name in enumerate(sharded, 2)}
    places = dict.fromkeys(own, 0) | dict.fromkeys(rows, start)
    totals = {name: own[name].shape for name in own} | {
        name: torch.Size([offsets[-1], *tensor.shape[1:]]) for name, tensor in rows.items()
    }
    writer = HuggingFaceStorageWriter(str(folder), fqn_to_index_mapping=numbers, save_distributed=True)
    with _quiet(), _own_errors(folder):
        save({**own, **rows}, storage_writer=writer, planner=_RowsToWrite(places, totals),
                 process_group=group, no_dist=len(offsets) == 2)  # fmt: skip
    found: dict[str, tuple[int, int] | None] = {}
    for number in sorted({numbers[name] for name in (*own, *rows)}):
        pattern = f"shard-{rank + 1:05d}-model-{number:05d}-of-*.safetensors"
        (file,) = folder.glob(pattern)
        found[file.name] = None if number == 1 else (start, stop)
    return found


def read_tensors(folder: Path, targets: dict[str, Tensor], starts: dict[str, int]) -> None:
    """Fill tensors with the rows of stored ones from ``starts`` on; no others are read. Processes do this alone."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    wanted = {name: tensor for name, tensor in targets.items() if tensor.numel() > 0}
    if wanted:
        reader = HuggingFaceStorageReader(str(folder))
        with _quiet(), _own_errors(folder):
            load(dict(wanted), storage_reader=reader, planner=_RowsToRead(starts), no_dist=True)


class _RowsToWrite(DefaultSavePlanner):
    """Writes tensors as parts that begin at ``places`` of tensors with shapes ``totals``."""

    def __init__(self, places: dict[str, int], totals: dict[str, torch.Size]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.places, self.totals = places, totals

    def create_local_plan(self) -> SavePlan:
        self.plan = SavePlan([self._item(name, tensor) for name, tensor in self.state_dict.items()])
        return self.plan

    def _item(self, name: str, tensor: Tensor) -> WriteItem:
        chunk = _part(tensor, self.places[name])
        data = TensorWriteData(chunk, TensorProperties(dtype=tensor.dtype), self.totals[name])
        return WriteItem(MetadataIndex(name, chunk.offsets), WriteItemType.SHARD, tensor_data=data)

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        tensor: Tensor = self.state_dict[write_item.index.fqn]
        return tensor.detach().contiguous()


class _RowsToRead(DefaultLoadPlanner):
    """Reads parts that begin at ``starts`` into tensors."""

    def __init__(self, starts: dict[str, int]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.starts = starts

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        plan = []
        for name, tensor in self.state_dict.items():
            stored: Any = self.metadata.state_dict_metadata.get(name)
            items = create_read_items_for_chunk_list(name, stored, [_part(tensor, self.starts[name])]) if stored else []
            if math.fsum(math.prod(item.lengths) for item in items) != tensor.numel():
                raise InvalidInputError(f"rows of '{name}' are missing")
            plan += items
        return LoadPlan(plan)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        tensor: Tensor = self.state_dict[index.fqn]
        return tensor


def _part(tensor: Tensor, start: int) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size([start, *[0] * (tensor.dim() - 1)][: tensor.dim()]), tensor.shape)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warning that there is one process only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


@contextmanager
def _own_errors(folder: Path) -> Iterator[None]:
    """What went wrong in the first process where something did, instead of a collection that is no ``Exception``."""
    try:
        yield
    except CheckpointException as failure:
        error = failure.failures[min(failure.failures)][0]
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            raise OSError(error.errno, error.strerror, str(folder)) from None
        raise error from None
