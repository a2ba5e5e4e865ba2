"""A start that is interrupted at any moment leaves nothing, or what it leaves is told as it is."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.stderr_lines import messages
from tests.waiting import PATIENCE_S, until

MOMENTS = [("connecting", 0.0), *(("ready", s / 100) for s in (0, 2, 5, 9, 15))]
"""A word of the narration, and seconds after it: the launch begins right after ``ready``."""

SIGNALS = {
    signal.SIGINT: [MOMENTS[0], MOMENTS[1], MOMENTS[3], MOMENTS[5]],
    signal.SIGKILL: MOMENTS,
    # To cockpit they are what SIGINT is.
    signal.SIGTERM: [MOMENTS[0], MOMENTS[2]],
    signal.SIGHUP: [MOMENTS[0], MOMENTS[3]],
}


HOLDS = """
import asyncio, os, sys
from cockpit.base import verbs
from cockpit.cli.main import main
from cockpit.engine.links.link import Link
call = Link.call
async def held(link, request, *rest, **named):
    while isinstance(request, verbs.Launch) and link.node == "127.0.0.1" and not os.path.exists({go!r}):
        await asyncio.sleep(0.02)
    return await call(link, request, *rest, **named)
Link.call = held
sys.exit(main())
"""
"""A cockpit that asks the second node to launch once there is a file."""

CUT = """
import os, sys
from cockpit.cli.main import main
from cockpit.engine.launch import start
start.launch = lambda *_: os._exit(9)
sys.exit(main())
"""
"""A cockpit that is killed before it has asked any node to launch."""


class Home:
    """Cockpits of one test, with folders of their own here and on the two nodes, which are this machine."""

    def __init__(self, folder: Path, quick: tuple[str, ...]) -> None:
        self._quick = quick
        self.go = folder / "go"
        self.node_dir = folder / "nodes"
        self.node_dir.mkdir()
        self.hostfile = folder / "hostfile"
        self.hostfile.write_text("localhost slots=1\n127.0.0.1 slots=1\n")

    def start(self, run: str, program: str = "") -> subprocess.Popen[str]:
        """A ``cockpit run`` of ranks that sleep.

        :param program: what is cockpit; empty: cockpit itself
        """
        words = ["run", "--plain", "--transport", "local", "--launcher", "command", "--name", run]
        words += ["--node-dir", str(self.node_dir), "--python", sys.executable, str(self.hostfile)]
        cockpit = ["-c", program] if program else ["-m", "cockpit"]
        return subprocess.Popen(
            [sys.executable, *cockpit, *words, "--", "sleep", "600"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def cockpit(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Any other verb: it comes to an end."""
        done = subprocess.run(
            [*self._quick, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def row(self, run: str) -> dict[str, Any] | None:
        """What ``ps`` says of a run."""
        rows = json.loads(self.cockpit("ps", "--json").stdout)
        return next((row for row in rows if row["run"] == run), None)

    def run_folders(self, run: str) -> list[Path]:
        """What there is of a run on the nodes."""
        return list(self.node_dir.glob(f"*/{run}/*"))


def tagged(run: str) -> list[psutil.Process]:
    """Processes that carry the tag of a run."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("COCKPIT_RUN") == run and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def home(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> Iterator[Home]:
    """Whatever a test leaves running is ended."""
    made = Home(tmp_path, quick_cockpit)
    yield made
    for folder in made.node_dir.glob("*/*"):
        for process in tagged(folder.name):
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=number.name, marks=[pytest.mark.campaign] * (number != signal.SIGINT))
        for number in SIGNALS
    ],
)
def test_interrupted_at_any_moment(home: Home, number: signal.Signals) -> None:
    seen = set()
    for index, (word, delay) in enumerate(SIGNALS[number]):
        run = f"run-{number.name.lower()}-{index}"
        code, said = interrupt(home, run, number, word, delay)
        seen.add(check(home, run, code, said, f"{number.name} {delay} s after {word!r}"))
    assert "nothing" in seen


def interrupt(home: Home, run: str, number: signal.Signals, word: str, delay: float) -> tuple[int, str]:
    """Start, send a signal at a moment; return the exit code and what was said."""
    process = home.start(run)
    assert process.stderr
    said = ""
    while word not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    time.sleep(delay)  # the moments are what is tested
    process.send_signal(number)
    with process.stderr:
        said += process.stderr.read()
    return process.wait(PATIENCE_S), said


def check(home: Home, run: str, code: int, said: str, when: str) -> str:
    """What is there is what is told: ``nothing`` is left, it ``never`` started, or it ``runs`` on."""
    assert "Traceback" not in said, (when, said)
    row = home.row(run)
    if row is None:
        assert not home.run_folders(run), (when, said)
        until(lambda: not tagged(run), f"{when}: nothing runs")
        assert code in (130, -signal.SIGKILL), (when, said)
        return "nothing"
    if row["state"] == "never started":
        until(lambda: not tagged(run), f"{when}: nothing runs")
        # An agent that ended while it launched may have left a folder: without a record it is no run.
        assert not [folder for folder in home.run_folders(run) if (folder / "record.json").exists()], when
        for words in (["attach", "--plain", run], ["logs", "-f", run]):
            done = home.cockpit(*words)
            assert done.returncode == 2, (when, done.stderr)
            (line,) = messages(done.stderr)
            assert "never started" in line
        done = home.cockpit("stop", run)
        assert (done.returncode, done.stdout) == (0, f"{run}: nothing to stop: never started\n"), when
        return "never"
    # On one node only, where it was cut off between the two.
    half = re.match(r"failed: rank \d lost: no run record in ", row["state"])
    assert half or row["state"] in ("running", "starting", "ending"), (when, row, said)
    assert home.run_folders(run), when
    done = home.cockpit("stop", run, "--now")
    assert done.returncode == 0, (when, done.stderr)
    until(lambda: not tagged(run), f"{when}: stopped")
    return "runs"


@pytest.mark.slow
def test_a_start_that_waits_for_a_launch_takes_back_what_was_launched(home: Home) -> None:
    """One node has launched, and is taken back once the other one has answered."""
    process = home.start("slow", HOLDS.format(go=str(home.go)))
    assert process.stderr
    until(lambda: tagged("slow"), "one node has launched")
    process.terminate()
    line = process.stderr.readline()
    while "interrupted" not in line:
        line = process.stderr.readline()
        assert line
    home.go.touch()
    assert process.wait(PATIENCE_S) == 130
    with process.stderr:
        assert "nothing was started" in process.stderr.read()
    assert home.row("slow") is None
    until(lambda: not tagged("slow"))
    assert not home.run_folders("slow")


@pytest.mark.slow
def test_a_folder_without_a_launch_is_told_so_without_asking(home: Home) -> None:
    process = home.start("cut", CUT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 9
    row = home.row("cut")
    assert row is not None
    assert row["state"] == "never started"
    done = home.cockpit("ps", "cut")
    assert done.returncode == 0
    assert done.stdout.startswith(f"cut: {row['state']}\n")


@pytest.mark.slow
def test_a_start_cut_off_between_two_nodes_is_told_and_stopped(home: Home) -> None:
    """One node has launched, the other was never asked: its ranks are lost, and the others can be stopped."""
    process = home.start("half", HOLDS.format(go=str(home.go)))
    until(lambda: tagged("half"), "one node has launched")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    row = until(lambda: (row := home.row("half")) and row["running"] == 1 and row, "a rank that runs")
    assert row is not None
    assert row["state"].startswith("failed: rank 1 lost: no run record in ")
    done = home.cockpit("stop", "half", "--now")
    assert (done.returncode, done.stdout) == (0, "half: stopped\n")
    assert not tagged("half")
    done = home.cockpit("attach", "--plain", "half")
    assert done.returncode == 1
    assert "others: rank 0 killed by SIGKILL" in done.stderr
    done = home.cockpit("stop", "half")
    assert (done.returncode, done.stdout[:37]) == (0, "half: nothing to stop: failed: rank 1")
