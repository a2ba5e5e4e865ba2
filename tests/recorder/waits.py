"""What a rank of two does to wait for the other one: its word is the wait."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta


def wait_for(kind: str) -> None:
    """Rank 0 waits; rank 1 never comes."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 2, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    print(os.getpid(), flush=True)
    if rank:
        time.sleep(600)
    elif kind == "store":
        store.get("never")
    elif kind == "store wait":
        store.wait(["never"], timedelta(seconds=600))
    elif kind == "new_group":
        dist.new_group([0])
        dist.new_group([0, 1])
    elif kind == "poll":
        work = dist.all_reduce(torch.ones(1), async_op=True)
        while not work.is_completed():
            time.sleep(0.01)
    elif kind == "spin":
        work = dist.all_reduce(torch.ones(1), async_op=True)
        while not work.is_completed():
            pass


if __name__ == "__main__":
    wait_for(sys.argv[1])
