"""The app on a terminal that goes away, is stopped and continued, or is given to a pager for a while."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cockpit.errors import Exit
from tests.cli.verbs import Verbs
from tests.waiting import PATIENCE_S, until

SLOW = """
import asyncio, os, sys
from cockpit import config
from cockpit.cli.terminal import of_app
from cockpit.tui.base_app import BaseApp

async def main():
    app = BaseApp(config.load())
    with of_app(app):
        await app.run_async()
        print("leaving", flush=True)
        while not os.path.exists("closed"):
            await asyncio.sleep(0.02)

asyncio.run(main())
"""
"""An app whose links have closed, once it is left, when there is a file."""


WRITING = """
import os, signal, sys

import cockpit.tui.base_app

class WritingApp(cockpit.tui.base_app.BaseApp):
    def action_leave(self):
        with self._driver._writer_thread._queue.mutex:
            os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        self.call_later(super().action_leave)

cockpit.tui.base_app.BaseApp = WritingApp
"""
"""Before the above: a signal comes while a write holds its lock. The app is left once it has gone on."""


SHELL = """
import os, signal, subprocess, sys

def foreground():
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)

app = subprocess.Popen([sys.executable, "-c", sys.argv[1]], preexec_fn=foreground)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)

def stopped(say):
    ended, status = os.waitpid(app.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    os.tcsetpgrp(0, os.getpgrp())
    print(say, flush=True)

stopped("it is stopped")
os.kill(app.pid, signal.SIGCONT)
stopped("it is stopped in the background")
os.tcsetpgrp(0, app.pid)
os.kill(app.pid, signal.SIGCONT)
stopped("it is stopped once more")
"""
"""Starts the app, then does what a shell does at ``bg`` and ``fg``."""


PAGER = """#!/bin/sh
trap 'echo interrupted' INT
cat >/dev/null
echo paged
read end </dev/tty
"""

SHOWN = b"\x1b[?1004h"
"""What an app prints once it reads keys: before that, the terminal itself takes ctrl+q."""


class Terminal:
    """A terminal, and a program that leads its session there.

    :param owned: whether it is that session's: who closes it else sends no signal
    """

    def __init__(self, words: list[str], env: Mapping[str, str], cwd: Path, *, owned: bool = True) -> None:
        self._links_close = cwd / "closed"
        self._master, slave = pty.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.process = subprocess.Popen(
            ["setsid", *["--ctty"] * owned, *words],
            env=dict(env),
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        self.shown = b""
        self._open = True
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # how Linux says that no program has it open any more
            while self._open:
                if select.select([self._master], [], [], 0.05)[0]:
                    self.shown += os.read(self._master, 1 << 16)

    def shows(self, text: bytes, times: int = 1) -> None:
        """Wait until it was shown."""
        until(lambda: self.shown.count(text) >= times, f"{text!r} is shown")

    def types(self, text: bytes) -> None:
        """Press keys."""
        os.write(self._master, text)

    def close(self) -> None:
        """Close the window."""
        if self._open:
            self._open = False
            self._reader.join()
            os.close(self._master)

    def send(self, number: int) -> None:
        """Send a signal to the program."""
        self.process.send_signal(number)

    def stopped(self) -> None:
        """Wait until the program is stopped."""
        options = os.WUNTRACED | os.WNOHANG
        until(lambda: os.WIFSTOPPED(os.waitpid(self.process.pid, options)[1]), "the program is stopped")

    def ended(self) -> int:
        """Let its links close, and wait for the end of the program; its code."""
        self._links_close.touch()
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[list[Terminal]]:
    made: list[Terminal] = []
    yield made
    for one in made:
        one.close()
        one.process.kill()
        one.process.wait()


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TERM": "xterm-256color", "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def slow(tmp_path: Path, terminals: list[Terminal], env: dict[str, str]) -> Terminal:
    """An app that is shown."""
    terminals.append(Terminal([sys.executable, "-c", SLOW], env, tmp_path))
    terminals[0].shows(SHOWN)
    return terminals[0]


LEAVE = b"\x11"
"""ctrl+q"""

STOP = b"\x1a"
"""ctrl+z"""


@pytest.mark.slow
def test_the_terminal_is_closed(slow: Terminal) -> None:
    slow.close()
    slow.ended()


def test_the_terminal_is_closed_while_the_app_leaves(slow: Terminal) -> None:
    slow.types(LEAVE)
    slow.shows(b"leaving")
    slow.close()
    slow.ended()


def test_a_terminal_of_which_only_its_end_tells_that_it_is_gone(
    tmp_path: Path, terminals: list[Terminal], env: dict[str, str]
) -> None:
    terminals.append(Terminal([sys.executable, "-c", SLOW], env, tmp_path, owned=False))
    terminals[0].shows(SHOWN)
    terminals[0].close()
    terminals[0].ended()


@pytest.mark.slow
def test_it_is_left_as_ever_after_it_was_told_to_go_on(slow: Terminal) -> None:
    for _ in range(3):
        slow.send(signal.SIGCONT)

    def left() -> bool:
        slow.types(LEAVE)  # each time the terminal is given back for a moment, and takes ctrl+q then
        return b"leaving" in slow.shown

    until(left, "leaving is shown")
    assert slow.ended() == 0


@pytest.mark.slow
def test_it_is_told_to_go_on_in_the_middle_of_a_write(
    tmp_path: Path, terminals: list[Terminal], env: dict[str, str]
) -> None:
    terminals.append(Terminal([sys.executable, "-c", WRITING + SLOW, "SIGCONT"], env, tmp_path))
    terminals[0].shows(SHOWN)
    terminals[0].types(LEAVE)
    terminals[0].shows(b"leaving")
    assert terminals[0].ended() == 0


@pytest.mark.slow
def test_it_is_stopped_in_the_middle_of_a_write(
    tmp_path: Path, terminals: list[Terminal], env: dict[str, str]
) -> None:
    terminals.append(Terminal([sys.executable, "-c", WRITING + SLOW, "SIGTSTP"], env, tmp_path))
    terminals[0].shows(SHOWN)
    terminals[0].types(LEAVE)
    terminals[0].stopped()
    terminals[0].send(signal.SIGCONT)
    terminals[0].shows(b"leaving")
    assert terminals[0].ended() == 0


@pytest.mark.slow
def test_it_goes_on_once_it_is_in_the_foreground(
    tmp_path: Path, terminals: list[Terminal], env: dict[str, str]
) -> None:
    terminals.append(Terminal([sys.executable, "-c", SHELL, SLOW], env, tmp_path))
    terminals[0].shows(SHOWN)
    terminals[0].types(STOP)
    terminals[0].shows(b"it is stopped in the background")
    terminals[0].shows(SHOWN, times=2)
    terminals[0].types(LEAVE)
    terminals[0].shows(b"leaving")
    assert terminals[0].ended() == 0


def test_it_is_stopped_while_it_leaves(slow: Terminal) -> None:
    slow.types(LEAVE)
    slow.shows(b"leaving")
    slow.send(signal.SIGTSTP)
    slow.stopped()
    slow.send(signal.SIGCONT)
    assert slow.ended() == 0
    assert slow.shown.count(SHOWN) == 1


@pytest.mark.slow
def test_it_goes_on_after_it_was_stopped(slow: Terminal) -> None:
    slow.send(signal.SIGSTOP)
    slow.send(signal.SIGCONT)
    slow.shows(SHOWN, times=2)
    slow.types(LEAVE)
    slow.shows(b"leaving")
    assert slow.ended() == 0


@pytest.mark.slow
def test_ctrl_c_in_the_pager_is_the_pagers(
    tmp_path: Path, terminals: list[Terminal], env: dict[str, str]
) -> None:
    verbs = Verbs(tmp_path / "state", tmp_path / "work")
    words = [word for word in verbs.words("r", "echo a line; sleep 1000") if word != "--plain"]
    pager = tmp_path / "pager"
    pager.write_text(PAGER)
    pager.chmod(0o755)
    env |= {"PAGER": str(pager)}
    terminals.append(Terminal([sys.executable, "-m", "cockpit", *words], env, tmp_path))
    shown = terminals[0]
    shown.shows(b"a line")
    shown.types(b"o")
    shown.shows(b"paged")
    shown.types(b"\x03")
    shown.shows(b"interrupted")
    shown.types(b"\r")
    shown.shows(SHOWN, times=2)
    assert shown.process.poll() is None
    shown.types(LEAVE)
    shown.ended()
    assert verbs.call("stop", "r", "--now").code == 0


@pytest.mark.slow
def test_a_window_that_is_closed_is_no_error_and_ends_no_run(
    tmp_path: Path, terminals: list[Terminal], env: dict[str, str]
) -> None:
    verbs = Verbs(tmp_path / "state", tmp_path / "work")
    run = verbs.start(*verbs.words("r", "while sleep 0.1; do echo a line; done"))
    try:
        until(lambda: verbs.spooled("r", 0).exists() and verbs.spooled("r", 0).stat().st_size, "output")
        run.send_signal(signal.SIGHUP)
        verbs.end(run)
        terminals.append(Terminal([sys.executable, "-m", "cockpit"], env, tmp_path))
        home = terminals[0]
        home.shows(b"running")
        home.types(b"\r")
        home.shows(b"a line")
        home.close()
        assert home.ended() == Exit.LEFT
        assert [each.read_text() for each in (tmp_path / "state" / "cockpit" / "errors").glob("*")] == []
        assert "r: running" in verbs.call("ps", "r").out
    finally:
        stopped = verbs.call("stop", "r", "--now")
    assert stopped.code == 0
