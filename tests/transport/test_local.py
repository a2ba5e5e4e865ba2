"""This machine as a node."""

from __future__ import annotations

import asyncio
import gc
import os

import pytest

from cockpit.transport.base import LinkError
from cockpit.transport.local import LocalTransport
from tests.open_files import open_files
from tests.waiting import soon


def pipes() -> set[str]:
    """The pipes and sockets that this process has open."""
    return {name for _, name in open_files() if name.startswith(("pipe:", "socket:"))}


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


def test_a_child_that_ends_while_it_is_written_to_is_one_error(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        transport = LocalTransport("here")
        pipe = await transport.open("head -c 1000 >/dev/null")
        with pytest.raises(LinkError, match=r"^here: pipe closed$"):
            await pipe.write(b"x" * (8 << 20))
        await transport.close()

    asyncio.run(main())
    gc.collect()
    assert caplog.text == ""
