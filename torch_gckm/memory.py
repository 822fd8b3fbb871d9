"""How much memory can be allocated: of the machine, and of what this process may use of it."""

import os
from pathlib import Path

import psutil
import torch

from torch_gckm.errors import OutOfMemoryError

_SAFE_FRACTION = 0.9  # Of the available memory.
_CGROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def available_bytes(device: torch.device) -> int:
    """Bytes that can be allocated now on ``device``."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    limits = [int(psutil.virtual_memory().available), *_of_address_space(), *_of_control_groups()]
    return max(0, min(limits))


def require_memory(num_bytes: int, what: str, device: torch.device, hint: str | None = None) -> None:
    """Raise :class:`OutOfMemoryError` if ``num_bytes`` do not fit, before anything is allocated."""
    available = available_bytes(device)
    if num_bytes > _SAFE_FRACTION * available:
        hint = hint or "use gram=LowRank(max_rank=...), or fit on fewer nodes and extend with transform"
        sizes = f"needs about {num_bytes / 1e9:.1f} GB, but only {available / 1e9:.1f} GB are available"
        raise OutOfMemoryError(f"{what} {sizes}; {hint}")


def _of_address_space() -> list[int]:
    """What is left of a limit as ``ulimit -v`` sets it, if there is one."""
    if os.name != "posix":
        return []
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return [] if limit == resource.RLIM_INFINITY else [limit - psutil.Process().memory_info().vms]


def _of_control_groups() -> list[int]:
    """What is left of the limits of Linux control groups (containers, batch systems), of both versions."""
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            root, names = _CGROUPS, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = _CGROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        own = root / path.strip("/")
        for folder in (root, own, *own.parents):  # The tightest counts.
            try:
                limit, used = ((folder / name).read_text().strip() for name in names)
                if limit != "max":
                    found.append(int(limit) - int(used) + _cached(folder))
            except (OSError, ValueError):
                continue
    return found


def _cached(folder: Path) -> int:
    """Bytes of files in memory that count as used by a control group, and are given up when needed."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    values = dict(line.split() for line in lines if len(line.split()) == 2)
    return int(values.get("total_inactive_file", values.get("inactive_file", 0)))
