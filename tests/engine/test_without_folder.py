"""A run whose run folder is wiped while it runs: ps, attach and stop tell the truth, and stop ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cockpit.base import events, record
from cockpit.base.answers import Remains
from cockpit.base.shared_fields import Target
from cockpit.core.run.events import Event
from cockpit.core.run.model import RankState, RunModel
from cockpit.engine.run.join import still_there
from cockpit.node import procfs
from tests.engine.watched import Watched
from tests.node.runs import alive, program
from tests.stderr_lines import messages
from tests.waiting import PATIENCE_S, until, until_removed

RANK = """trap 'exit 0' TERM
echo ready
sleep 1000 &
wait
"""


class Wiped:
    """A live run of two ranks, watched by a cockpit of its own; its run folder can be removed."""

    def __init__(self, folder: Path, quick: tuple[str, ...]) -> None:
        self.folder, self._quick = folder, quick
        # By its name its processes are found, and tests may run side by side.
        self.name = f"wiped-{uuid4().hex}"
        train = program(folder / "train", RANK)
        (folder / "hostfile").write_text("localhost slots=2\n")
        words = ["run", "hostfile", "--name", self.name, "--transport", "local", "--launcher", "command"]
        words += ["--headless", "--json", "--on-failure", "wait", "--node-dir", str(folder / "nodes")]
        self.cockpit = Watched([*words, "--", str(train)], folder)
        self.pids = [self.cockpit.event("rank_started", rank=rank)["pid"] for rank in (0, 1)]
        for rank in (0, 1):
            self.cockpit.event("log", rank=rank, text="ready")
        [run_folder] = folder.glob(f"nodes/*/{self.name}/localhost")
        for rank in (0, 1):
            until((run_folder / record.rank_environ(rank)).exists, "all that is written at a start")
        self.supervisor: int = json.loads((run_folder / record.RECORD).read_text())["supervisor"]["pid"]

    def wipe(self, *, supervisor: bool) -> None:
        """Remove all run folders, and kill the supervisor where it is not to live on."""
        if not supervisor:
            os.kill(self.supervisor, signal.SIGKILL)
            until(lambda: not alive(self.supervisor), "the supervisor is gone")
        until_removed(self.folder / "nodes")

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another cockpit."""
        return subprocess.run(
            [*self._quick, *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    def shown(self) -> dict[str, Any]:
        """What ``ps`` shows of the run."""
        found: dict[str, Any] = json.loads(self.ask("ps", self.name, "--json").stdout)
        return found

    def clean(self) -> None:
        """End all that is left, without our own code for that."""
        self.cockpit.process.kill()
        self.cockpit.process.wait()
        while left := procfs.tagged(self.name, "localhost"):
            for one in left:
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
        until(lambda: not alive(self.supervisor), "the supervisor ended")


STARTED = events.RankStarted(0, pid=10, ticks=1)
ENDS: dict[str, events.Fact | None] = {
    "running": None,
    "missed once": events.RankLost(0, 0, 10, "is gone", by="agent"),
    "recorded": events.RankExited(0, 0, 10, signal=9),
}


@pytest.mark.parametrize("pid", [10, 11])
@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_is_there_is_told_once_and_takes_nothing_back_that_was_recorded(
    end: str, pid: int
) -> None:
    told: list[events.Fact] = [STARTED, *filter(None, [ENDS[end]])]
    model = RunModel.of(
        [Event(1.0, "", events.Planned({"a": (0,)})), *(Event(2.0, "a", fact) for fact in told)]
    )
    gone = Remains("the run folder is gone", (Target(0, pid, 7),))
    for event in still_there(model, "a", gone):
        model.apply(event)
    assert still_there(model, "a", gone) == [], "told each time"
    state = RankState.KILLED if end == "recorded" else RankState.RUNNING
    assert (model.ranks[0].state, model.ranks[0].pid) == (state, 10 if end == "recorded" else pid)


@pytest.fixture
def wiped(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> Iterator[Wiped]:
    """The run, still with its folder."""
    run = Wiped(tmp_path, quick_cockpit)
    yield run
    run.clean()


def unreadable(watched: Watched) -> None:
    """Wait until it says that logs and record are gone: that there are no measurements, it may say before."""
    said = "can no longer be read"
    until(lambda: any(said in note["text"] for note in watched.events("note")), "it says that all is gone")


@pytest.mark.slow
@pytest.mark.parametrize("supervisor", [True, False])
def test_ranks_run_and_stop_ends_them(wiped: Wiped, supervisor: bool) -> None:
    wiped.wipe(supervisor=supervisor)
    unreadable(wiped.cockpit)

    shown = wiped.shown()
    assert [(rank["rank"], rank["text"], rank["pid"]) for rank in shown["ranks"]] == [
        (0, "running", wiped.pids[0]),
        (1, "running", wiped.pids[1]),
    ]
    assert shown["state"] == "running"
    assert any("can no longer be read" in note for note in shown["nodes"][0]["notes"])

    os.kill(wiped.pids[1], signal.SIGKILL)
    assert "how it ended" in wiped.cockpit.event("rank_lost", rank=1)["why"]
    assert [rank["text"].partition(":")[0] for rank in wiped.shown()["ranks"]] == ["running", "lost"]

    stopped = wiped.ask("stop", wiped.name, "--json")
    sent = ["cockpit: localhost: sent SIGTERM to its ranks"] if supervisor else []
    assert (stopped.returncode, messages(stopped.stderr)) == (0, sent)
    assert json.loads(stopped.stdout)["survivors"] == {}
    assert not any(map(alive, [*wiped.pids, wiped.supervisor]))
    assert not procfs.tagged(wiped.name, "localhost")
    wiped.cockpit.event("node_lost")
    assert wiped.cockpit.process.wait(PATIENCE_S) == 1
    assert not wiped.cockpit.events("link", state="gone")
    # Once more: there is nothing to stop.
    assert wiped.ask("stop", wiped.name).returncode == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("supervisor", [True, False])
def test_the_cockpit_that_watches_stops_it(wiped: Wiped, supervisor: bool) -> None:
    wiped.wipe(supervisor=supervisor)
    unreadable(wiped.cockpit)
    os.kill(wiped.cockpit.process.pid, signal.SIGTERM)
    wiped.cockpit.event("stop_asked")
    wiped.cockpit.event("node_lost")
    assert wiped.cockpit.process.wait(PATIENCE_S) == 1
    assert not any(map(alive, [*wiped.pids, wiped.supervisor]))


@pytest.mark.slow
def test_who_attaches_sees_that_it_runs(wiped: Wiped) -> None:
    wiped.wipe(supervisor=True)
    unreadable(wiped.cockpit)
    os.kill(wiped.cockpit.process.pid, signal.SIGKILL)
    wiped.cockpit.process.wait()
    (wiped.folder / "second").mkdir()
    second = Watched(["attach", wiped.name, "--headless", "--json"], wiped.folder / "second")
    try:
        unreadable(second)
        assert not second.events("rank_lost")
        assert wiped.ask("stop", wiped.name).returncode == 0
        second.event("node_lost")
        assert second.process.wait(PATIENCE_S) == 1
    finally:
        second.process.kill()
        second.process.wait()
