"""Two real cockpits on one run: the one that writes is killed, or leaves, and the other one acts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cockpit.engine.records.folder import RunFolder
from cockpit.errors import Exit
from tests.waiting import PATIENCE_S, until

RUN = "heirs"

PROGRAM = """
import os, sys, time
while not os.path.exists("end"):
    print("line", flush=True)
    if os.environ["RANK"] == "1" and os.path.exists("fail"):
        sys.exit(7)
    time.sleep(0.05)
"""


class Cockpit:
    """A cockpit in the background, and what it tells."""

    def __init__(self, folder: Path, name: str, *words: str) -> None:
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [sys.executable, "-m", "cockpit", *words]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    @property
    def lines(self) -> bytes:
        """What it has printed of its ranks."""
        return self._out.read_bytes()

    @property
    def said(self) -> str:
        """What it has told people."""
        return self._err.read_text()

    def told(self, text: str) -> None:
        """Wait until it has told this."""
        try:
            until(lambda: text in self.said, text)
        except AssertionError:
            print(self.said[-3000:])
            raise


@pytest.fixture
def started(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> Iterator[Callable[..., Cockpit]]:
    """Starts cockpits: a name, and words."""
    made: list[Cockpit] = []

    def start(name: str, *words: str) -> Cockpit:
        made.append(Cockpit(tmp_path, name, *words))
        return made[-1]

    (tmp_path / "nodes").mkdir()
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    yield start
    (tmp_path / "end").touch()
    subprocess.run([*quick_cockpit, "stop", RUN, "--now"], capture_output=True, check=False)
    for one in made:
        one.process.kill()
        one.process.wait()


def run_words(folder: Path, *options: str) -> list[str]:
    """The words of ``cockpit run``."""
    here = ["--transport", "local", "--launcher", "command", "--no-preflight", "--probe", "off"]
    where = ["--cwd", str(folder), "--node-dir", str(folder / "nodes"), "--name", RUN, "--grace", "2"]
    program = [sys.executable, str(folder / "train.py")]
    return ["run", *here, *where, *options, str(folder / "hosts"), "--", *program]


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "mode"), [(signal.SIGKILL, "--headless"), (signal.SIGHUP, "--plain")])
def test_the_one_that_reads_along_takes_over_policy_and_spool(
    tmp_path: Path, started: Callable[..., Cockpit], sent: signal.Signals, mode: str
) -> None:
    first = started("first", *run_words(tmp_path, mode, "--failure-wait", "2"))
    until(lambda: first.lines.count(b"line") > 5, "lines")
    second = started("second", "attach", RUN, mode)
    second.told("this one watches")
    third = started("third", "attach", RUN, "--headless", "--json")
    third.told("this one watches")
    until(lambda: second.lines.count(b"line") > 5, "lines")

    first.process.send_signal(sent)
    first.process.wait(PATIENCE_S)
    if sent == signal.SIGHUP:
        assert "another attached cockpit takes over" in first.said
    pids = [second.process.pid, third.process.pid]
    path = RunFolder.find(RUN).path
    heir_pid = until(lambda: _holder(path) in pids and _holder(path), "an heir")
    heir, other = (second, third) if heir_pid == second.process.pid else (third, second)
    until(
        lambda: f"this cockpit (pid {heir_pid}" in heir.said + heir.lines.decode(),
        "it is said",
        timeout=PATIENCE_S,
    )
    known = f"another cockpit (pid {heir_pid} on {os.uname().nodename}) now controls this run"
    until(lambda: known in other.said + other.lines.decode(), "the other one knows")

    (tmp_path / "fail").touch()
    assert heir.process.wait(PATIENCE_S) == Exit.RANK_FAILED, (
        "the rest was stopped: rank 0 would go on for ever"
    )
    assert other.process.wait(PATIENCE_S) == Exit.RANK_FAILED
    run = RunFolder.find(RUN)
    (asked,) = [event for event in run.journal() if event.kind == "stop_asked"]
    assert "rank 1 on localhost exited 7" in str(asked.fact)
    assert run.model().done
    (entry,) = run.manifest.nodes
    for name in ("rank-0.log", "rank-1.log", "events.jsonl"):
        there = (Path(entry.dir) / name).read_bytes()
        assert (run.spool_dir(entry) / name).read_bytes() == there, name


@pytest.mark.slow
def test_who_only_watches_ends_nothing_by_ending(tmp_path: Path, started: Callable[..., Cockpit]) -> None:
    first = started("first", *run_words(tmp_path, "--headless"))
    until(lambda: first.lines.count(b"line") > 5, "lines")
    second = started("second", "attach", RUN, "--headless")
    second.told("this one watches")
    until(lambda: second.lines.count(b"line") > 0, "lines there, too")
    second.process.terminate()
    assert second.process.wait(PATIENCE_S) == Exit.LEFT
    assert "another cockpit still controls it" in second.said
    assert "takes over" not in second.said
    seen = first.lines.count(b"line")
    until(lambda: first.lines.count(b"line") > seen + 5, "the run continues")
    assert not any(event.kind == "stop_asked" for event in RunFolder.find(RUN).journal())


@pytest.mark.slow
def test_that_the_one_that_acts_is_suspended_is_said(
    tmp_path: Path, started: Callable[..., Cockpit], quick_cockpit: tuple[str, ...]
) -> None:
    first = started("first", *run_words(tmp_path, "--headless"))
    until(lambda: first.lines.count(b"line") > 5, "lines")
    second = started("second", "attach", RUN, "--headless")
    second.told("this one watches")
    first.process.send_signal(signal.SIGSTOP)
    second.told(f"is suspended: kill -CONT {first.process.pid}")

    def printed(*words: str) -> str:
        done = subprocess.run([*quick_cockpit, *words], capture_output=True, text=True, check=True)
        return done.stdout

    run = RunFolder.find(RUN)
    (entry,) = run.manifest.nodes
    spooled = run.spool_dir(entry) / "rank-0.log"
    there, here = Path(entry.dir) / "rank-0.log", spooled.stat().st_size
    until(lambda: there.stat().st_size > here, "more on the node")
    assert printed("logs", RUN, "--rank", "0").count("line") > spooled.read_bytes().count(b"line")
    assert printed("logs", RUN, "--raw", "--rank", "0").count("line") > spooled.read_bytes().count(b"line")
    assert spooled.stat().st_size == here
    assert f"is suspended: kill -CONT {first.process.pid}; steps" in printed("ps", RUN)
    first.process.send_signal(signal.SIGCONT)
    second.told("now controls this run")


def _holder(path: Path) -> int:
    try:
        return int(json.loads((path / "lock").read_text())["pid"])
    except (OSError, ValueError):
        return 0
