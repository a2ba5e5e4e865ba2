"""A stand-in for NCCL's RAS: what it answers, made after NCCL's source, and a server that does.

The layout is what ``rasDumpCommsToJSON`` in ``src/ras/client_support.cc`` prints; the conversation is that of
``rasClientEventLoop``. Nothing here was ever said by a real NCCL.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

OPERATIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
"""``ncclFuncToString`` of the first ``NCCL_NUM_FUNCTIONS``."""


class Rank(NamedTuple):
    """A rank of a communicator, with the operations that it has launched."""

    number: int
    pid: int
    counts: Mapping[str, int] = {}
    host: str = "10.0.0.1"
    init_state: int = 0
    async_error: int = 0
    finalize: bool = False
    abort: bool = False


class Missing(NamedTuple):
    """A rank of which RAS has no data."""

    number: int
    pid: int
    host: str = "10.0.0.1"
    unresponsive: bool = True
    dead: bool = False


class Comm(NamedTuple):
    """A communicator."""

    ranks: Sequence[Rank]
    missing: Sequence[Missing] = ()
    hash: str = "0xae94423cfbb2ef4a"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _rank(one: Rank) -> str:
    counts = ",\n".join(f'            "{op}": {one.counts.get(op, 0)}' for op in OPERATIONS)
    return (
        f'        {{\n          "rank": {one.number},\n          "host": "{one.host}",\n'
        f'          "pid": {one.pid},\n          "cuda_dev": 0,\n          "nvml_dev": 0,\n'
        f'          "status": {{\n            "init_state": {one.init_state},\n'
        f'            "async_error": {one.async_error},\n'
        f'            "finalize_called": {_flag(one.finalize)},\n            "destroy_flag": false,\n'
        f'            "abort_flag": {_flag(one.abort)}\n          }},\n'
        f'          "collective_counts": {{\n{counts}\n          }}\n        }}'
    )


def _missing(one: Missing, comma: str) -> str:
    return (
        f'        {{\n          "rank": {one.number},\n          "host": "{one.host}",\n'
        f'          "pid": {one.pid},\n          "cuda_dev": 0,\n          "nvml_dev": 0{comma}\n'
        f'          "status": {{\n            "unresponsive": {_flag(one.unresponsive)},\n'
        f'            "considered_dead": {_flag(one.dead)}\n          }}\n        }}'
    )


def _comm(one: Comm, comma: str) -> str:
    ranks = ",\n".join(map(_rank, one.ranks))
    missing = ",\n".join(_missing(each, comma) for each in one.missing)
    return (
        f'    {{\n      "hash": "{one.hash}",\n      "secondary_hash": "0xb7e71:0xb8242",\n'
        f'      "size": {len(one.ranks) + len(one.missing)},\n      "ranks_count": {len(one.ranks)},\n'
        f'      "missing_ranks_count": {len(one.missing)},\n      "ranks": [\n{ranks}\n      ],\n'
        f'      "missing_ranks": [\n{missing}\n      ]\n    }}'
    )


def body(comms: Sequence[Comm], version: str = "2.28.9", timeouts: int = 0) -> bytes:
    """What RAS of a version answers: before 2.29 a comma is missing in ``missing_ranks``."""
    comma = "," if tuple(map(int, version.split("."))) >= (2, 29) else ""
    told = ",\n".join(_comm(one, comma) for one in comms)
    return (
        f'{{\n  "nccl_version": "{version}",\n  "cuda_runtime_version": 13000,\n'
        f'  "cuda_driver_version": 13000,\n  "timestamp": "2026-11-21 04:04:41",\n'
        f'  "communicators_count": {len(comms)},\n  "communicators": [\n{told}\n  ],\n'
        f'  "ras": {{\n    "collection_time_sec": 0.002,\n    "timeouts_count": {timeouts}\n  }}\n}}\n'
    ).encode()


def job(pids: Sequence[int], behind: int | None = None, host: str = "10.0.0.1") -> list[Comm]:
    """One communicator of these processes; one of them has launched one operation less."""
    ranks = [
        Rank(number, pid, {"AllReduce": 1205 - (number == behind), "Broadcast": 3}, host)
        for number, pid in enumerate(pids)
    ]
    return [Comm(ranks)]


HEAD = """\
NCCL version {version} compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          2            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         2         4         4   RUNNING  {errors}
    1         2         2         1         2         4   RUNNING      OK

Errors
======

"""
"""What RAS prints of two nodes with two ranks each (``rasClientRunInit``, ``rasClientRunComms``)."""


def text(more: str = "", *, version: str = "2.27.7", errors: str = "      OK", warnings: str = "") -> bytes:
    """What RAS answers before 2.28.7.

    :param more: what is below ``Errors``; ``warnings``: below ``Warnings``
    """
    head = HEAD.format(version=version, errors=errors)
    return f"{head}{more}Warnings\n========\n\n{warnings}".encode()


def named(number: int, pid: int, host: str = "10.0.0.1", did: str = "") -> str:
    """A line about one rank."""
    return f"  Rank {number}{did} -- GPU {number} (NVML 0) managed by process {pid} on node {host}\n"


Talk = Callable[[socket.socket, list[str]], None]


def lines(connection: socket.socket, asked: list[str]) -> Iterator[str]:
    """What the client says, line by line."""
    with contextlib.suppress(OSError), connection.makefile("rb") as file:
        for line in file:
            asked.append(line.decode("ascii").rstrip("\n"))
            yield asked[-1]


def nccl(answer: bytes, *, json: bool = True) -> Talk:
    """RAS; before 2.28.7 without JSON."""

    def talk(connection: socket.socket, asked: list[str]) -> None:
        for line in lines(connection, asked):
            if line.startswith("CLIENT PROTOCOL "):
                connection.sendall(b"SERVER PROTOCOL 2\n")
            elif line.startswith("TIMEOUT ") or (json and line == "SET FORMAT json"):
                connection.sendall(b"OK\n")
            elif line in ("STATUS", "VERBOSE STATUS"):
                connection.sendall(answer)
                return
            else:
                connection.sendall(f"ERROR: Unknown command {line}\n".encode())

    return talk


class Server:
    """RAS of this process, in a thread: each connection gets the next talk, all others the last one."""

    def __init__(self, *talks: Talk, port: int = 0) -> None:
        self.asked: list[str] = []
        self.connections = 0
        self._talks = talks
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._listening.bind(("127.0.0.1", port))
        self._listening.listen(16)
        self.port: int = self._listening.getsockname()[1]
        self._open = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._open.append(connection)
                talk = self._talks[min(self.connections, len(self._talks) - 1)]
                self.connections += 1
                threading.Thread(target=self._talk, args=(connection, talk), daemon=True).start()

    def _talk(self, connection: socket.socket, talk: Talk) -> None:
        with connection, contextlib.suppress(OSError):
            talk(connection, self.asked)

    def close(self) -> None:
        """End it."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


if __name__ == "__main__":
    # A rank of its own: it listens at a port, and does not hear of the processes named after it.
    lost = [Missing(number, int(pid)) for number, pid in enumerate(sys.argv[2:], 1)]
    (whole,) = job([os.getpid()])
    Server(nccl(body([whole._replace(missing=lost)])), port=int(sys.argv[1]))
    print("listens", flush=True)
    sys.stdin.read()
