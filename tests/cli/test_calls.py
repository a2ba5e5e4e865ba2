"""``--notify`` and the bell, with a real run: who is called when, and that none of it can end the watch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.terminal import on_terminal
from tests.waiting import PATIENCE_S, until

COCKPIT = [sys.executable, "-m", "cockpit"]

Cockpit = tuple[str, ...]
"""The words that start one."""

SPILL = r"""import os, sys, time
print("WANDB_API_KEY=deadbeef99 \x1b]52;c;eA==\x07 $(touch owned) ; touch owned", flush=True)
if os.environ["RANK"] == "0":
    open("trains", "w").close()
else:
    while not os.path.exists("trains"):
        time.sleep(0.01)
    own = os.environ.get("LOGIN_AUTH", "") + " --api-key deadbeef99"
    raise RuntimeError(own + " token=deadbeef99 \x1b]0;owned\x07 `touch owned` $(touch owned); touch owned")
time.sleep(600)
"""


def words(cockpit: Cockpit, folder: Path, *options: str) -> list[str]:
    """A run of two ranks of which one fails with what may do harm."""
    (folder / "hostfile").write_text("localhost slots=2\n")
    (folder / "spill.py").write_text(SPILL)
    launch = [
        "--launcher",
        "command",
        "--name",
        f"spill-{uuid4().hex}",
        "--failure-wait",
        "3",
        "--grace",
        "1",
    ]
    launch += ["--node-dir", str(folder)]
    return [*cockpit, "run", "hostfile", *launch, *options, "--", "spill.py"]


def calls(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def test_a_failure_and_the_end_are_called_with_data_only(tmp_path: Path, quick_cockpit: Cockpit) -> None:
    hook = "cat >> calls; echo 'no \033[2J way' >&2; exit 3"
    options = ("--headless", "--env", "LOGIN_AUTH=walrus-41", "--notify", hook)
    done = subprocess.run(
        words(quick_cockpit, tmp_path, *options), cwd=tmp_path, capture_output=True, timeout=PATIENCE_S
    )
    assert done.returncode == 1
    failure, end = calls(tmp_path)
    assert (failure["kind"], failure["ranks"]) == ("failure", {"alive": 1, "total": 2})
    assert "still watched by cockpit, pid " in failure["text"]
    assert (end["kind"], end["exit"], end["state"]) == ("end", 1, "failed: rank 1 exited 1")
    told = (tmp_path / "calls").read_text()
    assert "deadbeef99" not in told
    assert "walrus-41" not in told
    assert "RuntimeError" in end["text"]
    said = done.stderr.decode()
    assert said.count("cockpit: --notify: exited 3: no \\x1b[2J way") == 1
    assert "\a" not in said  # no terminal
    assert not (tmp_path / "owned").exists()


@pytest.mark.slow
def test_the_terminal_rings_once_for_each_call_inside_tmux_too(
    tmp_path: Path, quick_cockpit: Cockpit
) -> None:
    env = {**os.environ, "TERM": "tmux-256color", "TMUX": "/tmp/none,1,0"}
    code, shown = on_terminal(words(quick_cockpit, tmp_path, "--plain"), env, tmp_path, timeout=PATIENCE_S)
    assert code == 1
    pieces = shown.split(b"\x1bPtmux;\x1b\x1b]9;cockpit: ")[1:]
    assert len(pieces) == 2
    for piece in pieces:
        body = piece.split(b"\x1b\x1b\\\x1b\\")[0]
        assert body.startswith(b"spill-")
        assert body.decode().isprintable()
        assert b"deadbeef99" not in body
    assert shown.count(b"\a") == 2


@pytest.mark.slow
def test_the_terminal_does_not_ring_where_the_settings_say_so(tmp_path: Path, quick_cockpit: Cockpit) -> None:
    settings = tmp_path / "config" / "cockpit" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("bell = false\n")
    env = {**os.environ, "TERM": "xterm", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    code, shown = on_terminal(words(quick_cockpit, tmp_path, "--plain"), env, tmp_path, timeout=PATIENCE_S)
    assert code == 1
    assert b"\a" not in shown


def test_what_runs_a_command_is_a_persons_own_settings_only(tmp_path: Path, quick_cockpit: Cockpit) -> None:
    (tmp_path / "cockpit.toml").write_text('notify = "touch owned"\n')
    done = subprocess.run(
        words(quick_cockpit, tmp_path, "--headless"), cwd=tmp_path, capture_output=True, timeout=PATIENCE_S
    )
    assert done.returncode == 2
    assert b"cockpit.toml: key 'notify': is a command, and a project's settings cannot set one" in done.stderr
    assert not (tmp_path / "owned").exists()


@pytest.mark.slow
def test_the_app_rings_too(tmp_path: Path) -> None:
    (tmp_path / "hostfile").write_text("localhost slots=1\n")
    # It is left once it has called: what was written before that is on the terminal.
    hook = """grep -q '"kind": "end"' && kill -TERM $PPID"""
    run = [
        "run",
        "hostfile",
        "--launcher",
        "command",
        "--name",
        f"app-{uuid4().hex}",
        "--node-dir",
        str(tmp_path),
    ]
    env = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    env.pop("TMUX", None)
    _, shown = on_terminal(
        [*COCKPIT, *run, "--notify", hook, "--", "-c", "print(1)"], env, tmp_path, timeout=PATIENCE_S
    )
    assert b"\a\x1b]9;cockpit: app-" in shown
    assert shown.count(b"\x1b]9;") == 1


@pytest.mark.slow
def test_a_cockpit_that_nobody_sees_leave_says_so(tmp_path: Path) -> None:
    (tmp_path / "hostfile").write_text("localhost slots=1\n")
    (tmp_path / "waits.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    name = f"left-{uuid4().hex}"
    run = [
        "run",
        "hostfile",
        "--launcher",
        "command",
        "--name",
        name,
        "--node-dir",
        str(tmp_path),
        "--headless",
    ]
    with (tmp_path / "out").open("wb") as out:
        cockpit = subprocess.Popen(
            [*COCKPIT, *run, "--notify", "cat >> calls", "--", "waits.py"], cwd=tmp_path, stdout=out
        )
    try:
        until(lambda: b"here" in (tmp_path / "out").read_bytes(), "its output")
        cockpit.send_signal(signal.SIGHUP)
        assert cockpit.wait(PATIENCE_S) == 130
        (left,) = calls(tmp_path)
        assert (left["kind"], left["watched_by"]) == ("left", "")
        assert f"cockpit attach {name} --headless" in left["text"]
    finally:
        cockpit.kill()
        cockpit.wait()
        subprocess.run(
            [*COCKPIT, "stop", name, "--now"], cwd=tmp_path, capture_output=True, timeout=PATIENCE_S
        )
