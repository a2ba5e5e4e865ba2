"""The command that gets calls: what reaches it, how long it may take, and how it fails."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from cockpit.config import Config
from cockpit.engine.calls.caller import run, ways
from tests.core.test_calls import nasty_call
from tests.waiting import until


def test_data_come_by_stdin_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = nasty_call()
    assert run('cat > got; echo $# "$@" > words; env > env', call) == ""
    assert json.loads((tmp_path / "got").read_text()) == json.loads(json.dumps(call.as_json()))
    assert (tmp_path / "words").read_text() == "0\n"
    assert "touch owned" not in (tmp_path / "env").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["env", "got", "words"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("exit 3", "exited 3"),
        ("echo one >&2; printf 'no \\033[2J way\\n' >&2; exit 3", "exited 3: no \\x1b[2J way"),
        ("kill -9 $$", "killed by SIGKILL"),
        ("/no/such/program", "exited 127: /bin/sh: 1: /no/such/program: not found"),
        ("true", ""),
        ("true\0", "cannot be started: embedded null byte"),
        ("exec 2>&-; exit 4", "exited 4"),
        ("exec <&- >&-; exit 4", "exited 4"),
        ("head -c 1000000 /dev/zero >&2", ""),
        ("head -c 1000000 /dev/zero", ""),
    ],
)
def test_why_it_failed_is_one_line(command: str, why: str) -> None:
    assert run(command, nasty_call()) == why


@pytest.mark.slow
def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    why = run(f"sleep 1000 & echo $! > '{pids}'; echo busy >&2; wait", nasty_call(), limit_s=4)
    assert why == "killed after 4 s: busy"
    pid = int(pids.read_text())
    until(lambda: not _runs(pid))


@pytest.mark.parametrize("command", ["trap '' TERM INT HUP; sleep 1000", "kill -STOP $$", "yes >&2"])
def test_nothing_makes_it_outlast_its_time(command: str) -> None:
    assert run(command, nasty_call(), limit_s=1).startswith("killed after 1 s")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_it_is_not_waited_for_what_it_leaves_behind(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    began = time.monotonic()
    assert run(f"sleep 60 & echo $! > '{pids}'", nasty_call(), limit_s=50) == ""
    assert time.monotonic() < began + 50
    os.kill(int(pids.read_text()), 9)


def test_it_has_no_way_to_this_terminal() -> None:
    assert "No such device" in run("echo x > /dev/tty", nasty_call())


def test_only_the_one_that_writes_runs_the_command_of_the_settings() -> None:
    settings = Config(notify="hook", bell=False)
    assert (ways(None, settings).command, ways(None, settings).shared) == ("hook", True)
    assert (ways("mine", settings).command, ways("mine", settings).shared) == ("mine", False)
    assert ways("", settings).command == ""
