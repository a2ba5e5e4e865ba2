"""What the app has open of a run is closed when it ends."""

from __future__ import annotations

import asyncio

from tests.open_files import open_files
from tests.tui.scenes import SCENES, played


def spool_files() -> set[str]:
    """The files of runs that this process has open."""
    return {path for _, path in open_files() if "/spool/" in path}


def test_no_log_stays_open() -> None:
    before = spool_files()  # of tests that ran in this process earlier

    async def main() -> None:
        async with played(SCENES["running"], (140, 45)):
            assert spool_files() - before

    asyncio.run(main())
    assert spool_files() <= before
