"""Torch's worker server in a rank: starting it unnoticed by the program, and asking what it offers.

Read as a file by ``hooks``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from typing import Callable

CRASHES = ("SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP")
"""Signals that a thread sends to itself: blocked, they end the process and no handler is called."""

ASK_S = 1.0
"""For the server to list its handlers, where only itself can say it."""


def unheard(start: Callable[[], None]) -> None:
    """Call it so that the threads it starts get no signal, and its line on stderr goes nowhere."""
    masked(lambda: _quietly(start))


def masked(start: Callable[[], object]) -> None:
    """Call it so that the threads it starts get no signal.

    Threads have the mask of who started them. A signal that the program blocks in its own, to wait for it,
    would be delivered to any other, and by default end the process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    crashes = {getattr(signal, name) for name in CRASHES}
    try:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - crashes)
            start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:  # again: the first may have been cut short by the handler of a signal
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _quietly(start: Callable[[], None]) -> None:
    """Call it; what the server says on stderr goes nowhere, what others say meanwhile goes there."""
    try:
        kept = os.dup(2)
    except OSError:
        start()
        return
    memory = -1
    try:
        memory = os.memfd_create("stderr")
        os.dup2(memory, 2)
        try:
            start()
        finally:
            os.dup2(kept, 2)
            lines = os.pread(memory, 1 << 16, 0).splitlines(True)
            with contextlib.suppress(OSError):
                os.write(2, b"".join(line for line in lines if b"WorkerServer" not in line))
    finally:
        os.dup2(kept, 2)  # again: what went before may have been cut short
        os.close(kept)
        if memory >= 0:
            os.close(memory)


def offered(address: str) -> list[str]:
    """The handlers of the server, as it says itself: before torch 2.10 nothing else knows them."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(ASK_S)
        asking.connect(address)
        asking.sendall(b"GET /handler/ HTTP/1.0\r\nHost: rank\r\nConnection: close\r\n\r\n")
        said = b""
        while len(said) < 1 << 16:
            more = asking.recv(1 << 14)
            said += more
            if not more:
                break
    return sorted(map(str, json.loads(said.partition(b"\r\n\r\n")[2])))
