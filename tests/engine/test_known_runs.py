"""The list of known runs is read again whenever a run appears or disappears."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from cockpit import paths
from cockpit.engine.known_runs import KnownRuns
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry


def made(name: str) -> None:
    RunFolder.create(Manifest(name, 0.0, [NodeEntry("a", "/none/a", [0])], "command", ["true"], "/"))


@pytest.mark.parametrize("passed_s", [0.0, 60.0])
def test_a_run_that_comes_within_the_tick_of_the_folder_s_time_is_not_missed(
    monkeypatch: pytest.MonkeyPatch, passed_s: float
) -> None:
    """One that comes much later changes that time: until then nothing is read again."""
    made("first")
    then = os.stat(paths.runs())
    monkeypatch.setattr(time, "time", lambda: then.st_mtime + passed_s)
    known = KnownRuns()

    async def main() -> None:
        await known.read()
        known.take()
        made("second")
        os.utime(paths.runs(), ns=(then.st_atime_ns, then.st_mtime_ns))
        await known.read()
        known.take()

    asyncio.run(main())
    assert sorted(known.runs) == (["first"] if passed_s else ["first", "second"])
