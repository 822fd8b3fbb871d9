"""What torchrun starts: a fit whose second process kills itself after step 1, once."""

import os
import signal
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.several import checkpoint_jobs as jobs


def main(folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    marker = folder / "was killed"

    def kill(kept, number):
        if number == 4 and kept.over.rank == 1:
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        if not marker.exists():
            jobs.after_writing(patch, kill)
        model, history = jobs.fit("plain", 2, folder / "kept")
    torch.save(jobs.numbers_of(model, history), folder / f"{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
