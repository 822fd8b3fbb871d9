"""Checkpoints whose rows are spread over processes."""

import dataclasses
import json
import math
import os
import signal
import struct
import warnings
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from torch_gckm import checkpoints, row_files
from torch_gckm.checkpoints import ShardedState, load_sharded, save_sharded
from torch_gckm.errors import InvalidInputError

pytest.importorskip("safetensors")

NODES = 11
PLAIN = {
    "step": 3,
    "losses": [0.1, -0.0, math.inf, -math.inf, 1e-320, 2**70],
    "names": {"é\n": None, "on": True, "deep": [[], {}, ""]},
}


@dataclasses.dataclass(frozen=True)
class Part:
    """Some rows, as a process of several would hold them; gathers texts as a partition does."""

    rank: int
    world: int
    offsets: tuple[int, ...]
    group: dist.ProcessGroup | None = None

    def exchange(self, text):
        texts = [""] * self.world
        if self.group is None:
            return [text]
        dist.all_gather_object(texts, text, group=self.group)
        return texts


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
        assert list(tensors) == list(others)
        for name, tensor in tensors.items():
            assert (tensor.dtype, tensor.shape) == (others[name].dtype, others[name].shape)
            assert torch.equal(tensor, others[name]) or name == "scalar", name


def work(rank, job, folder, offsets):
    """What a process runs; what it finds goes to a file of its own."""
    warnings.simplefilter("error")
    world = len(offsets) - 1
    dist.init_process_group("gloo", init_method=f"file://{folder}.init", rank=rank, world_size=world,
                            timeout=timedelta(seconds=20))  # fmt: skip
    part = Part(rank, world, offsets, dist.group.WORLD)
    job(Path(folder), part)
    Path(f"{folder}.{job.__name__}.{rank}").touch()
    if job is not killed:
        dist.destroy_process_group()


def run(job, folder, offsets):
    """Run a job in several processes; all must come to its end, except for one that is killed."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # Imports take longer than everything else.
    processes = [
        context.Process(target=work, args=(rank, job, str(folder), offsets)) for rank in range(len(offsets) - 1)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    Path(f"{folder}.init").unlink(missing_ok=True)
    assert [rank for rank, process in enumerate(processes) if process.exitcode == 0] == [
        rank for rank in range(len(processes)) if Path(f"{folder}.{job.__name__}.{rank}").exists()
    ]
    return [process.exitcode for process in processes]


def rows_of(part):
    return part.offsets[part.rank], part.offsets[part.rank + 1]


def saved(folder, part):
    save_sharded(folder, state_of(*rows_of(part)), part)
    save_sharded(folder, state_of(*rows_of(part)), part)


def loaded(folder, part):
    check_equal(load_sharded(folder, part), state_of(*rows_of(part)))


def failed(folder, part):
    """Errors of one process reach all, and what was saved stays."""
    with pytest.MonkeyPatch.context() as patch:
        if part.rank == 1:
            patch.setattr(row_files._RowsToWrite, "resolve_data", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full") as caught:
            save_sharded(folder, state_of(*rows_of(part), shift=1), part)
        assert caught.value.errno == 28
    start, stop = rows_of(part)
    state = state_of(start, stop - (part.rank == 1), shift=1)
    with pytest.raises(InvalidInputError, match=r"this process holds 6 rows \(process 1 of 3\)"):
        save_sharded(folder, state, part)
    other = ShardedState({}, {}, {"h": torch.zeros(stop - start, 1 + part.rank)})
    with pytest.raises(InvalidInputError, match="tensors of different names, dtypes or shapes"):
        save_sharded(folder, other, part)
    with pytest.MonkeyPatch.context() as patch:
        if part.rank == 2:
            patch.setattr(Path, "read_bytes", lambda path: (_ for _ in ()).throw(PermissionError(13, "no", str(path))))
        with pytest.raises(PermissionError, match=r"no \(process 2 of 3\)"):
            load_sharded(folder, part)
    loaded(folder, part)


def killed(folder, part):
    """One process is killed when it has written a part of its files."""
    written = []

    def resolve(planner, item, original=row_files._RowsToWrite.resolve_data):
        written.append(item)
        if part.rank == 1 and len(written) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(planner, item)

    row_files._RowsToWrite.resolve_data = resolve
    with pytest.raises((RuntimeError, OSError)):
        save_sharded(folder, state_of(*rows_of(part), shift=1), part)


@pytest.fixture(scope="module")
def of_three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "of three"
    assert run(saved, folder, (0, 4, 10, NODES)) == [0, 0, 0]
    return folder


def test_saved_by_three_read_by_one_and_two(of_three):
    check_equal(load_sharded(of_three), state_of())
    assert run(loaded, of_three, (0, 3, NODES)) == [0, 0]


def test_errors_of_one_process_are_raised_in_all(of_three):
    assert run(failed, of_three, (0, 4, 10, NODES)) == [0, 0, 0]
    assert len(list(of_three.glob("save-*"))) == 1


def test_a_killed_process_leaves_the_last_checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    save_sharded(folder, state_of())
    assert run(killed, folder, (0, 3, NODES)) == [0, -signal.SIGKILL]
    check_equal(load_sharded(folder), state_of())
    save_sharded(folder, state_of(shift=2))
    check_equal(load_sharded(folder), state_of(shift=2))
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("step", range(9))
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
        for name in ("_checksum", "_write_json"):
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
    for offsets in ((0, 1, NODES), (0, 5, 5, NODES)):
        for rank in range(len(offsets) - 1):
            part = Part(rank, len(offsets) - 1, offsets)
            loaded(folder, part)
    with pytest.raises(InvalidInputError, match="is a checkpoint of 11 nodes, not of 12"):
        load_sharded(folder, Part(0, 2, (0, 6, 12)))


def test_nothing_is_pickled(of_three):
    files = [file for file in of_three.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".json", ".safetensors"}
    assert len(files) == 2 + 1 + 3 * 5
    for file in files:
        content = file.read_bytes()
        if file.suffix == ".json":
            json.loads(content)
        else:  # A header in JSON, then what it describes to the last byte.
            (size,) = struct.unpack("<Q", content[:8])
            header = json.loads(content[8 : 8 + size])
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            assert max(ends) == len(content) - 8 - size


def test_only_the_rows_asked_for_are_read(of_three, tmp_path):
    """Damage of other rows does no harm."""
    folder = copied(of_three, tmp_path)
    for file in folder.glob("save-*/shard-00002-*"):
        flip(file, -1)
    check_equal(load_sharded(folder, Part(0, 2, (0, 4, NODES))), state_of(0, 4))
    with pytest.raises(InvalidInputError, match=r"shard-00002-.* is damaged"):
        load_sharded(folder, Part(0, 2, (0, 5, NODES)))


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
    for name in ("index.json", "shard-00001-model-00001-of-*", "shard-00001-model-00004-of-*"):
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


def test_without_safetensors(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for call in (lambda: save_sharded(tmp_path, state_of()), lambda: load_sharded(tmp_path)):
        with pytest.raises(ImportError, match=r"torch_gckm\[distributed\]"):
            call()
