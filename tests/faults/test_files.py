"""Files that are damaged, hostile or in the way, and processes that are killed."""

import multiprocessing
import os
import random
import signal
import stat
import sys
import time
import warnings
import zipfile

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM
from torch_gckm.errors import GCKMError, InvalidInputError
from torch_gckm.files import check_writable, load_tensors, save_tensors
from torch_gckm.select import search

posix = pytest.mark.skipif(os.name != "posix", reason="pipes, links and locks of POSIX")


def fitted_model(graph):
    model = GCKM(8, (4,), 3).initialize(graph)
    model.solve(graph)
    return model


def test_a_damaged_sector_is_noticed_wherever_it_is(tmp_path, graph):
    model, path = fitted_model(graph), tmp_path / "model.pt"
    model.save(path)
    whole, draw = path.read_bytes(), random.Random(0)
    for start in range(0, len(whole), 512):
        damaged = bytearray(whole)
        damaged[start : start + 512] = draw.randbytes(len(damaged[start : start + 512]))
        path.write_bytes(damaged)
        try:
            scores = GCKM.load(path).scores()
        except GCKMError:
            continue
        assert torch.equal(scores, model.scores())  # Nothing was stored there.


def test_a_single_bit_is_noticed(tmp_path):
    path = tmp_path / "file.pt"
    save_tensors({"a": torch.zeros(1000)}, path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"damaged: '.*' does not have its checksum"):
        load_tensors(path)


@pytest.mark.parametrize("what", ["folder", "twice"])
def test_records_that_torch_would_read_otherwise_than_they_are_verified(tmp_path, what):
    path = tmp_path / "file.pt"
    save_tensors({"a": torch.arange(50.0)}, path)
    if what == "folder":  # The flag of a folder, in the directory at the end.
        content = bytearray(path.read_bytes())
        content[content.rfind(b"PK\1\2", 0, content.rfind(b"/data/0")) + 38] |= 0x10
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/data/0"))
        with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive.writestr(name, bytes(200))
    with pytest.raises(InvalidInputError, match="is damaged"):
        load_tensors(path)


def test_damage_of_any_byte_is_an_error_of_this_package(tmp_path):
    path, draw = tmp_path / "file.pt", random.Random(0)
    save_tensors({"a": torch.arange(20.0)}, path)
    whole = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] = draw.randrange(256)
        path.write_bytes(damaged)
        try:
            content = load_tensors(path)
        except InvalidInputError:
            continue
        assert torch.equal(content["a"], torch.arange(20.0))


def test_a_truncated_model_is_named(tmp_path, graph):
    path = tmp_path / "model.pt"
    fitted_model(graph).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InvalidInputError, match=r"model\.pt' is not a file of torch_gckm, or it is damaged"):
        GCKM.load(path)


def test_compressed_content_is_not_unpacked(tmp_path):
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**7))
    with pytest.raises(InvalidInputError, match="it is compressed"):
        load_tensors(path)


def test_sizes_are_checked_before_anything_is_allocated(tmp_path, graph):
    path = tmp_path / "model.pt"
    fitted_model(graph).save(path)
    content = load_tensors(path)
    content["out_channels"] = 10**6
    save_tensors(content, path)
    with pytest.raises(InvalidInputError, match="1000000 classes, but codes of 3"):
        GCKM.load(path)


@posix
class TestTargets:
    def test_a_device_stays_one(self):
        save_tensors({"a": torch.zeros(10)}, "/dev/null")
        assert stat.S_ISCHR(os.stat("/dev/null").st_mode)

    def test_a_pipe_stays_one(self, tmp_path):
        path = tmp_path / "pipe"
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        save_tensors({"a": torch.zeros(10)}, path)
        assert os.read(reader, 2) == b"PK"
        os.close(reader)
        assert stat.S_ISFIFO(path.stat().st_mode)

    def test_a_link_stays_one(self, tmp_path):
        link, path = tmp_path / "link.pt", tmp_path / "folder" / "file.pt"
        link.symlink_to(path)  # To a file that there is not yet.
        save_tensors({"a": 1}, link)
        assert link.is_symlink()
        assert load_tensors(path) == {"a": 1}

    @pytest.mark.parametrize("name", ["x" * 255, "[a]*?.pt"])
    def test_names_of_all_kinds(self, tmp_path, name):
        for value in (1, 2):
            save_tensors({"a": value}, tmp_path / name)
        assert load_tensors(tmp_path / name) == {"a": 2}
        assert [path.name for path in tmp_path.iterdir()] == [name]

    def test_permissions_stay(self, tmp_path):
        path = tmp_path / "file.pt"
        save_tensors({"a": 1}, path)
        path.chmod(0o600)
        save_tensors({"a": 2}, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_a_folder_is_refused(self, tmp_path):
        for write in (check_writable, lambda path: save_tensors({}, path)):
            with pytest.raises(InvalidInputError, match="is a folder"):
                write(tmp_path)

    def test_what_cannot_be_written_is_known_before(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(InvalidInputError, match="cannot write"):
            check_writable(tmp_path / "file" / "model.pt")
        check_writable(tmp_path / "model.pt")
        check_writable(tmp_path / "new" / "newer" / "model.pt")
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def test_a_link_to_itself_is_refused(self, tmp_path):
        link, back = tmp_path / "link.pt", tmp_path / "back.pt"
        link.symlink_to(back)
        back.symlink_to(link)
        for write in (check_writable, lambda path: save_tensors({}, path)):
            with pytest.raises(InvalidInputError, match="a symbolic link that leads back to itself"):
                write(link)
        assert link.is_symlink()

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
    def test_a_full_disk_is_named(self):
        with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
            save_tensors({"a": torch.zeros(10**6)}, "/dev/full")


def _save_for_ever(path):
    torch.set_num_threads(1)
    number = 0
    while True:
        save_tensors({"a": torch.full((20_000,), number)}, path)
        number += 1


def _search_for_ever(path):
    torch.set_num_threads(1)
    search(make_graph(), budget=60.0, workers=1, progress=False, checkpoint=path)


def _kill_after(seconds, target, path):
    process = multiprocessing.get_context("fork").Process(target=target, args=(path,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Of a fork beside threads, none of which holds a lock.
        process.start()
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.join()


@posix
def test_killed_saves_lose_nothing_and_leave_nothing(tmp_path):
    path, draw = tmp_path / "file.pt", random.Random(0)
    save_tensors({"a": torch.zeros(1)}, path)
    for _ in range(50):
        _kill_after(draw.uniform(0.005, 0.05), _save_for_ever, path)
        a = load_tensors(path)["a"]
        assert bool((a == a[0]).all())
    save_tensors({"a": torch.zeros(1)}, path)
    assert list(tmp_path.iterdir()) == [path]


@posix
def test_killed_searches_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["torch_gckm.select.search_checkpoint"], "_SAVE_EVERY", 0.0)
    path, draw, tried = tmp_path / "search.pt", random.Random(0), 0
    for kills in range(100):
        if kills >= 10 and tried > 10:  # On a busy machine a process is killed before it has tried any.
            break
        _kill_after(draw.uniform(0.1, 0.5), _search_for_ever, path)
        known = len(load_tensors(path)["trials"]) if path.exists() else 0
        assert known >= tried
        tried = known
    assert tried > 10
    result = search(make_graph(), budget=None, max_settings=tried, workers=1, progress=False, checkpoint=path)
    fresh = search(make_graph(), budget=None, max_settings=tried, workers=1, progress=False)
    assert [trial.measures for trial in result.trials[:5]] == [trial.measures for trial in fresh.trials[:5]]
    assert list(tmp_path.iterdir()) == [path]
