"""Run a function in several processes that know each other, as torchrun would start them."""

import io
import multiprocessing
import tempfile
import traceback
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path

import torch
import torch.distributed as dist

_PATIENCE = 120.0  # Seconds for a test.


def run(world, function, *arguments, may_die=()):
    """What the function returns in each process; an exception in one of them fails the test.

    Processes are forked from a server that has imported the package, and has never used a thread.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch_geometric", "torch_gckm", "tests.several.run"])
    with tempfile.TemporaryDirectory() as folder:
        links, processes = [], []
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            where = f"file://{Path(folder) / 'meeting'}"
            process = context.Process(target=_start, args=(theirs, rank, world, where, function, arguments))
            process.start()
            theirs.close()
            links.append(ours)
            processes.append(process)
        results = {}
        try:
            while len(results) < world:
                left = [link for rank, link in enumerate(links) if rank not in results]
                ready = wait(left, _PATIENCE)
                assert ready, f"processes {sorted(set(range(world)) - set(results))} did not end"
                for link in ready:
                    rank = links.index(link)
                    try:
                        results[rank] = link.recv_bytes()
                    except EOFError:
                        assert rank in may_die, f"process {rank} died"
                        results[rank] = None
        finally:
            for process in processes:
                process.kill()
                process.join()
    loaded = [torch.load(io.BytesIO(results[rank])) if results[rank] else None for rank in range(world)]
    failed = [value["failed"] for value in loaded if isinstance(value, dict) and "failed" in value]
    assert not failed, failed[0]
    return loaded


def _start(link, rank, world, where, function, arguments):
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world, timeout=timedelta(seconds=60))
        result = function(*arguments)
    except BaseException:
        result = {"failed": f"in process {rank}: {traceback.format_exc()}"}
    buffer = io.BytesIO()
    torch.save(result, buffer)
    link.send_bytes(buffer.getvalue())
    link.close()
