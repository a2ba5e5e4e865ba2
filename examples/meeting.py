"""A barrier without torch: ranks meet over TCP at ``MASTER_ADDR:MASTER_PORT``, where rank 0 counts them.

Only for the examples: anybody who reaches that port may take part.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import faults

CONNECT_S = 120.0
"""For all ranks to be there: some start much later than others."""
COUNTS = b"0"
"""What rank 0 says instead of a dot."""


class Meeting:
    """All ranks of a job, which wait for each other.

    :raises OSError: rank 0 is not to be reached
    """

    def __init__(self) -> None:
        rank, world = faults.env_int("RANK", 0), faults.env_int("WORLD_SIZE", 1)
        place = (faults.env("MASTER_ADDR", "127.0.0.1"), faults.env_int("MASTER_PORT", 29500))
        if rank == 0:
            listener = socket.create_server(place, backlog=world)
            threading.Thread(target=_count, args=(listener, world), daemon=True).start()
        self._counter = _reach(place)
        self._word = COUNTS if rank == 0 else b"."

    def barrier(self) -> None:
        """Return once every rank that still runs is here.

        :raises ConnectionError: rank 0 has ended
        """
        self._counter.sendall(self._word)
        if not self._counter.recv(1):
            raise ConnectionError("rank 0 is gone; nobody counts the ranks")


def _reach(place: tuple[str, int]) -> socket.socket:
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            found = socket.create_connection(place, timeout=CONNECT_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            found.settimeout(None)
            return found


def _count(listener: socket.socket, world: int) -> None:
    """Let everybody go on when all have come; who has ended is not waited for."""
    here = [listener.accept()[0] for _ in range(world)]
    while here:
        words = {one: _heard(one) for one in here}
        # The rank whose process counts comes last: it may end as soon as it goes on, and the count with it.
        here = sorted(filter(words.get, here), key=lambda one: words[one] == COUNTS)
        for one in here:
            with suppress(OSError):
                one.sendall(b".")


def _heard(one: socket.socket) -> bytes:
    try:
        return one.recv(1)
    except OSError:
        return b""
