"""The watch over real processes: a stall is named unasked, taken back, and stopped if that was asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.engine.records.folder import RunFolder
from cockpit.engine.stacks import saved
from cockpit.errors import Exit
from tests.waiting import PATIENCE_S, until
from tests.watch.ranks import RANKS, let_go, written

RUN = "stalls"

ENOUGH = 50
"""Steps after which the watch mostly knows how often logs tell of one, so that it waits ten times less."""
STOP_AFTER_S = 8


class Cockpit:
    """A cockpit in the background, and what it tells."""

    def __init__(self, folder: Path, name: str, *words: str) -> None:
        self._file = folder / f"{name}.jsonl"
        self._errors = folder / f"{name}.err"
        with self._file.open("wb") as out, self._errors.open("wb") as err:
            command = [sys.executable, "-m", "cockpit", words[0], "--json", "--headless", *words[1:]]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What it has told of this kind."""
        lines = self._file.read_bytes().rpartition(b"\n")[0].splitlines()
        found = (json.loads(line) for line in lines)
        return [event for event in found if event["event"] == kind]

    def steps(self) -> int:
        """How many steps it has told of."""
        return sum(event["text"].startswith("step ") for event in self.events("log"))

    def told(self, what: str, fits: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait until the newest event of its watch fits; that event."""

        def newest() -> dict[str, Any] | None:
            events = self.events("watch")
            return events[-1] if events and fits(events[-1]) else None

        try:
            found = until(newest, what)
        except AssertionError:
            print(self._errors.read_text()[-3000:], self.events("watch"))
            raise
        assert found is not None
        return found

    def ends(self) -> int:
        """Its exit code."""
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the program is; it is ended in the end."""
    made = tmp_path / "work"
    made.mkdir()
    written(made)
    (made / "nodes").mkdir()
    yield made
    (made / "end").touch()
    subprocess.run([sys.executable, "-m", "cockpit", "stop", RUN, "--now"], capture_output=True, check=False)


@pytest.fixture
def started(folder: Path) -> Iterator[Callable[..., Cockpit]]:
    """Starts cockpits: a name, and words."""
    made: list[Cockpit] = []

    def start(name: str, *words: str) -> Cockpit:
        made.append(Cockpit(folder, name, *words))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()


def run_words(folder: Path, *options: str) -> list[str]:
    """The words of ``cockpit run``."""
    (folder / "hosts").write_text(f"localhost slots={RANKS}\n")
    here = ["--transport", "local", "--launcher", "command", "--no-preflight", "--probe", "off"]
    where = ["--cwd", str(folder), "--node-dir", str(folder / "nodes"), "--name", RUN, "--grace", "2"]
    program = [sys.executable, str(folder / "train.py")]
    return ["run", *here, *where, "--hang-after", "3", *options, str(folder / "hosts"), "--", *program]


@pytest.mark.slow
def test_two_cockpits_see_a_stall_that_resolves_itself_and_whoever_takes_over_stops_the_next_one(
    folder: Path, started: Callable[..., Cockpit]
) -> None:
    first = started("first", *run_words(folder))
    until(lambda: first.steps() > ENOUGH, "steps")
    stops = ["--hang-after", "3", "--on-hang", "stop", "--stop-after", f"{STOP_AFTER_S}"]
    second = started("second", "attach", RUN, *stops)
    until(lambda: second.steps() > 0, "the other one follows")

    (folder / "spin").touch()
    moving = first.told("a look at ranks of which one moves", lambda event: event["found"])
    assert moving["state"] == "quiet", moving
    assert "train.py:" in moving["found"]["where"], moving
    (folder / "spin").unlink()
    first.told("steps again", lambda event: event["state"] == "going")
    more_steps(first)

    (folder / "hang").touch()
    stalled = first.told("a stall", lambda event: event["state"] == "stalled")
    assert stalled["found"]["ranks"] == [RANKS - 1], stalled["found"]
    assert "read_shard" in stalled["found"]["where"]
    assert stalled["waiting"] == list(range(RANKS - 1))
    assert stalled["since"] < stalled["t"] - 3
    run = RunFolder.find(RUN)
    snapshot = saved.load(run.path / "stacks" / stalled["snapshot"])
    assert len(snapshot.samples) == 2
    assert set(snapshot.ranks) == set(range(RANKS))

    seen = second.told("the same in the other cockpit", lambda event: event["state"] == "stalled")
    assert seen["found"] == stalled["found"]
    assert seen["t"] == stalled["t"]

    let_go(folder)
    for one in (first, second):
        one.told("steps again", lambda event: event["state"] == "going")
    seen_too = second.events("watch")
    until(lambda: all(event in first.events("watch") for event in seen_too), "one cockpit looks")
    assert second.events("stop_asked") == []

    first.process.kill()
    first.process.wait()
    until(lambda: any("controls the run" in event["text"] for event in second.events("note")), "an heir")
    more_steps(second)
    (folder / "hang").touch()
    # Nothing proves that a call that blocks will not return: it stops the run after the time that was named.
    asked, told = stopped(second)
    assert told["found"]["proof"] == ""
    assert told["found"]["ranks"] == [RANKS - 1]
    assert told["still_s"] >= STOP_AFTER_S
    assert asked["reason"].startswith("no step and no movement for ")
    assert f"rank {RANKS - 1}" in asked["reason"]


def more_steps(cockpit: Cockpit) -> None:
    """Wait until the watch knows again how long a step takes: those that came together after a pause do not
    tell.
    """
    told = cockpit.steps()
    until(lambda: cockpit.steps() > told + ENOUGH, "more steps")


def stopped(cockpit: Cockpit) -> tuple[dict[str, Any], dict[str, Any]]:
    """Wait until a cockpit has stopped the run: why, and what its watch had said before."""
    assert cockpit.ends() == Exit.HUNG
    (asked,) = cockpit.events("stop_asked")
    assert asked["by"] == "the watch"
    told = [event for event in cockpit.events("watch") if event["snapshot"]]
    assert told[-1]["t"] <= asked["t"], "evidence first"
    run = RunFolder.find(RUN)
    assert saved.is_snapshot(run.path / "stacks" / told[-1]["snapshot"])
    (over,) = cockpit.events("over")
    assert over["exit"] == Exit.HUNG
    model = run.model()
    assert model.hung
    assert model.exit_code() is Exit.HUNG
    return asked, told[-1]


@pytest.mark.slow
def test_a_run_that_is_proven_to_be_stuck_is_stopped_if_that_was_wanted(
    folder: Path, started: Callable[..., Cockpit]
) -> None:
    cockpit = started("stops", *run_words(folder, "--on-hang", "stop"))
    until(lambda: cockpit.steps() > ENOUGH, "steps")
    pid = RunFolder.find(RUN).model().ranks[2].pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    asked, told = stopped(cockpit)
    assert told["found"]["proof"] == "stop"
    assert "rank 2 is stopped" in asked["reason"]
    assert asked["reason"].endswith("; proof: a signal has stopped it")


def test_without_the_watch_nothing_is_looked_at(folder: Path, started: Callable[..., Cockpit]) -> None:
    cockpit = started("blind", *run_words(folder, "--no-watch"))
    until(lambda: cockpit.steps() > 5, "steps")
    (folder / "end").touch()
    assert cockpit.ends() == Exit.OK
    assert cockpit.events("watch") == []
