"""What a rank of a toy does: two tensor-parallel pairs, two data-parallel ones, gradients in four buckets.

Words: what goes wrong (``nothing``, ``slow``, ``missing``, ``size``, ``operation``), and the sockets' folder;
without it, in a run of cockpit, where a probe has it.
Rank 2 is the slow one; rank 3 misses the second bucket of the last step. Torch's worker server answers for
each rank at ``RANK.PID.sock``; each step's end is printed.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

STEPS = 13
SLOW_S = 0.05


def main(fault: str, folder: str) -> None:
    """Train."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import _WorkerServer

    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chdir(folder)  # the path of a socket has no room for long ones
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_WorkerServer(f"{rank}.{os.getpid()}.sock")))
    tensors = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    data = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    buckets = [torch.ones(1000 * size) for size in (1, 2, 3, 4)]
    activations = torch.ones(64, 8)
    for step in range(STEPS):
        time.sleep(0.02 + SLOW_S * (fault == "slow" and rank == 2))
        dist.all_reduce(activations, group=tensors[rank // 2])
        works = []
        for number, bucket in enumerate(buckets):
            time.sleep(0.005)
            if fault == "missing" and (step, rank, number) == (STEPS - 1, 3, 1):
                print("hangs", flush=True)
                time.sleep(600)
            works.append(dist.all_reduce(bucket, group=data[rank % 2], async_op=True))
        for work in works:
            work.wait()
        dist.all_reduce(torch.ones(1))
        print("end", step, time.time_ns(), flush=True)
    odd = rank == 1
    try:
        if fault == "size":
            dist.all_reduce(torch.ones(12 if odd else 10))
        elif fault == "operation" and odd:
            dist.broadcast(torch.ones(10), 1)
        elif fault == "operation":
            dist.all_reduce(torch.ones(10))
    except RuntimeError as error:
        print("error", str(error)[:100], flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], *(sys.argv[2:] or [os.path.join(os.environ["COCKPIT_DIR"], "probe")]))
