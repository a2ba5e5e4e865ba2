"""``cockpit clean``: what it lists, asks and removes; ages and sizes as people type them."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
from pathlib import Path

import pytest

from cockpit.cli.main import main
from cockpit.cli.parsing import age, byte_count
from cockpit.core.run.cleaning import Wanted
from cockpit.engine.clean import removal
from cockpit.engine.clean.survey import Survey, survey
from cockpit.engine.collect import collect
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.run.join import Pools
from cockpit.errors import Exit
from tests.cli.schemas import fits
from tests.cli.verbs import Verbs
from tests.engine.test_one_link import running
from tests.waiting import soon


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 2592000), ("1.5h", 5400), ("90m", 5400), ("0s", 0), ("2w", 1209600)]
)
def test_ages(text: str, seconds: float) -> None:
    assert age(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("512", 512), ("5B", 5), ("500M", 500_000_000), ("1.5g", 1_500_000_000), ("2GiB", 2 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert byte_count(text) == size


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "nan", "1e9d", "9999999999d", "1 d", "١d"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a length of time"):
        age(text)


@pytest.mark.parametrize("text", ["", "G", "-1", "1X", "1iB", "nan", "1e3", "1 G", "9" * 16])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a size"):
        byte_count(text)


@pytest.fixture
def world(tmp_path: Path, quick_cockpit: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Verbs:
    """Two runs on this machine: one that ended well, one that failed."""
    made = Verbs(tmp_path / "state", tmp_path / "work", quick_cockpit)
    for name, script in (("well", "exit 0\n"), ("badly", "exit 3\n")):
        made.call(*made.words(name, script))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return made


def on_nodes(world: Verbs) -> list[str]:
    return sorted(path.parent.name for path in world.work.glob("nodes/cockpit-*/*/localhost"))


def test_lists_then_removes(world: Verbs) -> None:
    listed = world.call("clean", "--older-than", "0s")
    assert listed.code == Exit.OK
    assert "nothing removed; select runs with" in listed.err
    assert [line.split()[:2] for line in listed.out.splitlines()] == [
        ["RUN", "STATE"],
        ["well", "ended"],
        ["badly", "failed"],
    ]
    listed = world.call("clean", "--state", "failed")  # nobody can be asked
    assert "nothing removed; to remove what doesn't stay, add --yes" in listed.err
    assert on_nodes(world) == ["badly", "well"]
    done = world.call("clean", "--state", "failed", "--yes", "--json")
    told = json.loads(done.out)
    fits("clean", told)
    assert done.code == Exit.OK
    (run,) = told["runs"]
    assert (run["run"], run["state"], run["removed"], run["left"]) == ("badly", "failed", True, {})
    assert told["freed"]["here"] > 0
    assert told["freed"]["nodes"] > 1_000_000
    assert on_nodes(world) == ["well"]
    assert sorted(os.listdir(world.runs)) == ["well"]
    assert world.call("clean", "badly").code == Exit.USAGE


@pytest.mark.slow
def test_a_run_that_is_known_nowhere_goes_only_by_its_name(world: Verbs) -> None:
    here = world.call("clean", "badly", "--here", "--yes")
    assert here.code == Exit.OK, here.both
    assert on_nodes(world) == ["badly", "well"]
    listed = world.call("clean", "--keep", "1", "--yes")
    assert "run folders on nodes" not in listed.out  # no node was asked
    look = ("clean", "--keep", "5", "-w", "localhost", "--transport", "local", "--node-dir")
    where = str(world.work / "nodes")
    listed = world.call(*look, where, "--yes")
    assert "badly" in listed.out
    assert on_nodes(world) == ["badly", "well"]
    wrong = world.call(*look, where, "--unknown", "nobody", "--yes")
    assert wrong.code == Exit.USAGE
    assert "no folder of an unknown run of this name" in wrong.err
    unended = world.call(*look, where, "--unknown", "well", "--yes")
    assert unended.code == Exit.USAGE  # it is known
    done = world.call(*look, where, "--unknown", "badly", "--yes", "--json")
    fits("clean", json.loads(done.out))
    assert json.loads(done.out)["unknown"][0]["removed"]
    assert on_nodes(world) == ["well"]


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "goes"), [("y", True), ("", False)])
def test_a_person_is_asked(typed: str, goes: bool, world: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("XDG_STATE_HOME", str(world.state))
    monkeypatch.setattr("sys.stdin", Terminal(f"{typed}\n"))
    asked = Terminal()
    monkeypatch.setattr("sys.stderr", asked)
    assert main(["clean", "well"]) == Exit.OK
    assert "Remove 1 run for good (" in asked.getvalue()
    assert ("well" not in on_nodes(world)) is goes


@pytest.mark.slow
def test_over_ssh_a_run_stays_until_it_has_ended_and_its_reports_are_here(tmp_path: Path) -> None:
    """Two nodes behind a real ssh server, whose run folders are in one place."""

    async def look(pools: Pools, wanted: Wanted) -> tuple[str, Survey]:
        found = await survey(list_runs(), pools, wanted, {})
        return wanted.why_kept(found.runs[0]), found

    async def main() -> None:
        async with running(tmp_path) as (session, _), Pools(15.0) as pools:
            wanted, path = Wanted(), session.folder.path
            why, _ = await look(pools, Wanted(unended=True, uncollected=True))
            assert "controls this run" in why
            session.folder.writer.give_up()
            why, _ = await look(pools, Wanted(unended=True, uncollected=True))
            assert why.startswith("it is running")
            await session.stop("over", hard=True)
            await soon(lambda: session.model.done)
            while (why := (await look(pools, wanted))[0]).startswith("it is running"):
                pass  # its supervisor has said its last word, and is about to end
            assert why.startswith("2 reports on gpu[1-2] not collected")
            await collect(RunFolder(path), session.pool, path / "reports")
            why, found = await look(pools, wanted)
            assert why == ""
            assert all(part.bytes > 1_000_000 for part in found.runs[0].parts.values())
            done = await removal.remove(found.runs[0], RunFolder(path), found, wanted)
            assert (done.gone, done.left) == (True, {})
            assert list(tmp_path.glob("nodes/cockpit-*/*")) == []
            assert list_runs() == []

    asyncio.run(main())
