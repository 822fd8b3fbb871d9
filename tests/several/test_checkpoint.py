"""A fit over several processes goes on from a folder, in any number of them."""

import shutil

import pytest
import torch

from tests.conftest import make_graph
from tests.several import checkpoint_jobs as jobs
from tests.several.run import run
from torch_gckm import GCKM

pytestmark = pytest.mark.slow


def check_same(parts, whole):
    for number, expected in enumerate(whole["rows"]):
        found = torch.cat([part["rows"][number] for part in parts])
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
    for part in parts:
        for name in ("same", "records", "best", "labelled"):
            torch.testing.assert_close(part[name], whole[name], atol=1e-9, rtol=0, equal_nan=True)


@pytest.fixture(scope="module")
def whole():
    """What fits by one process that nothing interrupts give."""
    return {case[:2]: jobs.numbers_of(*jobs.fit(*case[:2], sharded=False)) for case in jobs.CASES}


@pytest.fixture(scope="module")
def of_three(tmp_path_factory):
    """Checkpoints of three processes."""
    folder = tmp_path_factory.mktemp("checkpoints")
    run(3, jobs.interrupted, folder)
    return folder


@pytest.fixture
def folder(of_three, tmp_path):
    """A copy of a checkpoint for each case."""
    for name, steps, number in jobs.CASES:
        shutil.copytree(of_three / f"{name} {number}", tmp_path / f"{name} {number} for {steps}")
    return tmp_path


def test_two_processes_go_on(folder, whole):
    parts = run(2, jobs.resumed, folder)
    for case in jobs.CASES:
        check_same([part[case] for part in parts], whole[case[:2]])


def test_one_process_goes_on(folder, whole):
    for case, found in jobs.resumed(folder, sharded=False).items():
        check_same([found], whole[case[:2]])


@pytest.mark.parametrize(("name", "number"), [("plain", 2), ("plain", 4), ("learned", 1), ("learned", 4)])
def test_one_process_saves_the_model(of_three, tmp_path, name, number):
    """What the checkpoint leaves out is there: it predicts for other graphs what an undisturbed fit predicts."""
    shutil.copytree(of_three / f"{name} {number}", tmp_path / "kept")
    model, _ = jobs.fit(name, 2, tmp_path / "kept", sharded=False)
    check_same_model(model, jobs.fit(name, 2, sharded=False)[0], tmp_path / "model.pt")


def check_same_model(model, expected, path):
    model.save(path)
    found = GCKM.load(path)
    assert found.state_dict().keys() == expected.state_dict().keys()
    other = make_graph(25, seed=4)
    other.x = other.x.double()
    for given in ((), (other,)):
        torch.testing.assert_close(found.scores(*given), expected.scores(*given), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", jobs.MODELS)
def test_one_process_may_use_a_folder(tmp_path, name):
    """Whoever makes a folder gets one; what was written last is read again."""
    fits = [jobs.fit(name, 2, tmp_path, sharded=False)[0] for _ in range(2)]
    assert (tmp_path / "latest.json").exists()
    for model in fits:
        check_same_model(model, jobs.fit(name, 2, sharded=False)[0], tmp_path.with_suffix(".pt"))


def test_errors_are_raised_by_all_processes(folder, tmp_path):
    run(2, jobs.refused, folder, tmp_path)
    jobs.fit("plain", 0, sharded=False)[0].save(tmp_path / "expected.pt", inductive=True)
    found, expected = GCKM.load(tmp_path / "inductive.pt"), GCKM.load(tmp_path / "expected.pt")
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), atol=1e-9, rtol=0, equal_nan=True)
