"""What goes wrong in one process is told by all of them."""

import time

import pytest
import torch

from tests.several import jobs
from tests.several.run import run
from torch_gckm.errors import InvalidInputError
from torch_gckm.partition import Partition
from torch_gckm.processes import ALONE, Processes


@pytest.mark.parametrize("world", [2, 3])
def test_an_error_of_one_process_is_raised_by_all(world):
    found = run(world, jobs.all_messages)
    assert all(messages == found[0] for messages in found)
    kind, text = found[0]["nan_in_the_second"]
    assert kind == "InvalidInputError"
    assert "first in row 250" in text
    assert f"(process 1 of {world})" in text
    assert found[0]["no_label_at_all"][0] == "InvalidLabelError"
    assert f"(process {world - 1} of {world})" in found[0]["bad_label_in_the_last"][1]
    assert "leads to node 0" in found[0]["foreign_edge"][1]
    assert found[0]["numbers_as_mask"][0] == "InvalidLabelError"
    assert "one process" in found[0]["exact_matrices"][1]
    kind, text = found[0]["another_kind_of_error"]
    assert kind == "UnicodeError"
    assert "can't decode byte 0xff" in text
    assert (found[0]["too_few_nodes"] is None) == (world == 2)
    assert found[0]["works"] in (0, 1)


def test_what_needs_all_rows_is_refused():
    found = run(2, jobs.refused_afterwards)
    assert found[0] == found[1]
    assert [kind for kind, _ in found[0]] == ["InvalidInputError"] * 7
    assert "prediction sets are not possible over several processes" in found[0][0][1]


def die_in_the_second():
    """A process is killed between two exchanges; how long the others take to notice."""
    import os
    import signal

    from torch_gckm.errors import ProcessLostError
    from torch_gckm.graph import processes_of

    processes = processes_of()
    processes.sum(torch.ones(3))
    if processes.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.perf_counter()
    try:
        with processes.agreed():
            for _ in range(100):
                processes.sum(torch.ones(3))
    except ProcessLostError as error:
        return time.perf_counter() - start, str(error)
    return None


@pytest.mark.parametrize("world", [2, 3])
def test_a_killed_process_is_noticed_by_all_others(world):
    found = run(world, die_in_the_second, may_die=(1,))
    for rank in set(range(world)) - {1}:
        seconds, text = found[rank]
        assert seconds < 10
        assert f"process {rank} of {world} lost the connection" in text


def test_one_process_by_itself():
    x = torch.arange(3.0)
    assert ALONE.sum(x) is x
    assert ALONE.once(lambda: [x])[0] is x
    assert ALONE.texts("a") == ["a"]
    assert ALONE.of_first({"a": 1}) == {"a": 1}
    with pytest.raises(ZeroDivisionError), ALONE.agreed():
        _ = 1 / 0


class Two(Processes):
    def __init__(self):
        super().__init__()
        self.world = 2


def test_ranges_that_are_none():
    with pytest.raises(InvalidInputError, match="as many ranges"):
        Partition((0, 3), Two())
    with pytest.raises(InvalidInputError, match="process 1 of 2 has no rows"):
        Partition((0, 3, 3), Two())
    assert Partition((0, 2, 3), Two()).all_rows(2) == 3
