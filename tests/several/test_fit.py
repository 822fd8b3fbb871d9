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


# What so many processes compute: fits, and the rest. One test per number of them: starting processes takes a while.
FITS = {2: ["step 0", *jobs.FITS], 3: ["gcn"]}
OTHERS = {2: ["operations", "gradients", "learned kernels", "extended", "folder"], 3: ["operations", "gradients"]}


def by_job(parts, name):
    return [part[name] for part in parts]


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_what_is_computed_is_that_of_one_process(world, tmp_path):
    write_shards(jobs.directed_graph(), tmp_path / "graph")
    arguments = (FITS[world], OTHERS[world], tmp_path / "graph")
    whole, parts = jobs.several(False, *arguments), run(world, jobs.several, True, *arguments)
    for name in OTHERS[world]:
        check_same(by_job(parts, name), whole[name], 1e-9 if name in ("extended", "folder") else 1e-10)
        assert all(part.get("names") == whole[name].get("names") for part in by_job(parts, name))
        assert all(part.get("directed", True) for part in by_job(parts, name))
    for name in FITS[world]:
        check_same(by_job(parts, name), whole[name])
        for part in by_job(parts, name):
            assert all(map(torch.equal, part["landmarks"], whole[name]["landmarks"])), name
            torch.testing.assert_close(part["records"], whole[name]["records"], atol=1e-9, rtol=1e-9, equal_nan=True)
            assert torch.equal(part["identity"], whole[name]["identity"])
            assert part["summary"] == whole[name]["summary"]


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


@pytest.mark.slow
def test_searches_are_those_of_one_process():
    alone, together = jobs.searches(False), run(2, jobs.searches, True)
    for name in ("classes", "numbers"):
        found = by_job(together, name)
        for part in found:
            assert part["trials"] == alone[name]["trials"]
            assert part["ranked"] == alone[name]["ranked"]
            torch.testing.assert_close(part["measures"], alone[name]["measures"], atol=2e-3, rtol=2e-3, equal_nan=True)
        values = torch.cat([part["rows"][1] for part in found])
        assert float((values - alone[name]["rows"][1]).abs().mean()) < 1e-3
    for name in ("classes", "classifier"):
        classes = torch.cat([part["rows"][0] for part in by_job(together, name)])
        assert float((classes == alone[name]["rows"][0]).float().mean()) > 0.997
    first, second = (part["score"] for part in by_job(together, "classifier"))
    assert first == second == pytest.approx(alone["classifier"]["score"], abs=3e-3)
    for part in by_job(together, "asked"):  # A model does not take its own rows for all of them.
        torch.testing.assert_close(part["scores"], alone["asked"]["scores"], atol=1e-6, rtol=0)
    first, second = by_job(together, "forgotten")
    assert first == second
