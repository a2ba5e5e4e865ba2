"""What is said while nodes are awaited, and that verbs over many runs and nodes ask them all at once."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cockpit.cli import awaiting, unfinished_starts
from cockpit.cli.awaiting import telling
from cockpit.cli.verbs import ps
from cockpit.engine.launch.all_or_none import unfinished
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.folder import Manifest, NodeEntry, RunFolder, planned
from cockpit.transport.base import ConnectStage, LinkError
from tests.transport.sshserver import Place
from tests.waiting import soon


def stays(roll: Roll, node: str, stage: ConnectStage, seconds: float) -> None:
    """A node has been at one stage for so long."""
    roll.awaited[node].reach(stage)
    roll.awaited[node].since -= seconds


def test_errors_as_they_come_and_who_is_awaited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(awaiting, "FIRST_S", 0.3)
    monkeypatch.setattr(awaiting, "EVERY_S", 0.4)
    said = ""

    def heard(words: str, times: int = 1) -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said.count(words) >= times

    async def main() -> None:
        roll = Roll(f"gpu{number:02}" for number in range(1, 9))
        async with telling(lambda: roll) as teller:
            for node in ("gpu01", "gpu02"):
                roll.answer(node)
            for node in ("gpu03", "gpu04", "gpu05"):
                stays(roll, node, ConnectStage.DIALING, 12)
            stays(roll, "gpu06", ConnectStage.LOGIN, 3)
            roll.fail("gpu08", LinkError("connection refused", where="gpu08", hint="start sshd"))
            await soon(lambda: heard("cockpit: gpu08: connection refused; start sshd\n"))
            await soon(lambda: heard("2 of 8 nodes answered, 1 failed; no answer yet: "))
            # The seconds of this test come on top.
            assert re.search(r"gpu07 for \d+ s \(its turn to connect\), gpu\[03-05\] for [1-9]\d s ", said)
            assert re.search(r" s \(the connection\), gpu06 for \d+ s \(the login\)\n", said)
            await soon(lambda: heard("2 of 8 nodes answered", 2))
            for node in list(roll.awaited):
                roll.answer(node)
        assert teller.told == {"gpu08: connection refused; start sshd"}

    asyncio.run(main())
    assert said.count("gpu08: connection refused") == 1


def made(run: str, node: str, config: Path) -> RunFolder:
    """A run that was launched on a node, as far as is known here."""
    entries = [NodeEntry(node, f"/tmp/cockpit-0/{run}/{node}", [0])]
    manifest = Manifest(run, time.time(), entries, "command", ["true"], "/", transport="ssh")
    folder = RunFolder.create(replace(manifest, transport_options={"config": str(config)}))
    folder.write(planned(folder.manifest))
    folder.close()
    return folder


def test_ps_asks_all_runs_at_once_and_lists_who_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(unfinished_starts, "PATIENCE_S", 2.0)
    place = Place(tmp_path)
    folders = [made("one", "silent", place.config), made("two", "silent", place.config)]
    most = now = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        while await reader.read(1 << 16):
            pass
        now -= 1
        writer.close()

    async def main() -> list[dict[str, object]]:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        place.knows("silent", server.sockets[0].getsockname()[1])
        try:
            return await ps._rows(folders, connect=True)
        finally:
            server.close()

    rows = asyncio.run(main())
    assert [row["unreachable"] for row in rows] == [["silent"], ["silent"]]
    assert [row["state"] for row in rows] == ["unknown: no node answers"] * 2
    assert most == 2


def test_a_run_that_was_found_on_its_nodes_is_not_one_whose_start_was_cut_off(tmp_path: Path) -> None:
    assert not unfinished(made("adopted", "gpu01", tmp_path))
