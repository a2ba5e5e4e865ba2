"""This machine as a node."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from cockpit.transport.local import LocalTransport
from tests.waiting import soon


def pipes() -> set[str]:
    """The pipes and sockets that this process has open."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one with which the folder was read
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return {name for name in found if name.startswith(("pipe:", "socket:"))}


def test_a_child_that_is_left_behind_keeps_no_files_of_ours_open() -> None:
    async def main() -> None:
        before = pipes()
        transport = LocalTransport("here")
        pipe = await transport.open("sleep 1000 & echo $!; exec cat")
        child = int(await pipe.read(100))
        try:
            assert pipes() - before
            await transport.close()
            os.kill(child, 0)
            await soon(lambda: not pipes() - before, "all is closed")
        finally:
            os.kill(child, 9)

    asyncio.run(main())
