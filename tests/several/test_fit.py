"""One graph over several processes gives what one process gives."""

import pytest
import torch

from tests.several import jobs
from tests.several.run import run
from torch_gckm.datasets import write_shards


def check_same(parts, whole, atol=1e-9):
    """Rows of all processes are those of one, and what they share is the same in each of them."""
    for number, expected in enumerate(whole["rows"]):
        found = torch.cat([part["rows"][number] for part in parts])
        torch.testing.assert_close(found, expected, atol=atol, rtol=0)
    for part in parts:
        torch.testing.assert_close(part.get("same"), whole.get("same"), atol=atol, rtol=atol, equal_nan=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("shards") / "graph"
    write_shards(jobs.directed_graph(), path)
    return path


@pytest.fixture(scope="module")
def whole(folder):
    return jobs.everything(False, folder)


@pytest.fixture(scope="module", params=[2, 3])
def parts(request, folder):
    return run(request.param, jobs.everything, True, folder)


def by_job(parts, name):
    return [part[name] for part in parts]


def test_operations_over_rows(parts, whole):
    check_same(by_job(parts, "operations"), whole["operations"], 1e-10)


@pytest.mark.parametrize("name", ["step 0", *jobs.FITS])
def test_landmarks_embeddings_and_scores_are_those_of_one_process(parts, whole, name):
    check_same(by_job(parts, name), whole[name])
    for part in by_job(parts, name):
        assert all(map(torch.equal, part["landmarks"], whole[name]["landmarks"]))
        torch.testing.assert_close(part["records"], whole[name]["records"], atol=1e-9, rtol=1e-9, equal_nan=True)
        assert torch.equal(part["identity"], whole[name]["identity"])
        assert part["summary"] == whole[name]["summary"]


@pytest.mark.parametrize("name", ["gradients", "learned kernels"])
def test_gradients_are_those_of_one_process(parts, whole, name):
    check_same(by_job(parts, name), whole[name], 1e-10)


def test_new_graphs_and_files_for_them(parts, whole):
    found = by_job(parts, "extended")
    check_same(found, whole["extended"])
    assert all(part["names"] == whole["extended"]["names"] for part in found)


def test_a_folder_is_read_in_parts(parts, whole):
    found = by_job(parts, "folder")
    assert all(part["directed"] for part in found)
    check_same(found, whole["folder"])


def test_the_parts_of_a_partition_are_those_of_processes(tmp_path):
    write_shards(jobs.directed_graph(), tmp_path / "parts", partition=torch.arange(201) % 2)
    parts = run(2, jobs.read_and_fit, tmp_path / "parts")
    assert [part["rows"][0].size(0) for part in parts] == [101, 100]
    check_same(parts, jobs.read_and_fit(tmp_path / "parts"))


def test_rows_of_others_and_their_gradients():
    first, second = run(2, jobs.halo_gradient)
    expected = torch.tensor([[0.0], [3.0], [10.0], [11.0], [13.0]])
    assert torch.equal(first["read"], expected)
    assert torch.equal(second["read"], expected)
    assert first["gradient"].view(-1).tolist() == [2.0, 0.0, 0.0, 4.0]  # Each row is read by two processes.
    assert second["gradient"].view(-1).tolist() == [6.0, 8.0, 0.0, 10.0]


@pytest.fixture(scope="module")
def alone():
    return jobs.searches(False)


@pytest.fixture(scope="module")
def together():
    return run(2, jobs.searches, True)


@pytest.mark.parametrize("name", ["classes", "numbers"])
def test_a_search_is_that_of_one_process(together, alone, name):
    found = by_job(together, name)
    for part in found:
        assert part["trials"] == alone[name]["trials"]
        assert part["ranked"] == alone[name]["ranked"]
        torch.testing.assert_close(part["measures"], alone[name]["measures"], atol=2e-3, rtol=2e-3, equal_nan=True)
    values = torch.cat([part["rows"][1] for part in found])
    assert float((values - alone[name]["rows"][1]).abs().mean()) < 1e-3
    if name == "classes":
        classes = torch.cat([part["rows"][0] for part in found])
        assert float((classes == alone[name]["rows"][0]).float().mean()) > 0.997


def test_the_classifier_takes_parts_of_a_graph(together, alone):
    found = by_job(together, "classifier")
    classes = torch.cat([part["rows"][0] for part in found])
    assert float((classes == alone["classifier"]["rows"][0]).float().mean()) > 0.997
    assert found[0]["score"] == found[1]["score"] == pytest.approx(alone["classifier"]["score"], abs=3e-3)
