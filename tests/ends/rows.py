"""What ranks print and how they end, as data: of those that break, and of those that waited for them.

The texts follow what PyTorch, gloo, NCCL, JAX, ROCm's runtime and CANN print; none is copied from a
log. ``{me}`` is the rank, ``{first}`` the one that it waits for, ``{some}`` and ``{all}`` how many there are
and should be.
"""

from __future__ import annotations

from typing import NamedTuple


class Broken(NamedTuple):
    """How a rank breaks.

    :param words: what it prints; empty: it is silent
    :param end: its exit status, or a negative signal
    :param told: what the cause must contain; empty: nothing is asked
    """

    name: str
    words: str
    end: int
    told: str = ""


class Waited(NamedTuple):
    """What a rank says of another.

    :param lasts: whether it gave up waiting; else it saw that the other is gone
    :param apart: whether only one rank says so
    """

    name: str
    words: str
    end: int = 1
    lasts: bool = False
    apart: bool = False


def raised(summary: str, function: str = "step") -> str:
    """The traceback of an exception in a training script."""
    return (
        "Traceback (most recent call last):\n"
        '  File "/home/ada/train.py", line 88, in <module>\n    main()\n'
        f'  File "/home/ada/train.py", line 58, in {function}\n    run(batch)\n{summary}\n'
    )


CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"

BROKEN = (
    Broken(
        "oom",
        raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        1,
        "CUDA out",
    ),
    Broken("value", raised("ValueError: loss became NaN at step 12"), 1, "became NaN"),
    Broken("key", raised("KeyError: 'labels'"), 1, "labels"),
    Broken(
        "missing", raised("FileNotFoundError: [Errno 2] No such file or directory: '/data/x.bin'"), 1, "x.bin"
    ),
    Broken(
        "glibcxx", raised("ImportError: libstdc++.so.6: version `GLIBCXX_3.4.32' not found"), 1, "GLIBCXX"
    ),
    Broken(
        "shapes",
        raised("RuntimeError: The size of tensor a (5) must match the size of tensor b (4)"),
        1,
        "tensor a",
    ),
    Broken(
        "assert", raised("RuntimeError: CUDA error: device-side assert triggered"), 1, "device-side assert"
    ),
    Broken(
        "loader",
        "ERROR: Unexpected bus error encountered in worker.\n"
        + raised("RuntimeError: DataLoader worker (pid 811) is killed by signal: Bus error."),
        1,
        "Bus error|bus error",
    ),
    Broken(
        "map",
        raised("RuntimeError: One of the subprocesses has abruptly died during map operation."),
        1,
        "abruptly died",
    ),
    Broken(
        "pool",
        raised(
            "concurrent.futures.process.BrokenProcessPool: A process in the"
            " process pool was terminated abruptly"
        ),
        1,
        "terminated abruptly",
    ),
    Broken(
        "config",
        raised("UnicodeDecodeError: 'utf-8' codec can't decode byte 0x9e in position 0")
        + CHAIN
        + raised("ValueError: Expected a path to a config, or a dictionary. Received: zero2.json"),
        1,
        "zero2.json",
    ),
    Broken(
        "cpp",
        "terminate called after throwing an instance of 'c10::Error'\n  what(): "
        " CUDA error: an illegal memory access\n",
        -6,
        "illegal memory access",
    ),
    Broken(
        "fatal",
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n",
        -11,
    ),
    Broken(
        "amd-fault",
        "Memory access fault by GPU node-4 (Agent handle: 0x55d0c0) on address 0x7f0000. Reason: Unknown.\n",
        -6,
        "Memory access fault by GPU",
    ),
    Broken(
        "amd-hang", "HW Exception by GPU node-2 (Agent handle: 0x5560) reason :GPU Hang\n", -6, "GPU Hang"
    ),
    Broken(
        "jax",
        "F1120 03:14:05.123456  140 pjrt_stream_executor.cc:90] Non-OK-status:"
        " run failed INTERNAL: no executable\n",
        -6,
        "Non-OK-status",
    ),
    Broken("kill", "", -9),
    Broken("segv", "", -11),
    Broken("bus", "", -7, "/dev/shm"),
    Broken("quiet", "", 3),
)

_WATCHDOG = (
    "[rank{me}]:[E1120 04:02:31.870011223 ProcessGroupNCCL.cpp:683] [Rank"
    " {me}] Watchdog caught collective operation"
    " timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=16,"
    " NumelOut=16, Timeout(ms)=600000) ran for 600041"
    " milliseconds before timing out.\n"
    "[rank{me}]:[E1120 04:02:32.441977012 ProcessGroupNCCL.cpp:758] [Rank"
    " {me}] To avoid data inconsistency, we are"
    " taking the entire process down.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    "  what():  [PG ID 0 PG GUID 0(default_pg) Rank {me}] Process group"
    " watchdog thread terminated with exception:"
    " [Rank {me}] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=16,"
    " NumelOut=16, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.\n"
)
WATCHDOG = Waited("watchdog", _WATCHDOG, -6, lasts=True)

_DIST = "torch.distributed."
WAITED = (
    Waited(
        "closed",
        raised("RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:5"),
    ),
    Waited("reset", raised("RuntimeError: Connection reset by peer")),
    Waited(
        "remote",
        raised(
            f"{_DIST}DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:37,"
            f" remote process exited or there was a"
            " network error, NCCL version 2.28.8\nncclRemoteError: A call failed.\nLast error:\n"
            "socketProgress: Connection closed by remote peer gpu02<41234>"
        ),
    ),
    Waited("aborted", raised(f"{_DIST}DistBackendError: NCCL communicator was aborted on rank {{me}}.")),
    Waited("recv", raised(f"{_DIST}DistNetworkError: failed to recv, got 0 bytes")),
    Waited(
        "store",
        raised(
            f"{_DIST}DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed."
            " Did the remote server shutdown or crash?"
        ),
    ),
    Waited(
        "monitored",
        raised(
            "RuntimeError: Rank {me} successfully reached monitoredBarrier,"
            " but received errors while waiting for"
            " send/recv from rank {first}. Please check rank {first} logs for faulty rank."
        ),
    ),
    Waited("pipe", raised("BrokenPipeError: [Errno 32] Broken pipe")),
    Waited(
        "jax",
        "E1120 03:14:05.123456  140 client.h:77] Terminating process because"
        " the JAX distributed service detected"
        " fatal errors.\n",
        -6,
    ),
    Waited(
        "rendezvous",
        raised(f"{_DIST}elastic.rendezvous.api.RendezvousConnectionError: The connection has failed."),
    ),
    Waited(
        "gloo",
        raised("RuntimeError: [../gloo/buffer.cc:78] Timed out waiting 45000ms for recv operation"),
        lasts=True,
    ),
    WATCHDOG,
    Waited(
        "store",
        raised(f"{_DIST}DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"),
        lasts=True,
    ),
    Waited(
        "clients",
        raised(
            f"{_DIST}DistStoreError: Timed out after 901 seconds waiting for"
            f" clients. {{some}}/{{all}} clients joined."
        ),
        lasts=True,
    ),
    Waited("socket", raised("RuntimeError: Socket Timeout"), lasts=True),
    Waited(
        "barrier",
        raised("RuntimeError: [Rank {me}]: Ranks {first} failed to pass monitoredBarrier in 30000 ms"),
        lasts=True,
        apart=True,
    ),
    Waited(
        "hccl",
        raised(
            "RuntimeError: npu synchronize failed: EI0002: The wait"
            " execution of the Notify register times out"
        ),
        lasts=True,
    ),
)

SURVIVED = (
    "WARNING: batch failed, skipping it\n"
    + raised("ValueError: cannot read shard 7")
    + "skipping the shard\n"
)
"""A traceback long before, which training went on after."""
