"""Ports for programs that are told where to listen."""

from __future__ import annotations

import random
import socket

FIRST, END = 10_000, 32_768
"""From END on, the kernel gives ports to whoever connects: one that is free now may be taken then."""


def free_port() -> int:
    """A TCP port of this machine on which nobody listens, and which nobody gets by chance."""
    for number in random.SystemRandom().sample(range(FIRST, END), 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                continue
            return number
    raise AssertionError("no port is free")
