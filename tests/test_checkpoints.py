"""Checkpoints whose rows are spread over processes."""

import json
import math
import os
import signal
import struct
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from tests.several.run import run
from torch_gckm import checkpoints
from torch_gckm.checkpoints import ShardedState, load_sharded, save_sharded
from torch_gckm.errors import InvalidInputError, ProcessLostError
from torch_gckm.partition import Partition
from torch_gckm.processes import Processes

NODES = 11
PLAIN = {
    "step": 3,
    "losses": [0.1, -0.0, math.inf, -math.inf, 1e-320, 2**70],
    "names": {"é\n": None, "on": True, "deep": [[], {}, ""]},
}


def one_of_several(rank, *offsets):
    """A process that reads its rows without the others."""
    processes = Processes()
    processes.rank, processes.world = rank, len(offsets) - 1
    processes.agreed, processes.texts = nullcontext, lambda text: [text]
    return Partition(offsets, processes)


def of_group(offsets):
    return Partition(offsets, Processes(dist.group.WORLD))


def state_of(start=0, stop=NODES, plain=PLAIN, shift=0):
    rows = torch.arange(NODES).unsqueeze(1) * 10 + torch.arange(3) + shift
    sharded = {
        "layers.0.h": rows.float() / 3,
        "momentum": rows.double().t().contiguous().t(),  # Columns lie together in memory.
        "classes": rows[:, 0],
        "mask": rows[:, 0] % 3 == 0,
        "half": rows.bfloat16().unsqueeze(2).expand(-1, -1, 2),
        "no columns": torch.zeros(NODES, 0),
    }
    square = torch.eye(3, dtype=torch.float64) + shift
    replicated = {
        "spectrum": torch.linspace(0, 1, 5),
        "square": square,
        "the same": square,
        "scalar": torch.tensor(math.nan),
        "landmarks": torch.tensor([4, 2]),
        "empty": torch.zeros(0, 3, dtype=torch.bool),
    }
    return ShardedState(plain, replicated, {name: tensor[start:stop] for name, tensor in sharded.items()})


def check_equal(found, expected):
    assert json.dumps(found.plain) == json.dumps(expected.plain)
    for kind in ("replicated", "sharded"):
        tensors, others = getattr(found, kind), getattr(expected, kind)
        assert tensors.keys() == others.keys()
        for name, tensor in tensors.items():
            assert (tensor.dtype, tensor.shape) == (others[name].dtype, others[name].shape)
            assert torch.equal(tensor, others[name]) or name == "scalar", name


def rows_of(over):
    return over.offsets[over.rank], over.offsets[over.rank + 1]


def saved(folder, offsets):
    over = of_group(offsets)
    for _ in range(2):
        save_sharded(folder, state_of(*rows_of(over)), over)


def loaded(folder, over):
    check_equal(load_sharded(folder, over), state_of(*rows_of(over)))


def failed(folder, offsets):
    """Errors of one process reach all, and what was saved stays."""
    over = of_group(offsets)
    with pytest.MonkeyPatch.context() as patch:
        if over.rank == 1:
            patch.setattr(checkpoints, "write_tensors", raise_of(OSError(28, "full", "a file")))
        with pytest.raises(OSError, match=r"full \(process 1 of 3\): 'a file'") as caught:
            save_sharded(folder, state_of(*rows_of(over), shift=1), over)
        assert (caught.value.errno, caught.value.filename) == (28, "a file")
    start, stop = rows_of(over)
    state = state_of(start, stop - (over.rank == 1), shift=1)
    with pytest.raises(InvalidInputError, match=r"this process holds 6 rows \(process 1 of 3\)"):
        save_sharded(folder, state, over)
    other = ShardedState({}, {}, {"h": torch.zeros(stop - start, 1 + over.rank)})
    with pytest.raises(InvalidInputError, match="tensors of different names, dtypes or shapes"):
        save_sharded(folder, other, over)
    with pytest.MonkeyPatch.context() as patch:
        if over.rank == 2:
            patch.setattr(Path, "read_bytes", raise_of(PermissionError(13, "no")))
        with pytest.raises(PermissionError, match=r"no \(process 2 of 3\)"):
            load_sharded(folder, over)
    loaded(folder, over)


def raise_of(error):
    def function(*_):
        raise error

    return function


def killed(folder, offsets):
    """One process is killed when it has written a part of its file."""
    over = of_group(offsets)

    def write(file, tensors):
        file.write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    if over.rank == 1:
        checkpoints.write_tensors = write
    start = time.perf_counter()
    with pytest.raises(ProcessLostError):
        save_sharded(folder, state_of(*rows_of(over), shift=1), over)
    return time.perf_counter() - start


@pytest.fixture(scope="module")
def of_three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "of three"
    run(3, saved, folder, (0, 4, 10, NODES))
    return folder


def test_saved_by_three_read_by_one_and_two(of_three):
    check_equal(load_sharded(of_three), state_of())
    for rank in range(2):
        loaded(of_three, one_of_several(rank, 0, 3, NODES))


def test_errors_of_one_process_are_raised_in_all(of_three):
    run(3, failed, of_three, (0, 4, 10, NODES))
    assert len(list(of_three.glob("save-*"))) == 1


def test_a_killed_process_leaves_the_last_checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    save_sharded(folder, state_of())
    assert run(2, killed, folder, (0, 3, NODES), may_die=[1])[0] < 10
    check_equal(load_sharded(folder), state_of())
    save_sharded(folder, state_of(shift=2))
    check_equal(load_sharded(folder), state_of(shift=2))
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("step", range(5))
def test_an_interrupt_leaves_the_last_checkpoint(tmp_path, monkeypatch, step):
    folder = tmp_path / "checkpoint"
    save_sharded(folder, state_of())
    calls = []

    def interrupted(original):
        def call(*args):
            calls.append(args)
            if len(calls) == step + 1:
                raise KeyboardInterrupt
            return original(*args)

        return call

    with monkeypatch.context() as patch:
        for name in ("_checksum", "_write_json", "write_tensors"):
            patch.setattr(checkpoints, name, interrupted(getattr(checkpoints, name)))
        with pytest.raises(KeyboardInterrupt):
            save_sharded(folder, state_of(shift=1))
    check_equal(load_sharded(folder), state_of())
    save_sharded(folder, state_of(shift=2))
    check_equal(load_sharded(folder), state_of(shift=2))
    assert len(list(folder.iterdir())) == 2


def test_saved_by_one_read_in_parts(tmp_path):
    folder = tmp_path / "new" / "checkpoint"
    assert load_sharded(folder) is None
    save_sharded(folder, state_of())
    for offsets in ((0, 1, NODES), (0, 5, 6, NODES)):
        for rank in range(len(offsets) - 1):
            loaded(folder, one_of_several(rank, *offsets))
    with pytest.raises(InvalidInputError, match="is a checkpoint of 11 nodes, not of 12"):
        load_sharded(folder, one_of_several(0, 0, 6, 12))


def test_nothing_is_pickled(of_three):
    files = [file for file in of_three.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".json", ".safetensors"}
    assert len(files) == 2 + 1 + 3
    for file in files:
        content = file.read_bytes()
        if file.suffix == ".json":
            json.loads(content)
        else:  # A header in JSON, then what it describes to the last byte.
            (size,) = struct.unpack("<Q", content[:8])
            ends = [entry["data_offsets"][1] for entry in json.loads(content[8 : 8 + size]).values()]
            assert max(ends) == len(content) - 8 - size


def test_files_are_safetensors(of_three):
    (save,) = of_three.glob("save-*")
    parts = [load_file(save / f"rows-{rank:05d}.safetensors") for rank in range(3)]
    rows = {name: torch.cat([part[name] for part in parts]) for name in state_of().sharded}
    check_equal(ShardedState(PLAIN, load_file(save / "common.safetensors"), rows), state_of())


def test_only_the_rows_asked_for_are_read(of_three, tmp_path):
    """Damage of other rows does no harm."""
    folder = copied(of_three, tmp_path)
    for file in folder.glob("save-*/rows-00001.safetensors"):
        flip(file, -1)
    check_equal(load_sharded(folder, one_of_several(0, 0, 4, NODES)), state_of(0, 4))
    with pytest.raises(InvalidInputError, match=r"rows-00001.* is damaged"):
        load_sharded(folder, one_of_several(0, 0, 5, NODES))


def copied(folder, tmp_path):
    target = tmp_path / "copy"
    for file in folder.rglob("*"):
        if file.is_file():
            other = target / file.relative_to(folder)
            other.parent.mkdir(parents=True, exist_ok=True)
            other.write_bytes(file.read_bytes())
    return target


def flip(file, place):
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)


def cut(file):
    file.write_bytes(file.read_bytes()[:-1])


DAMAGE = {
    "first bit": lambda file: flip(file, 0),
    "middle bit": lambda file: flip(file, file.stat().st_size // 2),
    "last bit": lambda file: flip(file, -1),
    "cut": cut,
    "empty": lambda file: file.write_bytes(b""),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b" "),
    "missing": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_refused_and_named(tmp_path, damage):
    folder = tmp_path / "checkpoint"
    for name in ("index.json", "common.safetensors", "rows-00000.safetensors"):
        save_sharded(folder, state_of())
        (file,) = folder.glob(f"save-*/{name}")
        damage(file)
        with pytest.raises(InvalidInputError) as caught:
            load_sharded(folder)
        assert str(file) in str(caught.value)
    save_sharded(folder, state_of())  # In the place of a damaged one.
    check_equal(load_sharded(folder), state_of())


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", "\x00", '{"format": 1, "save": 2, "index": 3}', "[" * 100_000,
     '{"format": "torch_gckm sharded checkpoint 1", "save": "../save-000001", "index": [1, 2]}'],
    ids=["empty", "half", "list", "nothing", "binary", "numbers", "deep", "outside"],
)  # fmt: skip
def test_a_damaged_pointer_is_refused(tmp_path, content):
    folder = tmp_path / "checkpoint"
    save_sharded(folder, state_of())
    (folder / "latest.json").write_text(content)
    with pytest.raises(InvalidInputError, match="checkpoint"):
        load_sharded(folder)


def test_any_changed_byte_of_the_pointer_is_refused(tmp_path):
    folder = tmp_path / "checkpoint"
    state = ShardedState({"a": 1}, {}, {"h": torch.arange(4.0)})
    save_sharded(folder, state)
    pointer = folder / "latest.json"
    content = pointer.read_bytes()
    for place in range(len(content)):
        flip(pointer, place)
        with pytest.raises(InvalidInputError):
            load_sharded(folder)
        pointer.write_bytes(content)
    check_equal(load_sharded(folder), state)


def test_other_folders_are_refused_and_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    file = tmp_path / "notes.txt"
    for folder in (tmp_path, file):
        with pytest.raises(InvalidInputError, match="is not a folder of a sharded checkpoint"):
            load_sharded(folder)
        with pytest.raises(InvalidInputError, match="is not a folder of a sharded checkpoint"):
            save_sharded(folder, state_of())
    assert list(tmp_path.iterdir()) == [file]


def test_other_files_are_refused_and_stay(tmp_path):
    folder = tmp_path / "checkpoint"
    save_sharded(folder, state_of())
    (save,) = folder.glob("save-*")
    (save / "more.safetensors").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"more\.safetensors' does not belong"):
        load_sharded(folder)
    save_sharded(folder, state_of(shift=1))
    check_equal(load_sharded(folder), state_of(shift=1))
    assert [file.name for file in save.iterdir()] == ["more.safetensors"]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (ShardedState({"a": [1, (2, 3)]}), r"plain\['a'\]\[1\] is of tuple"),
        (ShardedState({"a": {1: 2}}), r"plain\['a'\] has the key 1"),
        (ShardedState({"a": torch.ones(1)}), r"plain\['a'\] is of Tensor"),
        (ShardedState({}, {"a": torch.ones(1)}, {"a": torch.ones(1)}), "'a' cannot be the name"),
        (ShardedState({}, {"": torch.ones(1)}), "'' cannot be the name"),
        (ShardedState({}, {"a": torch.ones(2, dtype=torch.complex64)}), "'a' is of torch.complex64"),
        (ShardedState({}, {"a": torch.eye(2).to_sparse()}), "'a' is of torch.float32 and torch.sparse_coo"),
        (ShardedState({}, {}, {"a": torch.tensor(1.0)}), r"'a' has shape \[\]"),
        (ShardedState({}, {}, {"a": torch.ones(2), "b": torch.ones(3)}), r"'b' has shape \[3\]; .* 2 rows"),
    ],
)
def test_what_cannot_be_written_is_named(tmp_path, state, message):
    with pytest.raises(InvalidInputError, match=message):
        save_sharded(tmp_path / "checkpoint", state)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    "state", [ShardedState(), ShardedState({"a": math.nan}), ShardedState({}, {"a": torch.ones(2)})]
)
def test_little_to_write(tmp_path, state):
    save_sharded(tmp_path, state)
    check_equal(load_sharded(tmp_path), state)
