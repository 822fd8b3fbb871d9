"""Ask for memory before it is used."""

import psutil
import torch

from torch_gckm.errors import OutOfMemoryError

_SAFE_FRACTION = 0.9


def available_bytes(device: torch.device) -> int:
    """Bytes that can be allocated now on ``device``."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def require_memory(num_bytes: int, what: str, device: torch.device) -> None:
    """Raise :class:`OutOfMemoryError` if ``num_bytes`` do not fit, before anything is allocated."""
    available = available_bytes(device)
    if num_bytes > _SAFE_FRACTION * available:
        raise OutOfMemoryError(
            f"{what} needs about {num_bytes / 1e9:.1f} GB, but only {available / 1e9:.1f} GB are available; "
            "use gram=LowRank(max_rank=...), or fit on fewer nodes and extend with transform"
        )
