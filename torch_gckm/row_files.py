"""Files of tensors in the format of safetensors, of which some rows can be read. Nothing in them is executed."""

import json
import zlib
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError

#: The types that tensors may have, by their names in files.
DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> list[int]:
    """Write a file; returns its size in bytes and its CRC-32. At most one tensor at a time is copied."""
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())  # So that every one is aligned.
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in ordered:
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text: bytes = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    crc = 0
    with file.open("wb") as stream:
        parts: Iterable[bytes | memoryview] = (_bytes(tensor) for _, tensor in ordered)
        for part in chain((len(text).to_bytes(8, "little"), text), parts):
            stream.write(part)
            crc = zlib.crc32(part, crc)
        return [stream.tell(), crc]


def read_tensors(file: Path, targets: Mapping[str, Tensor], skip: int = 0) -> None:
    """Fill contiguous tensors with the rows of stored ones from number ``skip`` on; no others are read."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size))
        for name, target in targets.items():
            start, end = header[name]["data_offsets"]
            start += skip * (target.nbytes // max(1, target.size(0))) if skip else 0
            stream.seek(8 + size + start)
            is_there = header[name]["dtype"] == NAMES[target.dtype] and start + target.nbytes <= end
            if not is_there or stream.readinto(_bytes(target)) != target.nbytes:
                raise InvalidInputError(f"rows of '{name}' are missing in '{file}'")


def _bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor; those in its memory if it is contiguous and on the CPU."""
    flat = tensor.detach().cpu().contiguous()
    # Not view(-1): the stride of a dimension with one entry may be anything.
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8).numpy().data
