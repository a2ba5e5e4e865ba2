"""The moving picture of the docs, from the demo as it runs: ``make recording``.

A demo of 64 ranks runs in cockpit on a pseudo-terminal. What it writes becomes an asciicast, whose acts are
played faster where they would last longer than they are worth; the cast becomes a GIF.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyte

from tests.tui import terminal_gif

COLUMNS, LINES = 140, 40

COMMAND = "cockpit demo --nodes 8 --slots 8 --launcher command --fault hang"

PATIENCE_S = 180.0
"""How long an act may take before the recording is given up."""

QUIT_S = 10.0
"""How long the demo may take after each of three ``q``."""

PROMPT_S = 0.8
"""Seconds for which the command alone is shown."""

REST_S = 1.2
"""Seconds for which the screen stays as it is when the cast is over."""


@dataclass(frozen=True)
class Act:
    """A part of the picture.

    :param name: the marker it begins with
    :param until: a pattern; the act is over when the screen has it
    :param most_s: seconds it lasts in the picture; what took longer is played faster
    :param stays_s: seconds for which what the act led to is shown, as they passed
    :param key: what is typed as it begins
    """

    name: str
    until: str
    most_s: float
    stays_s: float = 0.0
    key: str = ""


ACTS = (
    Act("starts", r"step +1[ /\d]", 2.0),
    Act("healthy", r"step +(19|20)\b", 5.4),
    Act("stalls", r"rank 63 .*join|faults\.py:\d+", 3.5, 3.0),
    Act("its stack", r"forward +faults", 0.6, 3.0, "S"),
)
"""Together 20 s, with the prompt before and the rest after."""

Event = tuple[float, str, str]
"""Seconds, ``o`` for output or ``m`` for a marker, and its text."""


class Recorded:
    """A program on a pseudo-terminal, with what it wrote and when.

    :raises AssertionError: the screen does not come to show what an act waits for
    """

    def __init__(self, words: Sequence[str], env: dict[str, str], cwd: Path) -> None:
        self.events: list[Event] = []
        self.screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.Stream(self.screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._master, slave = pty.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._begin = time.monotonic()
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *words], env=env, cwd=cwd, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def listen(self, seconds: float) -> bool:
        """Take in what is written within so many seconds; False: the program has closed the terminal."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # how Linux says that no program has it open any more
            return False
        if text := self._decoder.decode(data):
            self.events.append((time.monotonic() - self._begin, "o", text))
            self._stream.feed(terminal_gif.understood(text))
        return True

    def play(self, act: Act) -> list[Event]:
        """Play an act; its events, from 0 on."""
        first, self._begin = len(self.events), time.monotonic()
        os.write(self._master, act.key.encode())
        while not re.search(act.until, self.text):
            alive = self.listen(0.1)
            late = time.monotonic() - self._begin > PATIENCE_S
            if not alive or late:
                raise AssertionError(f"act {act.name!r} does not come to {act.until!r}:\n{self.text}")
        took = time.monotonic() - self._begin
        while time.monotonic() - self._begin < took + act.stays_s:
            self.listen(0.1)
        slower = min(1.0, act.most_s / took)
        return [
            (at * slower if at < took else at - took + took * slower, kind, text)
            for at, kind, text in self.events[first:]
        ]

    def close(self) -> None:
        """Quit the program, which ends all that it started."""
        for _ in range(3):
            with contextlib.suppress(OSError):
                os.write(self._master, b"q")
            deadline = time.monotonic() + QUIT_S
            while self._process.poll() is None and time.monotonic() < deadline:
                if not self.listen(0.1):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(QUIT_S)
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        os.close(self._master)


def record() -> list[Event]:
    """Play every act on a terminal."""
    with tempfile.TemporaryDirectory() as home:
        venv = Path(home) / "venv"
        venv.symlink_to(sys.prefix)  # the ranks' command is on the screen: whose checkout it is is not
        words = [str(venv / "bin/python"), "-m", *shlex.split(COMMAND)]
        env = {
            "PATH": f"{venv}/bin:{os.environ['PATH']}",
            "HOME": home,
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "TZ": "UTC",
        }
        at, events = PROMPT_S, [(0.0, "o", f"$ {COMMAND}\r\n")]
        recorded = Recorded(words, env, Path(home))
        try:
            for act in ACTS:
                played = recorded.play(act)
                events += [(at, "m", act.name), *((at + when, kind, text) for when, kind, text in played)]
                at = max(events[-1][0], at)
                print(f"{act.name}: over at {at:.1f} s", file=sys.stderr)
        finally:
            recorded.close()
    return [*events, (at + REST_S, "o", "")]


def main(folder: Path) -> None:
    """Write ``demo.cast`` and ``demo.gif``."""
    font = terminal_gif.Font.find()
    events = record()
    header = {"version": 2, "width": COLUMNS, "height": LINES, "title": COMMAND}
    lines = [json.dumps(header), *(json.dumps([round(at, 3), *what]) for at, *what in events)]
    cast, gif = folder / "demo.cast", folder / "demo.gif"
    cast.write_text("\n".join(lines) + "\n")
    terminal_gif.write(gif, cast, font)
    for path in (cast, gif):
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
