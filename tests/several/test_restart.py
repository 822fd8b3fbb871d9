"""A fit that loses a process is started again, and ends as if nothing had happened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.several import checkpoint_jobs as jobs
from tests.several.run import run
from tests.several.test_checkpoint import check_same


@pytest.mark.parametrize(("world", "rank"), [(2, 0), (3, 1)])
def test_a_process_is_killed_while_it_fine_tunes(tmp_path, world, rank):
    seconds = run(world, jobs.killed, tmp_path / "kept", rank, may_die=[rank])
    assert all(other < 10 for number, other in enumerate(seconds) if number != rank)
    found = jobs.fit("plain", 2, tmp_path / "kept", sharded=False)
    check_same([jobs.numbers_of(*found)], jobs.numbers_of(*jobs.fit("plain", 2, sharded=False)))


@pytest.mark.skipif("GCKM_SLOW" not in os.environ, reason="starting torchrun takes a while: make test-several")
def test_torchrun_restarts_it(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
               "--max-restarts", "1", Path(__file__).with_name("restarted.py"), tmp_path]  # fmt: skip
    # Without it, restarted processes may find addresses of the ones before (pytorch/pytorch#135712).
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    environment = {**os.environ, **own_store, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "was killed").exists()
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    check_same(parts, jobs.numbers_of(*jobs.fit("plain", 2, sharded=False)))
