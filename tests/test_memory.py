import pytest
import torch

from torch_gckm import memory
from torch_gckm.errors import OutOfMemoryError

CPU = torch.device("cpu")


def test_more_than_there_is_is_refused():
    memory.require_memory(1000, "a small thing", CPU)
    with pytest.raises(OutOfMemoryError, match=r"a large thing needs about 1000000\.0 GB"):
        memory.require_memory(10**15, "a large thing", CPU)
    with pytest.raises(OutOfMemoryError, match="buy more"):
        memory.require_memory(10**15, "a large thing", CPU, "buy more")


@pytest.mark.parametrize(("line", "folder", "names"), [
    ("0::/job/step", "job", ("memory.max", "memory.current")),
    ("4:cpu,memory:/job/step", "memory/job", ("memory.limit_in_bytes", "memory.usage_in_bytes")),
])  # fmt: skip
def test_limits_of_control_groups(tmp_path, monkeypatch, line, folder, names):
    path = tmp_path / folder
    (path / "step").mkdir(parents=True)
    for name, value in zip(names, ("3000", "1000"), strict=True):
        (path / name).write_text(f"{value}\n")
    cgroup = tmp_path / "cgroup"
    cgroup.write_text(f"7:pids:/\n{line}\n")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN_GROUPS", cgroup)
    assert memory.available_bytes(CPU) == 2000
    (path / "memory.stat").write_text("inactive_anon 5\ninactive_file 300\n")  # Files that can be given up.
    assert memory.available_bytes(CPU) == 2300
    (path / names[0]).write_text("max\n" if "max" in names[0] else str(2**62))
    assert memory.available_bytes(CPU) > 2000
